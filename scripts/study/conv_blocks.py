"""Blocks of 1 to N convolutions, eager and compiled (Goldfarb, figure 5.5)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, timed, valued
from study.models import bound, compiled, first_call_s, wall, without_host
from study.ratios import paired
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LENGTHS = (1, 2, 4, 8, 16, 32)
CHANNELS, PIXELS, BATCH = 64, 56, 8
PUBLISHED, TOLERANCE = 0.95, 0.1


class Chain(nn.Module):
    """Convolutions in series, as in a network."""

    def __init__(self, length: int, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(length)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply one after the other."""
        result: torch.Tensor = self.layers(x)
        return result


class Repeated(nn.Module):
    """The same convolution of the same input, again and again, as listing 4.1 prints it."""

    def __init__(self, length: int, channels: int) -> None:
        super().__init__()
        self.length = length
        self.layer = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last result; the others are unused."""
        result = x
        for _ in range(self.length):
            result = self.layer(x)
        return result


KINDS = {"in series": Chain, "as listed": Repeated}


def run(setup: Setup) -> Iterator[Point]:
    """Points: a kind of block and a number of convolutions each."""
    for kind in KINDS:
        for length in setup.chosen(LENGTHS, LENGTHS[:2]):
            yield Point(f"{kind} {length}", functools.partial(_measure, setup, kind, length))


def _measure(setup: Setup, kind: str, length: int) -> Iterator[Row]:
    channels, pixels, batch = setup.chosen((CHANNELS, PIXELS, BATCH), (16, 28, 1))
    module = KINDS[kind](length, channels).to(setup.device).eval()
    image = torch.randn(batch, channels, pixels, pixels, device=setup.device)
    for way in ("eager", "compiled"):
        labels = {"kind": kind, "length": length, "way": way}
        call = bound(module if way == "eager" else compiled(module), (image,))
        first = first_call_s(call, setup.device)
        if way == "compiled":
            yield valued(labels, "compile_s", first)
        yield timed(labels, "latency_ms", wall(call, setup))
        if setup.on_cuda:
            yield timed(labels, "device_ms", without_host(call, setup))


def figure(frame: pd.DataFrame) -> Figure:
    """Speedup over the number of convolutions."""
    kinds = [kind for kind in ("latency_ms", "device_ms") if len(values(frame, kind))]
    figure, axes = plots.new_figure(len(kinds), 2)
    for panel, kind in zip(axes, kinds, strict=True):
        found = paired(frame, kind, ["kind", "length"], "way", "eager", "compiled").rename(columns={"speedup": "value"})
        plots.lines(panel, found.assign(low=None, high=None), "length", "kind")
        panel.axhline(1.0, color="red", lw=0.8, ls="--")
        title = "host time included" if kind == "latency_ms" else "device time alone"
        plots.finish(panel, title, "convolutions in a block", "speedup, eager over compiled", log_x=True)
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Speedup in series rises with the number of convolutions, towards PUBLISHED."""
    found = paired(frame, "latency_ms", ["kind", "length"], "way", "eager", "compiled")
    chain = found[found["kind"] == "in series"].sort_values("length")["speedup"]
    first, last = chain.iloc[0], chain.iloc[-1]
    listed = found[found["kind"] == "as listed"].sort_values("length")["speedup"]
    text = f"speedup of one {first:.2f}, of the longest series {last:.2f}"
    if len(listed):
        text += f"; as listed {listed.iloc[-1]:.2f}, for the compiler runs the repeated convolution once"
    return Verdict(text, bool(last > first and abs(last - PUBLISHED) <= TOLERANCE))


EXPERIMENT = Experiment(
    "conv-blocks",
    "Goldfarb 2024, figure 5.5",
    "In series, compiled convolutions catch up with eager ones: the speedup rises to about 0.95.",
    run,
    figure,
    judge,
)
