"""Graphs of the thesis as StreamIt text and drawings, compared with the modules (Dighe, figures 4.5 to 4.22)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from costmodel.capture.trace import capture
from costmodel.drawing import to_svg
from costmodel.files import write_whole
from costmodel.prediction.layers import find_units
from costmodel.streamit import filters, lower, rates, streamit
from costmodel.streamit.replicate import join_cost
from costmodel.streamit.run_with_torch import run_graph
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, valued
from study.table import values
from study.thesis_modules import STREAMS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

DIRECTORY = "streamit"


def run(setup: Setup) -> Iterator[Point]:
    """Points: an example each."""
    for name in STREAMS:
        yield Point(name, functools.partial(_measure, setup, name))


def _measure(setup: Setup, name: str) -> Iterator[Row]:
    make, shapes = STREAMS[name]
    module = make().eval()
    inputs = tuple(torch.randn(shape) for shape in shapes)
    graph = capture(module, inputs, name)
    program = lower(graph)
    rate, cost = rates(program), join_cost(graph)
    directory = setup.drawings / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    units = find_units(graph)
    write_whole(directory / f"{name}.txt", streamit(program))
    write_whole(directory / f"{name}.svg", to_svg(graph, units, [None] * len(units), name))
    labels = {"example": name}
    yield valued(labels, "filters", len(filters(program)))
    yield valued(labels, "pop", rate.pop)
    yield valued(labels, "push", rate.push)
    yield valued(labels, "replicated_operators", cost.operators)
    yield valued(labels, "carried_tensors", cost.carried)
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    found = run_graph(graph, {key: tensor.detach() for key, tensor in state.items()}, inputs)
    with torch.no_grad():
        expected = module(*inputs)
    pairs = zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True)
    yield valued(labels, "equal", float(all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)))


def figure(frame: pd.DataFrame) -> Figure:
    """Filters of each program, and the cost of results that several paths share."""
    figure, (panel,) = plots.new_figure()
    rows = frame[frame["quantity"].isin(["filters", "replicated_operators", "carried_tensors"])]
    plots.bars(panel, rows.assign(low=None, high=None), "example", "quantity")
    plots.finish(panel, "stream programs", "example", "number")
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Every example becomes a program that computes the same; only the fused one has a result that paths share."""
    equal = values(frame, "equal").set_index("example")["value"]
    copies = values(frame, "replicated_operators").set_index("example")["value"]
    carried = values(frame, "carried_tensors").set_index("example")["value"]
    shared = [name for name in copies.index if copies[name]]
    text = f"{int(equal.sum())} of {len(equal)} programs compute what the module computes; replication is needed for "
    text += f"{', '.join(shared) or 'none'}"
    if "fused" in carried:
        text += f", or {carried['fused']:.0f} tensors carried past operators instead, without computing twice"
    return Verdict(text, bool(equal.all() and shared == ["fused"]))


EXPERIMENT = Experiment(
    "streamit-programs",
    "Dighe 2024, figures 4.5 to 4.22",
    "PyTorch graphs become StreamIt programs; a result shared by two joins needs its operators twice.",
    run,
    figure,
    judge,
    compiles=False,
    measures=False,
)
