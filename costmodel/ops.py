"""The operator table: for every ATen operator what it is called, how it fuses, and what it computes.

Operators are matched exactly by their ATen name without the overload; the rows are in `costmodel.op_table`. FLOPs are
counted as 2 x multiply-accumulates for convolutions, matrix products and attention, and as `work` an element for
everything else. An operator without a row is never free: `lookup` says so, and callers name it in their output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from costmodel.errors import GraphError
from costmodel.flops import attention_flops, convolution_flops, matmul_flops
from costmodel.ir import Graph, Op
from costmodel.op_table import ROWS, Role, Row

__all__ = [
    "TABLE",
    "UNKNOWN",
    "Role",
    "Row",
    "attention_flops",
    "bytes_read",
    "bytes_written",
    "convolution_flops",
    "flops",
    "lookup",
    "matmul_flops",
    "table_of",
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
        kernel = op.arg("kernel_size")
        sides = [side for side in kernel if isinstance(side, int)] if isinstance(kernel, tuple) else []
        return op.type.numel * math.prod(sides)
    return row.work * max([op.type.numel, *sizes])


def bytes_read(graph: Graph, op: Op) -> int:
    """Bytes of the tensors an operator is given, each once."""
    return sum(graph.type_of(ref).nbytes for ref in dict.fromkeys(op.refs()))


def bytes_written(op: Op) -> int:
    """Bytes of the results an operator makes."""
    return sum(kind.nbytes for kind in op.types if kind.numel)
