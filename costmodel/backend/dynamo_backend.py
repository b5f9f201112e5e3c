"""Entry point of the backend: called by Dynamo with each graph that it captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.exc import TensorifyScalarRestartAnalysis

from costmodel.backend.compile_graph import GraphCompiler
from costmodel.backend.graph_report import EAGER, GraphReport
from costmodel.backend.options import BackendOptions
from costmodel.backend.records import Record, calling_wrapper, keep
from costmodel.errors import RequestError, own_words


def costmodel_backend(
    gm: fx.GraphModule, example_inputs: Sequence[Any], options: Any = None, mode: str | None = None
) -> Callable[..., Any]:
    """Return a callable that runs a graph the fastest way: by a plan, by Inductor or eagerly.

    Args:
        gm: graph that Dynamo captured.
        example_inputs: its arguments; parameters and buffers among them, or attributes of the graph.
        options: dict of options, see `BackendOptions`.
        mode: mode of torch.compile; refused, for a plan replaces it.

    Raises:
        RequestError: a mode, an unknown option or a wrong value of one.
        UnknownHardwareError: there is no such profile.
    """
    wanted = BackendOptions.of(options)
    if mode is not None:
        raise RequestError(f"the backend costmodel has no mode {mode!r}; leave it out")
    name = _number()
    record = Record(name)
    try:
        run, report = GraphCompiler(gm, example_inputs, wanted, name, record.note).compile()
    except TensorifyScalarRestartAnalysis:  # by which Inductor has Dynamo trace again
        raise
    except Exception as error:  # noqa: BLE001 - whatever happens, a graph runs as with backend="eager"
        run, report = gm.forward, GraphReport(name, 0, EAGER, own_words(error))
    record.compiled(report)
    keep(record, calling_wrapper())
    return run


def _number() -> str:
    """Number of the graph as Dynamo's logs have it, `0/0`."""
    found = torch._guards.CompileContext.current_compile_id()
    return "?" if found is None else str(found)
