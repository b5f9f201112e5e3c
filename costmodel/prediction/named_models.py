"""Capture of a model given by name, as on the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from costmodel.capture.inputs import Inputs
from costmodel.ir import Graph

WAYS = ("run", "fx", "export", "dynamo")
"""Ways of capture: those of `costmodel.capture.frontends.WAYS`, and `dynamo`, which always checks for graph breaks."""


def capture_named(
    spec: str, request: dict[str, Any], *, way: str, check: bool, amp: str | None = None
) -> tuple[Graph, Inputs, tuple[str, ...]]:
    """Load a model on the meta device and capture it: the graph, its inputs, and warnings of changes to the model.

    Args:
        spec: model as on the command line.
        request: the other arguments of `costmodel.zoo.load`.
        way: way of capture, one of WAYS.
        check: whether Dynamo looks for graph breaks, unless the model is known to be one graph.
        amp: precision of an autocast region around the pass; None for none.

    Raises:
        UnknownModelError: unknown name; similar names are suggested.
        RequestError: an impossible size or precision, or a file or callable that is not a model.
        CaptureError: the forward pass failed.
    """
    from costmodel.capture.frontends import convert
    from costmodel.capture.with_partition import capture_with_partition
    from costmodel.zoo import load
    from costmodel.zoo.one_graph import is_known

    loaded = load(spec, **request)
    recorded = way in ("run", "dynamo")
    module = loaded.module if recorded else convert(loaded.module, loaded.inputs, way)
    real = None if spec.endswith(".pt2") else _real(spec, request)  # without the code that made it
    is_whole = way == "run" and is_known(spec)
    how: dict[str, Any] = {"real": real, "check": check or way == "dynamo", "is_whole": is_whole, "amp": amp}
    graph = capture_with_partition(module, loaded.inputs, loaded.name, **how, compiled=loaded.module)
    return graph, loaded.inputs, loaded.warnings


def _real(spec: str, request: dict[str, Any]) -> Callable[[], tuple[Any, Any]]:
    """Factory of the module and its inputs with real tensors."""

    @functools.cache
    def made() -> tuple[Any, Any]:
        import torch

        from costmodel.zoo import load_real

        found = load_real(spec, torch.device("cpu"), **request)
        return found.module, found.inputs

    return made
