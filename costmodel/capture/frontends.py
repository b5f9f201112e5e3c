"""Ways to get at what a module computes, beside running its forward pass: FX, torch.export, and Dynamo for its breaks.

Whatever the way, the graph itself is recorded by `costmodel.capture.trace` from what the way gives.
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
    """A part of a pass that torch.compile compiles by itself: calls in Dynamo's graph of it, and its first line."""

    calls: int
    source: str


@dataclass(frozen=True, slots=True)
class Converted:
    """A module to be recorded and, from Dynamo, where torch.compile would cut it into which fragments."""

    module: nn.Module
    cuts: tuple[Break, ...] = ()
    fragments: tuple[Fragment, ...] = ()


@takes_turns
def convert(module: nn.Module, inputs: Inputs, way: str) -> Converted:
    """The module as a way of capture sees it.

    Args:
        module: in evaluation mode.
        inputs: positional inputs, or a mapping of keyword inputs.
        way: a key of WAYS.

    Raises:
        CaptureError: that way does not get through the module; the message says why, in its own words.
        RequestError: there is no such way.
    """
    if way not in WAYS:
        raise RequestError(f"unknown way of capture {way!r}; choose one of {', '.join(WAYS)}")
    return WAYS[way](module, inputs)


def _as_it_is(module: nn.Module, _inputs: Inputs) -> Converted:
    return Converted(module)


def _symbolic(module: nn.Module, _inputs: Inputs) -> Converted:
    with _told("FX symbolic tracing"):
        return Converted(fx.symbolic_trace(module))


def _exported(module: nn.Module, inputs: Inputs) -> Converted:
    call = Arguments.of(inputs)
    with _told("torch.export"), torch.no_grad():
        return Converted(torch.export.export(module, call.args, call.kwargs).module())


def _with_breaks(module: nn.Module, inputs: Inputs) -> Converted:
    """The module as it is; Dynamo follows its pass, as torch.compile would, and says where it gives up."""
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
        with _told("Dynamo"), torch.no_grad():
            call.passed_to(torch._dynamo.optimize(note)(module))
    except CaptureError as error:
        if error.__cause__ is None or not lacks_data(error.__cause__):  # else recording finds the place too
            raise
    finally:
        torch._dynamo.reset()
    return Converted(module, tuple(dict.fromkeys(cuts)), tuple(fragments))


@contextlib.contextmanager
def _told(way: str) -> Iterator[None]:
    """Whatever goes wrong within it is told in one line; what torch writes and warns of besides is not."""
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
    "run": _as_it_is,
    "fx": _symbolic,
    "export": _exported,
    "dynamo": _with_breaks,
}
"""Ways of capture by name; `run` is what is done unless another is asked for."""
