"""Runs a graph of the IR with torch: real tensors for its inputs, ATen calls or Inductor for its operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from costmodel.execution.fx_module import build_module
from costmodel.execution.inductor_compile import compile_module
from costmodel.ir import Graph, TensorType, Value

COLD_BYTES = 64 << 20
"""Copies of a kernel's parameters are rotated up to this size, so that they come from memory as they do in a model.

On a CPU inputs are rotated too: alone in a loop, a kernel would find in the innermost cache what in a model the kernels
between have displaced. So measured, the kernels of a model add up to its time within a few percent.
"""
MOST_COPIES = 40


def make_tensor(kind: TensorType, device: str) -> torch.Tensor:
    """Random values of a type; positive and near one, so that no operator meets a pole."""
    dtype = getattr(torch, kind.dtype)
    if not dtype.is_floating_point:
        tensor = torch.zeros(kind.shape, dtype=dtype, device=device)
    else:
        tensor = torch.rand(kind.shape, dtype=torch.float32, device=device).add_(0.5).to(dtype)
    if kind.layout == "nhwc" and len(kind.shape) == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def argument_sets(graph: Graph, device: str) -> list[list[torch.Tensor]]:
    """Arguments for consecutive calls: parameters in as many copies as make them cold; on a CPU inputs too."""
    roles = ("param", "input") if device == "cpu" else ("param",)
    size = sum(value.type.nbytes for value in graph.values if value.role in roles)
    copies = 1 if size == 0 else max(1, min(MOST_COPIES, math.ceil(COLD_BYTES / size)))
    first = [_make(value, device) for value in graph.values]
    rotated = [value.role in roles for value in graph.values]
    pairs = list(zip(first, rotated, strict=True))
    return [first, *([tensor.clone() if again else tensor for tensor, again in pairs] for _ in range(copies - 1))]


def _make(value: Value, device: str) -> torch.Tensor:
    tensor = make_tensor(value.type, device)
    return tensor if value.role == "input" else _scaled(tensor, value.type)


def _scaled(tensor: torch.Tensor, kind: TensorType) -> torch.Tensor:
    """Weights of the size that keeps sums near one, half of them negative."""
    if not tensor.is_floating_point() or len(kind.shape) < 2:
        return tensor
    return tensor.sub_(1.0).mul_(2 / math.sqrt(max(1, math.prod(kind.shape[1:]))))


def callables(
    graph: Graph, runner: str, device: str
) -> tuple[list[Callable[[], Any]], Callable[..., Any], list[torch.Tensor]]:
    """Calls that run the graph on rotating parameters; also the plain module and one set of arguments.

    Args:
        graph: what is computed.
        runner: `aten`, or `inductor` for what that makes of it, or `autotune` for the best that it can make of it.
        device: where.
    """
    module = build_module(graph)
    sets = argument_sets(graph, device)
    function: Callable[..., Any] = module
    if runner != "aten":
        function = compile_module(module, sets[0], templates=runner == "autotune")
    return [_bind(function, arguments) for arguments in sets], module, sets[0]


def _bind(function: Callable[..., Any], arguments: list[torch.Tensor]) -> Callable[[], Any]:
    return lambda: function(*arguments)


def relative_error(got: Any, expected: Any) -> float:
    """Largest ||got - expected|| / ||expected|| over the tensors of two results; nan if either has one."""
    worst = 0.0
    for left, right in zip(_tensors(got), _tensors(expected), strict=True):
        if not right.is_floating_point() or right.numel() == 0:
            continue
        scale = right.float().norm().item()
        error = (left.float() - right.float()).norm().item()
        worst = max(worst, error / scale if scale else error)
        if math.isnan(error) or math.isnan(scale):
            return math.nan
    return worst


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, Mapping):
        result = list(result.values())
    return [tensor for item in result for tensor in _tensors(item)] if isinstance(result, (list, tuple)) else []
