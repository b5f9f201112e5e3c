"""The example tanh(X + Y): when recomputation saves memory, and the bidirectional analysis on it (Zheng 2023)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from costmodel.measurement.peak_memory import saved_activation_bytes
from costmodel.memory.analysis import analyze_memory
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, valued
from study.hardware import profile_name
from study.thesis_modules import SharedOperand, SingleSum

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COUNTS, WIDTH = (4, 8, 16, 32), 256
TOLERANCE = 0.02
FLOAT = 4


class Recomputed(nn.Module):
    """`SharedOperand` whose sums and tanh are computed again in the backward pass."""

    def __init__(self, original: SharedOperand) -> None:
        super().__init__()
        self.original = original

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scores of all pairs."""
        model = self.original
        keys, queries = model.matrix(x), model.vectors(y)

        def score(keys: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = model.score(torch.tanh(keys + query))
            return result

        return torch.cat([checkpoint(score, keys, queries[i : i + 1], use_reentrant=False) for i in range(model.count)])


def run(setup: Setup) -> Iterator[Point]:
    """Points: a number of vectors each."""
    for count in setup.chosen(COUNTS, COUNTS[:2]):
        yield Point(f"T = {count}", functools.partial(_measure, setup, count))


def _measure(setup: Setup, count: int) -> Iterator[Row]:
    inputs = tuple(torch.randn(count, WIDTH) for _ in range(2))
    labels = {"T": count, "N": WIDTH}
    shared, single = SharedOperand(count, WIDTH), SingleSum(WIDTH)
    for name, module in (("shared", shared), ("single", single)):
        report = analyze_memory(module, inputs, hardware=profile_name(setup), passes=("training",), check=False)
        assert report.training is not None  # it was asked for
        found = report.training.recomputation
        yield valued({**labels, "example": name}, "saved_kb", found.stashed_before / 1e3)
        yield valued({**labels, "example": name}, "saved_with_recomputation_kb", found.stashed_after / 1e3)
    labels["example"] = "shared"
    yield valued(labels, "formula_saved_kb", count**2 * WIDTH * FLOAT / 1e3)
    yield valued(labels, "formula_with_recomputation_kb", 2 * count * WIDTH * FLOAT / 1e3)
    yield valued(labels, "measured_saved_kb", saved_activation_bytes(shared, inputs) / 1e3)
    yield valued(labels, "measured_with_recomputation_kb", saved_activation_bytes(Recomputed(shared), inputs) / 1e3)


def figure(frame: pd.DataFrame) -> Figure:
    """Saved bytes over the number of vectors."""
    figure, (panel,) = plots.new_figure()
    plots.lines(panel, frame[frame["example"] == "shared"], "T", "quantity")
    plots.finish(
        panel, "T sums with one matrix", "number of vectors T", "saved activations (kB)", log_x=True, log_y=True
    )
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """T²N becomes 2TN, and a single sum is left alone."""
    rows = frame.pivot_table("value", ["example", "T"], "quantity")
    last = rows.loc["shared"].iloc[-1]
    single = rows.loc["single"].iloc[-1]
    text = (
        f"at T = {rows.loc['shared'].index[-1]} the analysis saves {last['saved_kb']:.0f} kB without and "
        f"{last['saved_with_recomputation_kb']:.0f} kB with recomputation "
        f"(formulas {last['formula_saved_kb']:.0f} and {last['formula_with_recomputation_kb']:.0f}; measured "
        f"{last['measured_saved_kb']:.0f} and {last['measured_with_recomputation_kb']:.0f}); "
        f"a single sum keeps {single['saved_with_recomputation_kb']:.0f} of {single['saved_kb']:.0f} kB"
    )
    near = all(
        abs(last[found] / last[expected] - 1) <= TOLERANCE
        for found, expected in (
            ("saved_kb", "formula_saved_kb"),
            ("saved_with_recomputation_kb", "formula_with_recomputation_kb"),
        )
    )
    return Verdict(text, bool(near and single["saved_with_recomputation_kb"] == single["saved_kb"]))


EXPERIMENT = Experiment(
    "tanh-example",
    "Zheng 2023 (slides), selective recomputation",
    "Recomputing T sums with one matrix saves 2TN instead of T²N values; recomputing a single sum saves nothing.",
    run,
    figure,
    judge,
    compiles=False,
)
