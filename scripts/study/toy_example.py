"""The slides' toy example of a graph break, and their function that is traced again (Jain)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from costmodel.capture.with_partition import capture_with_partition, given_call
from costmodel.prediction.explain import explain
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import load_profile
from study import plots
from study.dynamo_counts import compilations, explained
from study.experiment import Experiment, Point, Row, Setup, Verdict, valued
from study.hardware import profile_name
from study.table import values
from study.thesis_modules import Branching, retraced

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NUMBERS = (2, 3, 6, -3)
EXPECTED = {2: 1, 3: 0, 6: 0, -3: 1}
"""Graphs that each call compiles according to the slide."""


def run(setup: Setup) -> Iterator[Point]:
    """Points: the graph break, and the retraced function."""
    yield Point("graph break", functools.partial(_break, setup))
    yield Point("retracing", _retracing)


def _break(setup: Setup) -> Iterator[Row]:
    inputs = (torch.randn(10), -torch.rand(10))
    counts = explained(Branching(), *inputs)
    labels = {"example": "graph break"}
    yield valued(labels, "graphs", counts.graphs)
    yield valued(labels, "breaks", counts.breaks)
    profile = load_profile(profile_name(setup))
    module = Branching().eval()
    graph = capture_with_partition(module, inputs, "toy", check=True, real=given_call(module, inputs))
    report = predict_graph(graph, profile)
    yield valued(labels, "predicted_graphs", report.graphs.count)
    yield valued(labels, "predicted_breaks", len(report.graphs.breaks))
    reasons = explain(graph, profile, report)
    yield valued(labels, "breaks_explained", sum(reason.topic == "break" for reason in reasons))


def _retracing() -> Iterator[Row]:
    x = torch.randn(200)
    for number, graphs in zip(NUMBERS, compilations(retraced, [((x, n), {}) for n in NUMBERS]), strict=True):
        yield valued({"example": "retracing", "call": number}, "compiled_graphs", graphs)
        yield valued({"example": "retracing", "call": number}, "published_graphs", EXPECTED[number])


def figure(frame: pd.DataFrame) -> Figure:
    """Graphs of the toy example, and graphs compiled by each call."""
    figure, (left, right) = plots.new_figure(2, 2)
    toy = frame[frame["example"] == "graph break"].assign(by="count")
    plots.bars(left, toy, "quantity", "by")
    plots.finish(left, "toy example", "", "count")
    plots.bars(right, frame[frame["example"] == "retracing"], "call", "quantity")
    plots.finish(right, "calls in turn", "value of the number argument", "graphs compiled")
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """The toy example breaks once, and only the first and the last call compile."""
    toy = frame[frame["example"] == "graph break"].set_index("quantity")["value"]
    calls = frame[frame["example"] == "retracing"]
    made = values(calls, "compiled_graphs").set_index("call")["value"]
    text = (
        f"the toy example makes {toy['graphs']:.0f} graphs ({toy['predicted_graphs']:.0f} predicted, and "
        f"{toy.get('breaks_explained', 0):.0f} break named by --explain); "
        f"graphs compiled by n = " + ", ".join(f"{int(n)}: {int(count)}" for n, count in made.items())
    )
    if made.get(3, 0):
        text += "; the second number compiles again, as Dynamo then makes it dynamic"
    same = all(made[n] == EXPECTED[n] for n in NUMBERS)
    return Verdict(text, bool(toy["breaks"] >= 1 and toy["graphs"] == toy["predicted_graphs"] and same))


EXPERIMENT = Experiment(
    "toy-example",
    "Jain (slides), toy example and retracing",
    "A branch on a tensor's values breaks the graph; a number argument compiles again only when its branch changes.",
    run,
    figure,
    judge,
    compiles=False,
)
