"""Operator table: name, role in fusion, FLOPs and other properties of every ATen operator.

Operators are matched exactly by their ATen name without the overload; the rows are in `costmodel.ir.op_table`. FLOPs
are counted as 2 x multiply-accumulates for convolutions, matmuls and attention, and as `work` an element for
everything else. An operator without a row, or with a row that is not `supported`, is never free: reports name it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op
from costmodel.ir.flops import attention_flops, convolution_flops, matmul_flops
from costmodel.ir.op_table import ROWS, Role, Row, View

ATTENTION = "scaled_dot_product_attention"
"""Inductor copies views for it, because it requires fixed strides (`constrain_to_fx_strides`)."""
CAST = "_to_copy"
"""Copy of a tensor in another type, or on another device."""
CONVOLUTION_INPUT_COPY = "contiguous"
"""Copy that a convolution makes of its input at each call, where the layout of the input is unknown to Inductor."""
CHANNELS_LAST = "torch.channels_last"
"""Memory format of a copy that a convolution requires."""

__all__ = [
    "ANCHOR_RANK",
    "TABLE",
    "UNKNOWN",
    "Role",
    "Row",
    "View",
    "attention_flops",
    "convolution_flops",
    "flops",
    "is_view",
    "kind_of",
    "lookup",
    "matmul_flops",
    "table_of",
    "window_elements",
]


def table_of(rows: Iterable[Row]) -> dict[str, Row]:
    """Index rows by operator name.

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
UNKNOWN = Row("?", "?", Role.EXTERN, supported=False)
"""Row of operators that the table lacks: a call of ATen, also in compiled code, without a cost rule."""


def kind_of(op: Op) -> str:
    """Name of an operator shown to users; its ATen name where the table has no row.

    A convolution is named as in torch.nn.functional, by its dimensions: `conv2d`, `conv3d`, `conv_transpose2d`.
    """
    row = lookup(op)
    if row.flops is convolution_flops:
        return f"conv{'_transpose' if op.arg('transposed') else ''}{max(1, len(op.type.shape) - 2)}d"
    return op.base if row is UNKNOWN else row.kind


ANCHOR_RANK: Mapping[Role, int] = {Role.EXTERN: 4, Role.REDUCTION: 3, Role.WINDOW: 2, Role.CONCAT: 1}
"""Rank of roles: a kernel and a unit are named after their operator of the highest rank, the anchor."""


def lookup(op: Op) -> Row:
    """Row of an operator; `UNKNOWN` where the table has none."""
    return TABLE.get(op.op.partition(".")[0], UNKNOWN)  # `op.base`, without the call of a property


def is_view(op: Op) -> bool:
    """Whether an operator changes no data."""
    return lookup(op).role is Role.VIEW


def flops(graph: Graph, op: Op) -> int:
    """Count arithmetic operations of one operator: its formula, or `work` an element of its largest tensor."""
    row = lookup(op)
    if row.flops is not None:
        return row.flops(graph, op)
    sizes = [graph.type_of(ref).numel for ref in op.refs()] if row.role is Role.REDUCTION else []
    if row.role is Role.WINDOW:
        return op.type.numel * window_elements(op)
    return row.work * max([op.type.numel, *sizes])


def window_elements(op: Op) -> int:
    """Count input elements that a pooling operator reads for each output element."""
    kernel = op.arg("kernel_size")
    return math.prod(size for size in kernel if isinstance(size, int)) if isinstance(kernel, tuple) else 1
