"""Ways to get at what a module computes, beside running its forward pass: FX, torch.export, and Dynamo for its breaks.

Whatever the way, the graph itself is recorded by `costmodel.capture` from what the way gives.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from costmodel.breaks import lacks_data, plain_name, source_line_of
from costmodel.capture import Inputs, call_of
from costmodel.errors import CaptureError, first_line
from costmodel.ir import Break

Converted = tuple[nn.Module, tuple[Break, ...]]
"""A module to be recorded, and the places where torch.compile would cut it."""


def convert(module: nn.Module, inputs: Inputs, way: str) -> Converted:
    """The module as a way of capture sees it.

    Args:
        module: in evaluation mode.
        inputs: positional inputs, or a mapping of keyword inputs.
        way: a key of WAYS.

    Raises:
        CaptureError: that way does not get through the module; the message says why, in its own words.
    """
    return WAYS[way](module, inputs)


def _as_it_is(module: nn.Module, _inputs: Inputs) -> Converted:
    return module, ()


def _symbolic(module: nn.Module, _inputs: Inputs) -> Converted:
    with _told("FX symbolic tracing"):
        return fx.symbolic_trace(module), ()


def _exported(module: nn.Module, inputs: Inputs) -> Converted:
    args, kwargs = call_of(inputs)
    with _told("torch.export"), torch.no_grad():
        return torch.export.export(module, args, kwargs).module(), ()


def _with_breaks(module: nn.Module, inputs: Inputs) -> Converted:
    """The module as it is; Dynamo follows its pass, as torch.compile would, and says where it gives up."""
    args, kwargs = call_of(inputs)
    torch._dynamo.reset()
    reasons: Sequence[Any] = ()
    try:
        with _told("Dynamo"), torch.no_grad():
            reasons = torch._dynamo.explain(module)(*args, **kwargs).break_reasons
    except CaptureError as error:
        if error.__cause__ is None or not lacks_data(error.__cause__):  # else recording finds the place too
            raise
    finally:
        torch._dynamo.reset()
    cuts = (Break("cut", plain_name(first_line(item.reason)), "", source_line_of(item.user_stack)) for item in reasons)
    return module, tuple(dict.fromkeys(cuts))


@contextlib.contextmanager
def _told(way: str) -> Iterator[None]:
    """Whatever goes wrong within it is told in one line, and torch's own log is not."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        raise CaptureError(f"{way} fails: {type(error).__name__}: {first_line(str(error))}") from error
    finally:
        logging.disable(before)


WAYS: Mapping[str, Callable[[nn.Module, Inputs], Converted]] = {
    "run": _as_it_is,
    "fx": _symbolic,
    "export": _exported,
    "dynamo": _with_breaks,
}
"""Ways of capture by name; `run` is what is done unless another is asked for."""
