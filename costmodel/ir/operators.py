"""The operator table: for every ATen operator what it is called, how it fuses, and what it computes.

Operators are matched exactly by their ATen name without the overload; the rows are in `costmodel.ir.op_table`. FLOPs
are counted as 2 x multiply-accumulates for convolutions, matrix products and attention, and as `work` an element for
everything else. An operator without a row is never free: `lookup` says so, and callers name it in their output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op
from costmodel.ir.flops import attention_flops, convolution_flops, matmul_flops
from costmodel.ir.op_table import ROWS, Role, Row
from costmodel.ir.strides import REGROUPED

HEAVY = frozenset({"exp", "log", "log10", "log1p", "log2", "sigmoid", "silu", "tanh"})
"""`StorageBox.should_realize_on_reuse`: on a CPU, a value used twice is kept in memory if computing it takes these."""
ATTENTION = "scaled_dot_product_attention"
"""Copies of views are made for it, for it fixes their strides (`constrain_to_fx_strides`)."""
INSIDE = "contiguous"
"""The copy that a convolution makes of its input at each call, where that lies in an order that it cannot tell."""
CHANNELS_LAST = "torch.channels_last"
"""What a copy is asked for that a convolution wants."""
REGROUPING = frozenset({*REGROUPED, "alias", "detach"})
"""Views whose elements follow each other as before, whatever the shape."""
TURNING = frozenset({"transpose", "swapaxes", "t", "permute"})
"""Views of all elements, in another order."""
CUTTING = frozenset({"split", "split_with_sizes", "chunk", "narrow", "slice"})
"""Views of a part of the elements."""
SHIFTING = frozenset({"roll", "flip"})
"""Operators that read each element elsewhere."""

__all__ = [
    "ANCHOR_RANK",
    "TABLE",
    "UNKNOWN",
    "Role",
    "Row",
    "attention_flops",
    "convolution_flops",
    "flops",
    "kind_of",
    "lookup",
    "matmul_flops",
    "table_of",
    "window_elements",
]


def table_of(rows: Iterable[Row]) -> dict[str, Row]:
    """Rows by operator name.

    Raises:
        GraphError: an operator has two rows.
    """
    table: dict[str, Row] = {}
    for entry in rows:
        if entry.name in table:
            raise GraphError(f"the operator table has two rows for {entry.name}")
        table[entry.name] = entry
    return table


TABLE: Mapping[str, Row] = table_of(ROWS)
UNKNOWN = Row("?", "?", Role.POINTWISE, 1)
"""How an operator without a row is treated where a guess must be made: a pointwise kernel that nobody measured."""


def kind_of(op: Op) -> str:
    """What users call an operator; where it has no row, what ATen calls it."""
    row = lookup(op)
    return op.base if row is UNKNOWN else row.kind


ANCHOR_RANK: Mapping[Role, int] = {Role.EXTERN: 4, Role.REDUCTION: 3, Role.WINDOW: 2, Role.CONCAT: 1}
"""What kernels and units are named after: the operator of the highest rank. Fused kernels with one lead a unit."""


def lookup(op: Op) -> Row:
    """The row of an operator; `UNKNOWN` where the table has none."""
    return TABLE.get(op.base, UNKNOWN)


def flops(graph: Graph, op: Op) -> int:
    """Arithmetic operations of one operator: its formula, or `work` an element of its largest tensor."""
    row = lookup(op)
    if row.flops is not None:
        return row.flops(graph, op)
    sizes = [graph.type_of(ref).numel for ref in op.refs()] if row.role is Role.REDUCTION else []
    if row.role is Role.WINDOW:
        return op.type.numel * window_elements(op)
    return row.work * max([op.type.numel, *sizes])


def window_elements(op: Op) -> int:
    """How many elements of its input a pooling reads for each of its results."""
    kernel = op.arg("kernel_size")
    return math.prod(size for size in kernel if isinstance(size, int)) if isinstance(kernel, tuple) else 1
