"""Accuracy that pruning the trees of a predictor costs: errors of held-out kernels with pruned and with whole trees.

python scripts/pruning_loss.py -o docs/data/pruning_h200.csv

Of each group at most ROWS measured kernels are taken, random shapes with all their batch sizes, precisions and layouts.
Both ways share the networks of a fold, which has seen no shape and no family of models that it tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

from costmodel.calibration.evaluation import table_origins
from costmodel.features import OPTIONAL
from costmodel.predictor.network import scaled
from costmodel.profiles.profile import load_profile
from costmodel.training import kernel_models
from costmodel.training.baselines import score_group
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.folds import by_family
from costmodel.training.kernel_models import TrainingSettings, assemble, moments, train_networks
from costmodel.training.tables import drop, shape_group, tabulate, trusted

ROWS = 12_000
"""Most kernels of a group."""
GROUPS = ("conv", "gemm", "attention", "aten", "triton")
TESTED = (0, 1)
"""Folds whose kernels are predicted."""
WAYS = {"whole": 0.0, "pruned": kernel_models.TOLERANCE}
"""Way -> change of the logarithm that pruned trees may make."""
SEED = 0


def some_shapes(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """Rows of a random share of the shapes."""
    shape = frame["graph"].map(shape_group).to_numpy()
    unique = np.unique(shape)
    chosen = np.random.default_rng(SEED).choice(unique, max(1, round(share * len(unique))), replace=False)
    return frame[np.isin(shape, chosen)]


def losses(hardware: str, share: float) -> Iterator[dict[str, object]]:
    """A row a group and fold: mean and median relative error, with whole and with pruned trees.

    Args:
        hardware: name of the profile.
        share: share of the dataset's shapes that is read.
    """
    profile, settings = load_profile(hardware), TrainingSettings()
    frame = some_shapes(trusted(read_frame(profile.path / "units.parquet")[0]), share)
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    tables = tabulate(kernels, frame, profile.predictor.roofline, profile.device.multiprocessors)
    origins = table_origins(kernels, frame["source"].tolist())
    for group in GROUPS:
        table = drop(tables[group], OPTIONAL)
        folds = by_family(table.shape, origins[group], {})
        mean, scale = moments(table)
        for fold in TESTED:
            learnt = table.take(np.flatnonzero(folds.learns[fold])[:ROWS])
            tested = table.take(folds.tests == fold)
            networks = train_networks(learnt, mean, scale, settings)
            errors: dict[str, object] = {"group": group, "fold": fold, "learnt": len(learnt.target)}
            for way, tolerance in WAYS.items():
                with patch.object(kernel_models, "TOLERANCE", tolerance):
                    model = assemble(learnt, mean, scale, networks, settings)
                scores = score_group(tested, model.log_ratio(scaled(tested.raw, mean, scale))[0])
                assert model.trees is not None
                errors |= {f"{way} nodes": len(model.trees.feature), "tested": scores["kernels"]}
                errors |= {f"{way} mean": scores["mean_error"], f"{way} median": scores["median_error"]}
            yield errors


def main() -> None:
    """Write the rows, and print the mean loss of each group in points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--share", type=float, default=0.1, help="share of the dataset's shapes")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = pd.DataFrame(losses(args.hardware, args.share))
    for kind in ("mean", "median"):
        rows[f"{kind} loss, points"] = 100 * (rows[f"pruned {kind}"] - rows[f"whole {kind}"])
    print(rows.to_string(index=False, float_format=lambda value: f"{value:.4f}"))
    if args.output:
        rows.to_csv(args.output, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
