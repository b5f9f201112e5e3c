"""Operators that Inductor leaves to ATen: always, or by their shapes and types.

The rules follow torch/_inductor/lowering.py of torch 2.11 to 2.13; each names the function that it follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from costmodel.ir import Graph, Op, operators
from costmodel.ir.flops import tensor_of
from costmodel.ir.op_table import Role
from costmodel.ir.rare_costs import length_along

LONGEST_SORT = 512
"""Longest dimension that a Triton kernel sorts (`ir.Sort.create`)."""
LARGEST_WINDOW = 25
"""Most elements of a pooling window in a Triton kernel (torch's `window_size > 25`)."""
DECOMPOSED_COMPLEX = frozenset({"add", "angle"})
"""Operators on complex tensors that are decomposed into operators on their real and imaginary parts."""


def falls_back(graph: Graph, op: Op, on_cpu: bool) -> bool:
    """Whether compiled code calls ATen's kernel for an operator."""
    role = operators.lookup(op).role
    if role is Role.EXTERN:
        return True
    if role in (Role.VIEW, Role.SOURCE, Role.JOINED):
        return False
    if _is_complex(graph, op) and op.base not in DECOMPOSED_COMPLEX:
        return True
    rule = _BY_SHAPE.get(op.base)
    return rule is not None and rule(graph, op, on_cpu)


def _is_complex(graph: Graph, op: Op) -> bool:
    """Whether an operator reads or makes complex numbers (`fallback_node_due_to_unsupported_type`)."""
    return any(kind.is_complex for kind in (*op.types, *map(graph.type_of, op.refs())))


def _sorts_long(graph: Graph, op: Op, on_cpu: bool) -> bool:
    return on_cpu or length_along(tensor_of(graph, op, "self"), op) > LONGEST_SORT


def _scans_on_cpu(_graph: Graph, _op: Op, on_cpu: bool) -> bool:
    """Whether a scan has no generated kernel (`BackendFeature.SCAN`)."""
    return on_cpu


def _reduces_otherwise(_graph: Graph, op: Op, _on_cpu: bool) -> bool:
    """Whether a scatter reduces by anything but a sum, for which there is no atomic operation (`scatter_fallback`)."""
    return op.arg("reduce") not in (None, "sum", "add")


def _pools_large(_graph: Graph, op: Op, _on_cpu: bool) -> bool:
    """Whether a maximum is of a large window (`should_fallback_max_pool_with_indices`)."""
    return math.prod(_sides(op, "kernel_size")) > LARGEST_WINDOW


def _averages_large(_graph: Graph, op: Op, _on_cpu: bool) -> bool:
    """Whether a mean is of a large window that overlaps with the next one (`_avg_poolnd`)."""
    sides = _sides(op, "kernel_size")
    return math.prod(sides) > LARGEST_WINDOW and sides != (_sides(op, "stride") or sides)


def _sides(op: Op, name: str) -> tuple[int, ...]:
    """Sides of a window or its steps, one for each dimension; none where they are not given."""
    given = op.arg(name)
    sides = [side for side in (given if isinstance(given, tuple) else (given,)) if isinstance(side, int)]
    return tuple(sides * (3 if "3d" in op.base else 2) if len(sides) == 1 else sides)


def _adapts_large(graph: Graph, op: Op, _on_cpu: bool) -> bool:
    """Whether a pooling to a given size has a large window (`_adaptive_avg_pool2d`, `adaptive_max_pool2d`)."""
    before, after = tensor_of(graph, op, "self").shape[-2:], op.type.shape[-2:]
    sides = list(zip(before, after, strict=True))
    if all(size % made == 0 for size, made in sides):
        maximum = "max" in op.base and math.prod(after) > 1  # a maximum of everything is a reduction
        return maximum and math.prod(size // made for size, made in sides) > LARGEST_WINDOW
    return math.prod(-(-(size + made - 1) // made) for size, made in sides) > LARGEST_WINDOW


_BY_SHAPE: Mapping[str, Callable[[Graph, Op, bool], bool]] = {
    "sort": _sorts_long,
    "scatter": _reduces_otherwise,
    "scatter_reduce": _reduces_otherwise,
    "max_pool2d_with_indices": _pools_large,
    "max_pool3d_with_indices": _pools_large,
    "avg_pool2d": _averages_large,
    "avg_pool3d": _averages_large,
    "_adaptive_avg_pool2d": _adapts_large,
    "adaptive_max_pool2d": _adapts_large,
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"), _scans_on_cpu),
}
