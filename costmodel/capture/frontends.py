"""Capture frontends: FX, torch.export, and Dynamo for graph breaks.

Each frontend converts a module to a module; `costmodel.capture.trace` then records its graph.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from costmodel.capture.data_dependence import lacks_data, source_line_in, source_line_of
from costmodel.capture.inputs import Arguments, Inputs
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, RequestError, first_line, text_of
from costmodel.ir import Break


@dataclass(frozen=True, slots=True)
class Fragment:
    """A subgraph that torch.compile compiles by itself: number of calls in Dynamo's graph, and its first line."""

    calls: int
    source: str


@dataclass(frozen=True, slots=True)
class Converted:
    """A module to record and, from Dynamo, graph breaks and subgraphs of torch.compile."""

    module: nn.Module
    cuts: tuple[Break, ...] = ()
    fragments: tuple[Fragment, ...] = ()


@takes_turns
def convert(module: nn.Module, inputs: Inputs, way: str) -> Converted:
    """Convert a module by a frontend.

    Args:
        module: module in evaluation mode.
        inputs: positional inputs, or a mapping of keyword inputs.
        way: a key of WAYS.

    Raises:
        CaptureError: the frontend fails on the module; the message quotes its error.
        RequestError: the frontend is unknown.
    """
    if way not in WAYS:
        raise RequestError(f"unknown capture frontend {way!r}; choose one of {', '.join(WAYS)}")
    return WAYS[way](module, inputs)


def _unchanged(module: nn.Module, _inputs: Inputs) -> Converted:
    return Converted(module)


def _symbolic(module: nn.Module, _inputs: Inputs) -> Converted:
    with _one_line_errors("FX symbolic tracing"):
        return Converted(fx.symbolic_trace(module))


def _exported(module: nn.Module, inputs: Inputs) -> Converted:
    call = Arguments.of(inputs)
    with _one_line_errors("torch.export"), torch.no_grad():
        return Converted(torch.export.export(module, call.args, call.kwargs).module())


def _with_breaks(module: nn.Module, inputs: Inputs) -> Converted:
    """Keep the module, and collect Dynamo's graph breaks and subgraphs of its forward pass."""
    call = Arguments.of(inputs)
    fragments: list[Fragment] = []
    cuts: list[Break] = []

    def note(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        stacks = (node.meta["stack_trace"] for node in calls if node.meta.get("stack_trace"))
        fragments.append(Fragment(len(calls), source_line_in(next(stacks, ""))))
        reason: Any = graph.compile_subgraph_reason
        if reason.graph_break:
            cuts.append(Break("cut", first_line(reason.reason) or "unknown", "", source_line_of(reason.user_stack)))
        return graph.forward

    torch._dynamo.reset()
    try:
        with _one_line_errors("Dynamo"), torch.no_grad():
            call.passed_to(torch._dynamo.optimize(note)(module))
    except CaptureError as error:
        if error.__cause__ is None or not lacks_data(error.__cause__):  # recording then finds the place too
            raise
    finally:
        torch._dynamo.reset()
    return Converted(module, tuple(dict.fromkeys(cuts)), tuple(fragments))


@contextlib.contextmanager
def _one_line_errors(way: str) -> Iterator[None]:
    """Turn any exception into a CaptureError of one line, and suppress logs and warnings of torch."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise CaptureError(f"{way} fails: {type(error).__name__}: {first_line(text_of(error))}") from error
    finally:
        logging.disable(before)


WAYS: Mapping[str, Callable[[nn.Module, Inputs], Converted]] = {
    "run": _unchanged,
    "fx": _symbolic,
    "export": _exported,
    "dynamo": _with_breaks,
}
"""Frontends by name; `run` is the default."""
