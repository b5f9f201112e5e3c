"""Run a graph of the IR with torch: real tensors as inputs, ATen calls or Inductor for operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from collectors.processes.argument_values import chosen_values
from costmodel.execution.fx_module import build_module
from costmodel.execution.inductor_compile import compile_module
from costmodel.ir import Graph, TensorType, Value
from costmodel.kernels.kernel import TF32_RUNNER

COLD_BYTES = 64 << 20
"""Total size up to which copies of a kernel's parameters are rotated, so that they come from memory as in a model.

On a CPU inputs are rotated too: alone in a loop, a kernel would find them in the innermost cache, while in a model
other kernels have displaced them. Measured so, the kernels of a model add up to its time within a few percent.
"""
MOST_COPIES = 40


def make_tensor(kind: TensorType, device: str) -> torch.Tensor:
    """Tensor of random values of a type, positive and near one, so that no operator meets a pole."""
    dtype = getattr(torch, kind.dtype)
    if dtype.is_complex:
        tensor = torch.rand(kind.shape, dtype=dtype, device=device)
    elif dtype is torch.bool:  # a mask of zeros would leave sums of which only rounding errors remain
        tensor = torch.rand(kind.shape, device=device) < 0.5
    elif not dtype.is_floating_point:
        tensor = torch.zeros(kind.shape, dtype=dtype, device=device)
    else:
        tensor = torch.rand(kind.shape, dtype=torch.float32, device=device).add_(0.5).to(dtype)
    if kind.layout == "nhwc" and len(kind.shape) == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def argument_sets(graph: Graph, device: str) -> list[list[torch.Tensor]]:
    """Arguments for consecutive calls: parameters in enough copies to be cold in the cache; on a CPU inputs too."""
    roles = ("param", "input") if device == "cpu" else ("param",)
    size = sum(value.type.nbytes for value in graph.values if value.role in roles)
    copies = 1 if size == 0 else max(1, min(MOST_COPIES, math.ceil(COLD_BYTES / size)))
    first = arguments_of(graph, device)
    rotated = [value.role in roles for value in graph.values]
    pairs = list(zip(first, rotated, strict=True))
    return [first, *([tensor.clone() if again else tensor for tensor, again in pairs] for _ in range(copies - 1))]


def arguments_of(graph: Graph, device: str) -> list[torch.Tensor]:
    """Arguments of a call: random values, where they matter such as a model would have."""
    chosen = chosen_values(graph, device)
    return [chosen[value.name] if value.name in chosen else _make(value, device) for value in graph.values]


def _make(value: Value, device: str) -> torch.Tensor:
    tensor = make_tensor(value.type, device)
    return tensor if value.role == "input" else _scaled(tensor, value.type)


def _scaled(tensor: torch.Tensor, kind: TensorType) -> torch.Tensor:
    """Scale weights so that sums stay near one, half of them negative."""
    if not tensor.is_floating_point() or len(kind.shape) < 2:
        return tensor
    return tensor.sub_(1.0).mul_(2 / math.sqrt(max(1, math.prod(kind.shape[1:]))))


def callables(
    graph: Graph, runner: str, device: str
) -> tuple[list[Callable[[], Any]], Callable[..., Any], list[torch.Tensor]]:
    """Calls that run the graph on rotating parameters; also the plain module and one set of arguments.

    Args:
        graph: the graph.
        runner: `aten` or `aten_tf32` for eager execution, `inductor` for compiled, `autotune` for compiled with
            max-autotune.
        device: `cpu` or `cuda`.
    """
    module = build_module(graph)
    sets = argument_sets(graph, device)
    function: Callable[..., Any] = module
    if runner not in ("aten", TF32_RUNNER):
        function = compile_module(module, sets[0], templates=runner == "autotune")
    return [_bind(function, arguments) for arguments in sets], module, sets[0]


def _bind(function: Callable[..., Any], arguments: list[torch.Tensor]) -> Callable[[], Any]:
    return lambda: function(*arguments)


def relative_error(got: Any, expected: Any) -> float:
    """Largest ||got - expected|| / ||expected|| over the tensors of two results; NaN if either contains NaN."""
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
        return [torch.view_as_real(result) if result.is_complex() else result]
    if isinstance(result, Mapping):
        result = list(result.values())
    return [tensor for item in result for tensor in _tensors(item)] if isinstance(result, (list, tuple)) else []
