"""Costs of batch norm in training, fitted to measured kernels, and their error on families left out of the fit.

python scripts/fit_channel_costs.py docs/data/backward_units_h200.parquet
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from costmodel.kernels.kernel import Kernel
from costmodel.predictor.predictor import Predictor
from costmodel.predictor.serial_blocks import BATCH_NORMS, ChannelCosts, batch_norm_us
from costmodel.profiles.profile import load_profile
from costmodel.training.dataset import DEVICE, kernel_of, read_frame
from costmodel.training.families import FOLDS, family_of, fold_of
from costmodel.training.tables import trusted


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured kernel, its time, and the fold of the family that it is from."""

    kernel: Kernel
    us: float
    fold: int


def fit(some: Sequence[Measured], start: ChannelCosts, predictor: Predictor) -> ChannelCosts:
    """Costs with the least mean error of the logarithm."""
    from scipy.optimize import minimize

    first = np.log(astuple(start))

    def costs_at(x: np.ndarray) -> ChannelCosts:
        return ChannelCosts(*map(float, np.exp(x)))

    def loss(x: np.ndarray) -> float:
        return statistics.mean(abs(np.log(time_of(one, costs_at(x), predictor) / one.us)) for one in some)

    return costs_at(minimize(loss, first, method="Nelder-Mead", options={"maxfev": 300}).x)


def time_of(one: Measured, costs: ChannelCosts, predictor: Predictor) -> float:
    """Predicted time of a kernel."""
    return batch_norm_us(one.kernel, costs, predictor.roofline, predictor.multiprocessors)


def error_of(some: Sequence[Measured], costs: ChannelCosts, predictor: Predictor) -> list[float]:
    """Relative error of each kernel."""
    return [abs(time_of(one, costs, predictor) / one.us - 1) for one in some]


def main() -> None:
    """Print costs and errors by kind of kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=Path, help="dataset of units (.parquet)")
    parser.add_argument("--hardware", default="nvidia-h200")
    args = parser.parse_args()
    frame, predictor = trusted(read_frame(args.units)[0]), load_profile(args.hardware).predictor
    every = [
        Measured(kernel_of(graph, runner), float(us), fold_of(family_of(str(source).partition("@")[0])))
        for graph, runner, us, source in zip(
            frame["graph"], frame["runner"], frame[DEVICE], frame["source"], strict=True
        )
    ]
    for kind, usual in BATCH_NORMS.items():
        mine = [one for one in every if one.kernel.kind == kind]
        held_out: list[float] = []
        for fold in range(FOLDS):
            rest = fit([one for one in mine if one.fold != fold], usual, predictor)
            held_out += error_of([one for one in mine if one.fold == fold], rest, predictor)
        costs = fit(mine, usual, predictor)
        print(
            f"{kind}: {costs}, mean error {statistics.mean(error_of(mine, costs, predictor)):.1%}, on families left "
            f"out {statistics.mean(held_out):.1%}, {len(mine)} kernels"
        )


if __name__ == "__main__":
    main()
