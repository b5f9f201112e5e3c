"""Three generations of capture on a model with data-dependent control flow (Zheng 2023)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from costmodel.capture.frontends import convert
from costmodel.errors import own_words
from study import plots
from study.dynamo_counts import explained
from study.experiment import Experiment, Point, Row, Setup, Verdict, noted, valued
from study.table import values
from study.thesis_modules import Branching

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Inputs = tuple[torch.Tensor, torch.Tensor]
Captured = tuple[Callable[..., Any], int]
"""Callable, and number of operators that were captured."""


def script(module: nn.Module, _inputs: Inputs) -> Captured:
    """Compile the source of the module as TorchScript."""
    found = torch.jit.script(module)
    return found, len(list(found.graph.nodes()))


def trace(module: nn.Module, inputs: Inputs) -> Captured:
    """Record the operators of one run as TorchScript."""
    found = torch.jit.trace(module, inputs, check_trace=False)  # type: ignore[no-untyped-call]
    return found, len(list(found.graph.nodes()))


def symbolic(module: nn.Module, inputs: Inputs) -> Captured:
    """Trace with symbolic values, by torch.fx."""
    found = convert(module, inputs, "fx")
    return found, _operators(found)


def exported(module: nn.Module, inputs: Inputs) -> Captured:
    """Trace the whole program, by torch.export."""
    found = convert(module, inputs, "export")
    return found, _operators(found)


def dynamo(module: nn.Module, inputs: Inputs) -> Captured:
    """Trace parts of the bytecode, by torch.compile with a backend that runs them as they are."""
    torch._dynamo.reset()
    operators = 0

    def backend(graph: fx.GraphModule, _examples: Any) -> Callable[..., Any]:
        nonlocal operators
        operators += _operators(graph)
        return graph.forward

    found = torch.compile(module, backend=backend)
    found(*inputs)
    return found, operators


def _operators(found: nn.Module) -> int:
    return sum(node.op.startswith("call") for node in found.graph.nodes) if isinstance(found, fx.GraphModule) else 0


WAYS: Mapping[str, tuple[str, Callable[[nn.Module, Inputs], Captured]]] = {
    "jit.script": ("first", script),
    "jit.trace": ("first", trace),
    "fx": ("second", symbolic),
    "export": ("third", exported),
    "Dynamo": ("third", dynamo),
}
"""Way of capture -> its generation, and how it captures."""


def run(_setup: Setup) -> Iterator[Point]:
    """Points: a way of capture each."""
    for way in WAYS:
        yield Point(way, functools.partial(_measure, way))


def _measure(way: str) -> Iterator[Row]:
    generation, capture = WAYS[way]
    labels = {"way": way, "generation": generation}
    module = Branching().eval()
    a = torch.randn(10)
    positive, negative = torch.rand(10), -torch.rand(10)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecations, and the tracer's warning about branches
            found, operators = capture(module, (a, positive))
            yield valued(labels, "captured", 1)
            yield valued(labels, "operators", operators)
            for name, b in (("same_branch", positive), ("other_branch", negative)):
                yield valued(labels, f"right_in_{name}", float(torch.allclose(found(a, b), module(a, b))))
    except Exception as error:  # noqa: BLE001 - each way has errors of its own
        yield valued(labels, "captured", 0)
        yield noted(labels, own_words(error)[:200])
    if way == "Dynamo":
        yield valued(labels, "graphs", explained(module, a, positive).graphs)


def figure(frame: pd.DataFrame) -> Figure:
    """Whether each way captures the model, and whether the result is right in both branches."""
    figure, (panel,) = plots.new_figure()
    rows = frame[frame["quantity"].isin(["captured", "right_in_same_branch", "right_in_other_branch"])]
    plots.bars(panel, rows.assign(low=None, high=None), "way", "quantity")
    plots.finish(panel, "a branch on the values of a tensor", "way of capture", "1: yes, 0: no")
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Tracing is wrong in the other branch, FX fails, Dynamo captures parts and is right; scripting is right."""
    captured = values(frame, "captured").set_index("way")["value"]
    right = values(frame, "right_in_other_branch").set_index("way")["value"]
    words = {
        way: "fails"
        if not captured[way]
        else "right in both branches"
        if right.get(way, 0)
        else "wrong in the other branch"
        for way in captured.index
    }
    expected = {"jit.script": "right in both branches", "jit.trace": "wrong in the other branch", "fx": "fails"}
    expected["Dynamo"] = "right in both branches"
    text = ", ".join(f"{way} {word}" for way, word in words.items())
    graphs = values(frame, "graphs")["value"]
    return Verdict(
        f"{text}; Dynamo makes {graphs.iloc[0]:.0f} graphs" if len(graphs) else text,
        all(words.get(way) == word for way, word in expected.items()),
    )


EXPERIMENT = Experiment(
    "captures",
    "Zheng 2023 (slides), evolution of PyTorch compilers",
    "Tracing specialises to one branch, FX cannot follow it, and Dynamo captures the parts around it.",
    run,
    figure,
    judge,
    compiles=False,
)
