"""Single convolutions over kernel size, stride and padding, with and without host time (Goldfarb, figure 5.3)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from statistics import geometric_mean
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

KERNELS, STRIDES, PADDINGS = (1, 3, 5), (1, 2), (1, 2, 3)
CHANNELS, PIXELS, BATCH = 64, 56, 32
CASE = ["kernel", "stride", "padding"]


def run(setup: Setup) -> Iterator[Point]:
    """Points: a convolution each."""
    cases = itertools.product(KERNELS, setup.chosen(STRIDES, (1,)), setup.chosen(PADDINGS, (1,)))
    for kernel, stride, padding in cases:
        name = f"kernel {kernel} stride {stride} padding {padding}"
        yield Point(name, functools.partial(_measure, setup, kernel, stride, padding))


def _measure(setup: Setup, kernel: int, stride: int, padding: int) -> Iterator[Row]:
    channels, pixels, batch = setup.chosen((CHANNELS, PIXELS, BATCH), (16, 28, 1))
    convolution = nn.Conv2d(channels, channels, kernel, stride, padding).to(setup.device).eval()
    image = torch.randn(batch, channels, pixels, pixels, device=setup.device)
    for way in ("eager", "compiled"):
        labels = {"kernel": kernel, "stride": stride, "padding": padding, "way": way}
        call = bound(convolution if way == "eager" else compiled(convolution), (image,))
        first = first_call_s(call, setup.device)
        if way == "compiled":
            yield valued(labels, "compile_s", first)
        yield timed(labels, "latency_ms", wall(call, setup))
        if setup.on_cuda:
            yield timed(labels, "device_ms", without_host(call, setup))


def figure(frame: pd.DataFrame) -> Figure:
    """Speedup of each convolution over kernel size, with host time and without."""
    kinds = [kind for kind in ("latency_ms", "device_ms") if len(values(frame, kind))]
    figure, axes = plots.new_figure(len(kinds), 2)
    for panel, kind in zip(axes, kinds, strict=True):
        found = paired(frame, kind, CASE, "way", "eager", "compiled").rename(columns={"speedup": "value"})
        spread = found.groupby("kernel")["value"].quantile([0.25, 0.5, 0.75]).unstack()
        plots.lines(
            panel,
            spread.reset_index()
            .rename(columns={0.25: "low", 0.5: "value", 0.75: "high"})
            .assign(by="median, quartiles"),
            "kernel",
            "by",
        )
        panel.scatter(found["kernel"], found["value"], s=10, alpha=0.6)
        panel.axhline(1.0, color="red", lw=0.8, ls="--")
        title = "host time included" if kind == "latency_ms" else "device time alone"
        plots.finish(panel, title, "kernel size (pixels)", "speedup, eager over compiled", log_y=True)
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Every kernel size loses, and 1x1 loses least."""
    by_kernel = _by_kernel(frame, "latency_ms")
    text = "speedup with host time " + ", ".join(f"{kernel}x{kernel} {gain:.2f}" for kernel, gain in by_kernel.items())
    if len(values(frame, "device_ms")):
        alone = _by_kernel(frame, "device_ms")
        text += "; without it " + ", ".join(f"{kernel}x{kernel} {gain:.2f}" for kernel, gain in alone.items())
    loses = all(gain < 1.0 for gain in by_kernel.values())
    return Verdict(text, loses and max(by_kernel, key=by_kernel.__getitem__) == 1)


def _by_kernel(frame: pd.DataFrame, quantity: str) -> dict[int, float]:
    found = paired(frame, quantity, CASE, "way", "eager", "compiled")
    return {int(kernel): geometric_mean(rows["speedup"]) for kernel, rows in found.groupby("kernel")}


EXPERIMENT = Experiment(
    "conv-ablation",
    "Goldfarb 2024, figure 5.3",
    "Every isolated convolution is slower compiled; only the 1x1 kernel comes near eager speed.",
    run,
    figure,
    judge,
)
