"""A linear layer split along the batch over several workers (Dighe, tables 5.1 and 5.2)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import geometric_mean
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, timed
from study.models import Call, bound, wall
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYERS = ((1024, 512, 256), (1024, 4096, 1024))
"""Rows of the batch, inputs and outputs of a layer."""
PIECES, WORKERS = (1, 2, 64, 128), (1, 2, 4, 8)


def run(setup: Setup) -> Iterator[Point]:
    """Points: a layer and a number of workers each."""
    for layer in setup.chosen(LAYERS, LAYERS[:1]):
        for workers in setup.chosen(WORKERS, WORKERS[:2]):
            name = "x".join(map(str, layer))
            yield Point(f"{name} workers {workers}", functools.partial(_measure, setup, layer, workers))


def _measure(setup: Setup, layer: tuple[int, int, int], workers: int) -> Iterator[Row]:
    batch, inputs, outputs = layer
    x, weight, bias = torch.randn(batch, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    expected = functional.linear(x, weight, bias)
    for pieces in PIECES:
        for joined in ("copied", "in place") if pieces > 1 else ("unsplit",):
            labels = {"layer": "x".join(map(str, layer)), "workers": workers, "pieces": pieces, "result": joined}
            with _split(x, weight, bias, pieces, workers, in_place=joined == "in place") as call:
                torch.testing.assert_close(call(), expected, rtol=1e-3, atol=1e-3)
                yield timed(labels, "latency_us", wall(call, setup, "cpu"), scale=1.0)


@contextmanager
def _split(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pieces: int, workers: int, *, in_place: bool
) -> Iterator[Call]:
    """Call of the layer in pieces; the unsplit call runs on as many threads of torch's own."""
    before = torch.get_num_threads()
    torch.set_num_threads(workers if pieces == 1 else 1)
    try:
        if pieces == 1:
            yield bound(functional.linear, (x, weight, bias))
            return
        parts = x.chunk(pieces)
        with ThreadPoolExecutor(workers) as pool:
            yield bound(_in_place if in_place else _copied, (pool, parts, weight, bias))
    finally:
        torch.set_num_threads(before)


def _copied(
    pool: ThreadPoolExecutor, parts: tuple[torch.Tensor, ...], weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Results of the pieces, copied into one tensor, as in the thesis."""
    return torch.cat(list(pool.map(lambda part: functional.linear(part, weight, bias), parts)))


def _in_place(
    pool: ThreadPoolExecutor, parts: tuple[torch.Tensor, ...], weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Pieces that write into their rows of one tensor; without gradients in each thread, whose mode is its own."""
    result = torch.empty(sum(len(part) for part in parts), len(weight))
    transposed = weight.t()

    def write(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        with torch.no_grad():
            torch.addmm(bias, pair[0], transposed, out=pair[1])

    list(pool.map(write, zip(parts, result.split([len(part) for part in parts]), strict=True)))
    return result


def figure(frame: pd.DataFrame) -> Figure:
    """Time over workers for each number of pieces, a panel for each layer."""

    def draw(panel: Axes, rows: pd.DataFrame, layer: str) -> None:
        named = rows.assign(by=rows["pieces"].astype(int).astype(str) + " pieces, " + rows["result"])
        plots.lines(panel, named, "workers", "by")
        plots.finish(panel, f"linear layer {layer}", "workers", "time (µs)", log_x=True, log_y=True)

    return plots.panels(values(frame, "latency_us"), "layer", draw, 2)


def judge(frame: pd.DataFrame) -> Verdict:
    """Split layers take longer than the unsplit call on as many workers."""
    rows = values(frame, "latency_us")
    times = rows.pivot_table("value", ["layer", "workers"], ["result", "pieces"])
    whole = times["unsplit"][1]
    parts, slower = [], []
    for pieces in PIECES[1:]:
        copied = geometric_mean(times["copied"][pieces] / whole)
        written = geometric_mean(times["in place"][pieces] / whole)
        slower.append(copied > 1)
        parts.append(f"{pieces} pieces {copied:.2f} times the time, {written:.2f} written in place")
    return Verdict(f"relative to the unsplit call: {'; '.join(parts)}", all(slower))


EXPERIMENT = Experiment(
    "split-linear",
    "Dighe 2024, tables 5.1 and 5.2",
    "A linear layer split along the batch takes 2.5 to 4 times as long as unsplit, for its results are copied.",
    run,
    figure,
    judge,
    compiles=False,
)
