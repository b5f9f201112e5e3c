"""Times of layers over devices and modes, and the density of their speedups (Goldfarb, figures 5.11 and 5.8)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from costmodel.measurement.layer_sequence import Layers
from costmodel.measurement.timing_methods import LayerTimers, Subject
from costmodel.measurement.validation import MODES
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, timed
from study.models import QUICK, SIX, load_model
from study.ratios import paired
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FINE = ("alexnet",)
"""Models whose layers are modules without children; of the others, blocks, each of which is compiled by itself."""
AUTOTUNED = ("alexnet",)
"""Models of the modes that time many kernels for each layer before they choose one."""
PAPERS = ("alexnet", "resnet50")
"""Models of every device and further modes in a run on a GPU, as in figure 5.11."""
ALIKE = 1.25
"""Factor between the sums over layers in two modes up to which the modes count as alike."""
LIMITS = (0.25, 4.0)
BINS = np.linspace(-2.0, 2.0, 25)


def run(setup: Setup) -> Iterator[Point]:
    """Points: a model, a place and a way each; modes that take long to compile come last."""
    points = [
        (model, place, way)
        for model in setup.chosen(SIX, QUICK)
        for place in _places(setup, model)
        for way in ("eager", *_modes(setup, model, place))
    ]
    for model, place, way in sorted(points, key=lambda point: _searches(point[2])):
        yield Point(f"{model} {place} {way}", functools.partial(_measure, setup, model, place, way))


def _searches(way: str) -> bool:
    """Whether a mode times many kernels for each layer before it chooses."""
    return way.startswith("max-autotune")


def _places(setup: Setup, model: str) -> tuple[str, ...]:
    if not setup.on_cuda:
        return ("cpu",)
    return ("cpu", "cuda") if model in PAPERS else ("cuda",)


def _modes(setup: Setup, model: str, place: str) -> tuple[str, ...]:
    if setup.quick or place == "cpu" or model not in PAPERS:
        return MODES[:1]
    return MODES if model in AUTOTUNED else MODES[:2]


def _measure(setup: Setup, model: str, place: str, way: str) -> Iterator[Row]:
    there = setup if place == "cuda" else replace(setup, device="cpu")
    module, inputs = load_model(model, there)
    layers = Layers(module, "leaf" if model in FINE and not setup.quick else "block")
    subject = Subject(layers, inputs)
    if way != "eager":
        compiled = frozenset(layers.names[: setup.chosen(None, 3)])
        subject = replace(subject, only=compiled, mode=way)
    with _library_convolutions():
        found = LayerTimers(setup.least).measure(subject)
    for number, (name, us) in enumerate(found.layers.items()):
        if setup.quick and way != "eager" and name not in layers.names[:3]:
            continue
        labels = {"model": model, "place": place, "way": way, "number": number, "layer": name}
        yield timed(labels, "time_us", us, scale=1.0)


def _library_convolutions() -> AbstractContextManager[object]:
    """Context in which no Triton template of a convolution is tried: on an H200 that takes two minutes a layer."""
    from torch._inductor import config

    patch: AbstractContextManager[object] = config.patch(max_autotune_conv_backends="ATEN")
    return patch


def figure(frame: pd.DataFrame) -> Figure:
    """Times of the layers in execution order, and the density of speedups, two panels a model."""
    rows = values(frame, "time_us").assign(by=frame["place"] + " " + frame["way"])
    models = list(dict.fromkeys(rows["model"]))
    figure, axes = plots.new_figure(2 * len(models), 2)
    for model, left, right in zip(models, axes[::2], axes[1::2], strict=True):
        found = rows[rows["model"] == model]
        for way, times in found.groupby("by", sort=False):
            left.plot(times["number"], times["value"], lw=0.8, label=str(way))
            left.fill_between(times["number"], times["low"], times["high"], alpha=0.2)
        plots.finish(left, f"{model}, layer by layer", "layer, in execution order", "time (µs)", log_y=True)
        _density(right, found, model)
    return figure


def _density(panel: Axes, found: pd.DataFrame, model: str) -> None:
    for place, rows in found.groupby("place", sort=False):
        speedup = paired(rows, "time_us", ["layer"], "way", "eager", "default")["speedup"]
        if len(speedup):
            logs = np.log2(speedup.clip(*LIMITS))
            panel.hist(logs, bins=list(BINS), density=True, histtype="step", label=str(place))
    panel.axvline(0.0, color="red", lw=0.8, ls="--")
    plots.finish(panel, f"{model}, density", "speedup of a layer, eager over compiled (log2)", "density")


def judge(frame: pd.DataFrame) -> Verdict:
    """Every model has layers that compiling speeds up and layers that it slows down; the modes are alike."""
    place = "cuda" if "cuda" in set(frame["place"]) else "cpu"
    here = frame[frame["place"] == place]
    shares = {}
    for model, rows in here.groupby("model", sort=False):
        speedup = paired(rows, "time_us", ["layer"], "way", "eager", "default")["speedup"]
        shares[str(model)] = float((speedup > 1).mean())
    text = f"share of layers that gain on {place}: " + ", ".join(f"{model} {s:.0%}" for model, s in shares.items())
    totals = values(here, "time_us").groupby(["model", "way"])["value"].sum().unstack()
    alike = True
    for mode in MODES[1:]:
        if mode in totals and "default" in totals:
            ratio = (totals[mode] / totals["default"]).median()
            if not math.isnan(ratio):
                text += f"; {mode} takes {ratio:.2f} times as long as default"
                alike = alike and bool(1 / ALIKE < ratio < ALIKE)
    return Verdict(text, alike and all(0 < share < 1 for share in shares.values()) if shares else None)


EXPERIMENT = Experiment(
    "layer-times",
    "Goldfarb 2024, figures 5.8 and 5.11, appendix 2 and 5 to 10",
    "Every model has layers that compiling speeds up and layers that it slows down; the compile mode does not matter.",
    run,
    figure,
    judge,
)
