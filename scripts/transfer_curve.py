"""Learning curve of a profile of another device: error by minutes of measuring, of three ways to predict.

python scripts/transfer_curve.py units.parquet --minutes 8 --after 2 5 8 -o docs/data/transfer_h100.csv
python scripts/transfer_curve.py units.parquet --minutes 8 --after 5 --write five.parquet    # what 5 minutes measured

The dataset holds kernels in the order in which a sweep measured them (`costmodel dataset export`); those of rare
operators, which were measured in a sweep of their own, are left out. Two of eight folds
are tested: no shape of theirs, and no kernel of their families of models, is learnt from. `base alone` is the base's
prediction, `base scaled` times the median ratio of each group's learnt kernels, `from nothing` a predictor trained on
them without a base, `transferred` the difference learnt. Kernels that the base has measured are scored apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collectors.workloads.vision_operators import SOURCE
from costmodel.calibration.base_profile import choose_base
from costmodel.calibration.evaluation import table_origins
from costmodel.device import Device
from costmodel.features import OPTIONAL
from costmodel.predictor.network import Array, scaled
from costmodel.training.baselines import network_fit
from costmodel.training.dataset import kernel_of, read_frame, write_frame
from costmodel.training.folds import by_family
from costmodel.training.kernel_models import TrainingSettings
from costmodel.training.roofline_fit import fit_roofline
from costmodel.training.tables import Table, drop, tabulate, trusted
from costmodel.training.transferred import fit_difference, relative_to_base

TESTED = (0, 1)
"""Folds whose kernels are predicted."""
LEAST = 25
"""Fewest tested kernels of a group in the table."""


def read_sweep(units: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Units of a sweep, with their `place` in it from 0 to 1, and the dataset's metadata."""
    frame, about = read_frame(units)
    frame = frame[~frame["source"].fillna("").str.startswith(SOURCE)]
    return frame.assign(place=np.arange(len(frame)) / len(frame)), about


def learning_curve(
    units: Path, minutes: float, after: list[float], base_name: str, nothing: bool
) -> Iterator[dict[str, object]]:
    """A row a group and number of minutes: mean relative errors by way.

    Args:
        units: dataset in order of measuring.
        minutes: time that measuring all of it took.
        after: times to predict after.
        base_name: profile of the base.
        nothing: whether predictors without a base are trained, which takes minutes.
    """
    frame, about = read_sweep(units)
    kept = trusted(frame)
    environment = about["environment"]
    base = choose_base(base_name, "", environment)
    assert base is not None
    kernels = [kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True)]
    multiprocessors = Device.of(environment).multiprocessors
    roofline = fit_roofline(kernels, kept["device_us_p50"].tolist())
    tables = {g: drop(t, OPTIONAL) for g, t in tabulate(kernels, kept, roofline, multiprocessors, least=1).items()}
    places = tabulate(kernels, kept.assign(device_us_p50=kept["place"] + 1.0), roofline, multiprocessors, least=1)
    relative = relative_to_base(tables, kernels, base.base)
    origins = table_origins(kernels, kept["source"].tolist())
    for group, table in relative.items():
        folds = by_family(table.shape, origins[group], {})
        tested = np.isin(folds.tests, TESTED)
        known = np.isin(table.hashes, base.base.predictor.groups[group].recall.hashes)
        learnable = folds.learns[list(TESTED)].all(0)
        if tested.sum() < LEAST:
            continue
        for end in after:
            learnt = learnable & (places[group].time_us - 1.0 <= end / minutes)
            if not learnt.any():
                continue
            ways = _ways(table, tables[group], learnt, tested, nothing)
            for kind, some in (("known to the base", known[tested]), ("new to both", ~known[tested])):
                if some.sum() < LEAST:
                    continue
                errors = {
                    way: float(np.abs(np.exp(log - table.target[tested]) - 1)[some].mean()) for way, log in ways.items()
                }
                counts = {"learnt": int(learnt.sum()), "tested": int(some.sum())}
                yield {"group": group, "kernels": kind, "minutes": end, **counts, **errors}


def _ways(relative: Table, alone: Table, learnt: np.ndarray, tested: np.ndarray, nothing: bool) -> Mapping[str, Array]:
    """Predicted logarithms of time over the base's prediction of the tested rows, by way."""
    some, shared = relative.take(learnt), float(np.median(relative.target[learnt]))
    model = fit_difference(some, shared)
    zero = np.zeros(int(tested.sum()), dtype=np.float32)
    found = {"base alone": zero, "base scaled": zero + shared}
    if nothing:
        log = network_fit(TrainingSettings())(alone.take(learnt))(alone.take(tested))
        found["from nothing"] = log + np.log(alone.bound_us[tested] / relative.bound_us[tested]).astype(np.float32)
    x = scaled(relative.raw[tested], model.mean, model.scale)
    return found | {"transferred": model.log_ratio(x)[0]}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=Path)
    parser.add_argument("--minutes", type=float, required=True, help="time that measuring the dataset took")
    parser.add_argument("--after", type=float, nargs="+", default=[2.0, 5.0, 8.0])
    parser.add_argument("--base", default="nvidia-h200")
    parser.add_argument("--without-nothing", action="store_true", help="train no predictor without a base")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--write", type=Path, help="write the units of the last of these times as a dataset, and stop")
    args = parser.parse_args()
    if args.write:
        frame, about = read_sweep(args.units)
        write_frame(frame[frame["place"] < max(args.after) / args.minutes].drop(columns="place"), args.write, about)
        return
    rows = pd.DataFrame(learning_curve(args.units, args.minutes, args.after, args.base, not args.without_nothing))
    print(rows.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    if args.output:
        rows.to_csv(args.output, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
