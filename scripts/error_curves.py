"""Error curves of a profile that was trained without them, put into its card.

python scripts/error_curves.py trained_models/nvidia-h200

`costmodel train` fits them to its own out-of-fold predictions. The file of a trained predictor has a network of each
fold, which has seen none of the rows that the fold tests, but trees that have seen all. So the networks alone predict,
corrected by the residuals of a sample of the rows of other folds. Takes ten minutes for 480,000 kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from costmodel.calibration.evaluation import table_origins
from costmodel.calibration.make_profile import write_card
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.group_model import GroupModel
from costmodel.predictor.neighbours import EXACT, corrections, spread_sample
from costmodel.predictor.network import scaled
from costmodel.profiles.predictor_file import load_predictor
from costmodel.report.progress import tracked
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.error_curves import isotonic_curve, relative_errors
from costmodel.training.folds import by_family
from costmodel.training.kernel_models import interval_widths
from costmodel.training.tables import Table, tabulate, trusted

ROWS = 8_000
"""Rows of a group that are predicted."""


def curve_of(model: GroupModel, table: Table, tests: np.ndarray, rows: int) -> ErrorCurve:
    """Error curve of a group from the networks of its folds.

    Args:
        model: model of the group, with a network of each fold in order.
        table: rows that it was trained on.
        tests: fold that tests each row, (rows,).
        rows: number of rows to predict, chosen at random.
    """
    raw = table.raw[:, [table.names.index(name) for name in model.names]]
    x, target = scaled(raw, model.mean, model.scale), table.target
    chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:rows])
    error, distance = np.zeros(len(chosen), dtype=np.float32), np.full(len(chosen), np.inf)
    for fold in np.unique(tests[chosen]):
        alone = replace(model, networks=(model.networks[fold],), trees=None)
        kept, tested = tests != fold, np.flatnonzero(tests[chosen] == fold)
        rows = np.flatnonzero(kept)[spread_sample(x[kept], len(model.sample), 0)]
        asked = x[chosen[tested]]
        correction, distance[tested] = corrections(asked, x[rows], target[rows] - alone.expected(x[rows]), model.reach)
        error[tested] = np.abs(target[chosen[tested]] - alone.expected(asked) - correction)
    times = table.time_us[chosen]
    new = distance >= EXACT
    return isotonic_curve(distance[new], relative_errors(error, times, interval_widths(error, times))[new])


def refit(directory: Path, groups: Sequence[str], rows: int) -> None:
    """Fit the curves of some groups and put them into the card."""
    card = json.loads((directory / "card.json").read_text(encoding="utf-8"))
    predictor = load_predictor(directory / "predictor.safetensors", card["predictor_sha256"])
    kept = trusted(read_frame(directory / "units.parquet")[0])
    pairs = zip(kept["graph"], kept["runner"], strict=True)
    kernels = [kernel_of(*pair) for pair in tracked(list(pairs), "reading kernel")]
    tables = tabulate(kernels, kept, predictor.roofline, predictor.multiprocessors)
    origins = table_origins(kernels, kept["source"].tolist())
    for group in tracked(groups or list(predictor.groups), "fitting group"):
        tests = by_family(tables[group].shape, origins[group], {}).tests
        curve = curve_of(predictor.groups[group], tables[group], tests, rows)
        card.setdefault("error_curves", {})[group] = asdict(curve)
        write_card(directory / "card.json", card)


def main() -> None:
    """Fit, and write the card after every group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path, help="directory of the profile")
    parser.add_argument("--group", action="append", default=[], help="only this group of kernels")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a group that are predicted")
    args = parser.parse_args()
    refit(args.profile, args.group, args.rows)


if __name__ == "__main__":
    main()
