"""Errors of a shipped profile's predictions on kernels that it has not learnt, by group and precision.

python scripts/score_units.py docs/data/settings_units_h200.parquet -o docs/data/settings_scores_h200.csv
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import pandas as pd

from costmodel.features import group_of
from costmodel.ir.training_costs import gradients_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.predictor import Predictor
from costmodel.profiles.profile import load_profile
from costmodel.training.dataset import DEVICE, kernel_of, read_frame
from costmodel.training.tables import trusted

MIDDLE = 0.5
"""Place in a model of a kernel of none."""


def scored(frame: pd.DataFrame, predictor: Predictor, by: str = "group") -> pd.DataFrame:
    """A row a group, or kind, and precision: kernels, errors relative to the measured device time, and shares.

    Args:
        frame: measured units.
        predictor: predicts them.
        by: `group` or `kind`, of the kernel's main operator.
    """
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    places = [MIDDLE if math.isnan(place) else place for place in frame["position"].astype(float)]
    estimates = predictor.predict(kernels, places)
    rows = pd.DataFrame(
        {
            by: [kind_of(kernel) if by == "kind" else group_of(kernel) for kernel in kernels],
            "precision": list(map(precision_of, kernels)),
            "error": [abs(one.us / us - 1) for one, us in zip(estimates, frame[DEVICE], strict=True)],
            "in_range": [one.in_range for one in estimates],
            "inside": [one.low_us <= us <= one.high_us for one, us in zip(estimates, frame[DEVICE], strict=True)],
        }
    )
    groups = rows.groupby([by, "precision"], sort=True)
    return groups.agg(
        kernels=("error", "size"),
        mean_error=("error", "mean"),
        median_error=("error", "median"),
        in_range=("in_range", "mean"),
        inside=("inside", "mean"),
    ).reset_index()


def kind_of(kernel: Kernel) -> str:
    """Kind of the kernel's main operator; of a convolution's gradient, also by what it is."""
    op = kernel.anchor
    if op.base != "convolution_backward":
        return kernel.kind
    by_input, by_weight = gradients_of(op)[:2]
    return f"{kernel.kind} by {' and '.join(['input'] * by_input + ['weight'] * by_weight)}"


def precision_of(kernel: Kernel) -> str:
    """`TF32` or the dtype of the first result that is not empty."""
    made = next((kind for kind in kernel.anchor.types if kind.numel), kernel.anchor.type)
    return "TF32" if kernel.tf32 else made.dtype


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=Path, help="dataset of units (.parquet)")
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--by", choices=("group", "kind"), default="group")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    units = trusted(read_frame(args.units)[0]).reset_index(drop=True)
    scores = scored(units, load_profile(args.hardware).predictor, args.by)
    print(scores.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    if args.output:
        scores.to_csv(args.output, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
