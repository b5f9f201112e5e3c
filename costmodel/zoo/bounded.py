"""Bounds for exported programs: sizes within 64 bits, and constants without data."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx
from torch.export import ExportedProgram

LARGEST = 2**63
"""Sizes are 64-bit integers."""
MOST_SHIFT = 64


def bound(program: ExportedProgram) -> None:
    """Make an exported program compute sizes within 64 bits, and its constants without data."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                _bound_node(node)
            module.recompile()


def _bound_node(node: fx.Node) -> None:
    if node.op == "call_function" and node.target in _BOUNDED:
        node.target = _BOUNDED[node.target]
    elif isinstance(node.target, torch._ops.OpOverload) and _is_factory(node.target):
        node.kwargs = {**node.kwargs, "device": torch.device("meta")}


def _is_factory(target: torch._ops.OpOverload) -> bool:
    """Whether an operator makes a tensor from no other, on the CPU unless a device is given."""
    names = {argument.name for argument in target._schema.arguments}
    return "device" in names and "self" not in names


def add_sizes(first: float, second: float) -> float:
    """Sum of two sizes."""
    return _checked(operator.add, first, second)


def multiply_sizes(first: float, second: float) -> float:
    """Product of two sizes."""
    return _checked(operator.mul, first, second)


def raise_size(first: float, second: float) -> float:
    """Power of a size, with a small exponent."""
    _check_number(second)
    if not abs(second) <= MOST_SHIFT:
        raise OverflowError(f"a size is raised to the power {second}")
    return _checked(operator.pow, first, second)


_BOUNDED: dict[Callable[..., object], Callable[[float, float], float]] = {
    operator.add: add_sizes,
    operator.mul: multiply_sizes,
    operator.pow: raise_size,
}


def _checked(function: Callable[[float, float], float], first: float, second: float) -> float:
    _check_number(first)
    _check_number(second)
    result: float = function(first, second)
    if not -LARGEST <= result <= LARGEST:
        raise OverflowError("a size is larger than 64 bits")
    return result


def _check_number(value: object) -> None:
    if not isinstance(value, (int, float)):
        raise TypeError(f"arithmetic with sizes is given a {type(value).__name__}")
