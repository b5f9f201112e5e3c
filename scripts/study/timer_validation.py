"""Timing methods beside each other on unchanged and instrumented models (Goldfarb, figure 5.7 and table 4.1)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from costmodel.errors import MeasurementError
from costmodel.measurement.layer_sequence import Layers
from costmodel.measurement.timing_methods import (
    PROFILED,
    EndToEnd,
    LayerSubtraction,
    LayerTimers,
    ProfilerSum,
    Subject,
    TimingMethod,
)
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, noted, timed
from study.models import QUICK, SIX, load_model
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CODE = {"pure": (False, False), "sync": (False, True), "timed": (True, False), "timed+sync": (True, True)}
"""Variant of the code -> whether it has timers between layers, and whether the host waits for the device there."""
SUBTRACTED = ("alexnet", "squeezenet1_1")
"""Models that are compiled anew for each of their layers."""
LITTLE, TWOFOLD = 1.1, 1.5
"""Factors up to which an effect counts as minimal, and from which as a twofold slowdown."""


def run(setup: Setup) -> Iterator[Point]:
    """Points: a model, eager or compiled, and a variant of its code each; those with the profiler come last.

    On a GPU the profiler stays attached to a process and slows its launches.
    """
    for model in setup.chosen(SUBTRACTED, QUICK):
        yield Point(f"{model} eager subtraction", functools.partial(_subtract, setup, model))
    for profiled in (False, True):
        for model in setup.chosen(SIX, QUICK):
            for way in ("eager", "compiled"):
                for code in CODE:
                    if setup.quick and way == "compiled" and code != "pure":
                        continue  # each layer would be compiled by itself
                    name = f"{model} {way} {code}{', profiled' if profiled else ''}"
                    yield Point(name, functools.partial(_measure, setup, model, way, code, profiled))


def methods(setup: Setup, code: str, *, profiled: bool) -> Iterator[TimingMethod]:
    """Methods for a variant of the code, without torch's profiler or with it."""
    timers, waits = CODE[code]
    yield EndToEnd(setup.seconds, setup.least, timers, waits, profiled)
    if timers:
        yield LayerTimers(setup.least, waits, profiled)
    if profiled:
        for quantity in PROFILED:
            yield ProfilerSum(quantity, setup.chosen(5, 2), timers, waits)


def _measure(setup: Setup, model: str, way: str, code: str, profiled: bool) -> Iterator[Row]:
    module, inputs = load_model(model, setup)
    subject = Subject(Layers(module, "block"), inputs, compiled=way == "compiled")
    for method in methods(setup, code, profiled=profiled):
        labels = {"model": model, "way": way, "code": code, "method": method.name, "profiled": profiled}
        try:
            found = method.measure(subject)
        except MeasurementError as error:
            yield noted(labels, str(error))
        else:
            yield timed(labels, "time_ms", found.total)


def _subtract(setup: Setup, model: str) -> Iterator[Row]:
    module, inputs = load_model(model, setup)
    found = LayerSubtraction(setup.chosen(5, 2), setup.seconds / 4).measure(Subject(Layers(module, "block"), inputs))
    labels = {"model": model, "way": "eager", "code": "pure", "method": "layer subtraction", "profiled": False}
    yield timed(labels, "time_ms", found.total)


def figure(frame: pd.DataFrame) -> Figure:
    """Times by each method, a panel for each model."""
    rows = values(frame, "time_ms")
    profiled = rows["profiled"].astype(str).eq("True").map({True: ", profiled", False: ""})
    named = rows.assign(by=rows["method"] + profiled.where(~rows["method"].str.startswith("profiler"), ""))
    named = named.assign(variant=named["way"] + " " + named["code"])

    def draw(panel: Axes, found: pd.DataFrame, model: str) -> None:
        plots.bars(panel, found, "variant", "by")
        plots.finish(panel, model, "configuration", "time of a pass (ms)")

    return plots.panels(named, "model", draw, 2)


def judge(frame: pd.DataFrame) -> Verdict:
    """The profiler doubles the time; timers or synchronisation alone hardly change it; eager models, end to end."""
    rows = values(frame, "time_ms")
    rows = rows[(rows["method"] == "end to end") & (rows["way"] == "eager")]
    factors = {
        "the profiler": _factor(rows, ("pure", True)),
        "synchronisation": _factor(rows, ("sync", False)),
        "timers": _factor(rows, ("timed", False)),
        "both": _factor(rows, ("timed+sync", False)),
    }
    text = "median time relative to unchanged code: " + ", ".join(f"{name} {f:.2f}" for name, f in factors.items())
    alone = factors["synchronisation"] <= LITTLE and factors["timers"] <= LITTLE
    return Verdict(text, bool(factors["the profiler"] >= TWOFOLD and alone))


def _factor(rows: pd.DataFrame, other: tuple[str, bool]) -> float:
    """Median over models of the time of a variant relative to unchanged, unprofiled code."""
    kinds = rows.assign(kind=rows["code"] + rows["profiled"].astype(str)).pivot_table("value", "model", "kind")
    return float((kinds[f"{other[0]}{other[1]}"] / kinds["pureFalse"]).median())


EXPERIMENT = Experiment(
    "timer-validation",
    "Goldfarb 2024, figure 5.7, table 4.1, appendix 11 to 16",
    "The profiler doubles the time of a pass; timers alone and synchronisation alone hardly change it.",
    run,
    figure,
    judge,
)
