"""Capture frontends: FX and torch.export.

Each frontend converts a module to a module; `costmodel.capture.trace` then records its graph.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import fx, nn

from costmodel.capture.inputs import Arguments, Inputs
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, RequestError, first_line, text_of


@takes_turns
def convert(module: nn.Module, inputs: Inputs, way: str) -> nn.Module:
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


def _unchanged(module: nn.Module, _inputs: Inputs) -> nn.Module:
    return module


def _symbolic(module: nn.Module, _inputs: Inputs) -> nn.Module:
    with _one_line_errors("FX symbolic tracing"):
        return fx.symbolic_trace(module)


def _exported(module: nn.Module, inputs: Inputs) -> nn.Module:
    call = Arguments.of(inputs)
    with _one_line_errors("torch.export"), torch.no_grad():
        return torch.export.export(module, call.args, call.kwargs).module()


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


WAYS: Mapping[str, Callable[[nn.Module, Inputs], nn.Module]] = {
    "run": _unchanged,
    "fx": _symbolic,
    "export": _exported,
}
"""Frontends by name; `run` is the default."""
