"""Inductor's lowering: which values are realized in memory, and which are recomputed where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.inductor.compilation import Compilation
from costmodel.inductor.fallbacks import falls_back
from costmodel.inductor.split_reductions import reduction_outer, split_reduction
from costmodel.ir import Op, op_table, operators
from costmodel.ir.op_table import Role, View
from costmodel.ir.operators import ATTENTION, CHANNELS_LAST, CONVOLUTION_INPUT_COPY, is_view
from costmodel.ir.strides import ORDER_KEPT, keeps_order

READS_TO_REALIZE_REUSED = 4
"""`config.realize_reads_threshold`: a value that is read twice is realized if computing it reads more buffers."""
READS_TO_REALIZE = 8
"""`config.realize_acc_reads_threshold`: a value that reads more buffers is realized in any case."""
WORK_TO_REALIZE = 30
"""`config.realize_opcount_threshold`: a value of more arithmetic is realized in any case."""
SCATTER_KERNELS = 2
"""Kernels of a scatter, whose result is mutated after it is made (`scatter_reduce_`, `index_put_impl_`)."""
Read = tuple[str, str]
"""A buffer and the order in which it is read: "" for its own order, else the views that change the order."""


def most_reads(users: Sequence[Op]) -> int:
    """Number of buffers that a value with these users may read without being realized."""
    return READS_TO_REALIZE if len(users) == 1 else READS_TO_REALIZE_REUSED


@dataclass(frozen=True, slots=True)
class _Expr:
    """A value that is not realized: operators that compute it, their reads, their arithmetic."""

    ops: tuple[str, ...] = ()
    reads: frozenset[Read] = frozenset()
    work: int = 0

    def merged(self, other: _Expr) -> _Expr:
        return _Expr(tuple(dict.fromkeys(self.ops + other.ops)), self.reads | other.reads, self.work + other.work)

    def reordered(self, how: str) -> _Expr:
        return _Expr(self.ops, frozenset((name, f"{order}/{how}") for name, order in self.reads), self.work)

    def aligned(self) -> _Expr:
        """The same value in reordered loops: permutations that end every read become the order of the loops.

        The loops can then fuse with the loops that produce what they read (`pick_loop_order`,
        `shared_data_after_reordering_loop`).
        """
        if not any(order for _, order in self.reads):
            return self
        orders = [order.split("/") for _, order in self.reads]
        while orders and len({order[-1] for order in orders}) == 1 and _is_permutation(orders[0][-1]):
            orders = [order[:-1] for order in orders]
        names = (name for name, _ in self.reads)
        reads = frozenset((name, "/".join(left)) for name, left in zip(names, orders, strict=True))
        return _Expr(self.ops, reads, self.work)


def _is_permutation(order: str) -> bool:
    row = operators.TABLE.get(order.partition("[")[0])
    return row is not None and row.view is View.PERMUTE


def _is_own_copy(op: Op, users: Sequence[Op]) -> bool:
    """Whether a convolution makes this copy of its input itself."""
    return op.base == CONVOLUTION_INPUT_COPY and all(user.base == "convolution" for user in users)


def _buffer(name: str) -> _Expr:
    return _Expr((), frozenset(((name, ""),)))


@dataclass(frozen=True, slots=True)
class Node:
    """One realized computation: a library call, or loops over a domain of `outer` x `inner` elements.

    Attributes:
        ops: names of the operators that it computes.
        reads: buffers that it reads, and in which orders.
        makes: names of the operators whose results are realized: one, or several after fusion.
        outer: number of independent results.
        inner: elements reduced to each result; 1 without a reduction.
        extern: whether it is a library call.
        launches: number of kernels; several for a split reduction.
        crosswise: whether it is a reduction that pointwise loops over its whole domain cannot join.
    """

    ops: tuple[str, ...]
    reads: frozenset[Read]
    makes: tuple[str, ...]
    outer: int
    inner: int = 1
    extern: bool = False
    launches: int = 1
    crosswise: bool = False

    @property
    def domain(self) -> int:
        """Number of elements that the loops visit."""
        return self.outer * self.inner


def lower(compilation: Compilation) -> Lowering:
    """Lower every operator of a graph and realize its outputs."""
    lowering = Lowering(compilation)
    for op in compilation.graph.ops:
        lowering.lower(op)
    for ref in compilation.graph.outputs:
        lowering.realize(ref.name)
    return lowering


class Lowering:
    """Decision, operator by operator, which values are realized in memory.

    Attributes:
        nodes: realized computations, in order of creation.
        writers: indices of the nodes that write each buffer; several for a concatenation in place.
    """

    def __init__(self, compilation: Compilation) -> None:
        self.nodes: list[Node] = []
        self.writers: dict[str, tuple[int, ...]] = {}
        self._graph, self._target = compilation.graph, compilation.target
        self._ops, self._users = compilation.producers, compilation.users
        self._exprs = {value.name: _buffer(value.name) for value in compilation.graph.values}
        self._inside = frozenset(op.name for op in compilation.graph.ops if _is_own_copy(op, self._users[op.name]))
        self._lowered = 0
        self._realized_by: dict[str, int] = {}

    def lower(self, op: Op) -> None:
        """Lower the next operator."""
        self._lowered += 1
        row = operators.lookup(op)
        inside = [ref.name for ref in op.refs() if ref.name in self._inside]
        extern = falls_back(self._graph, op, self._target.on_cpu)
        if extern or row.role is Role.WINDOW:
            for ref in op.refs():
                if ref.name not in inside:
                    self.realize(ref.name, alone=op.base == ATTENTION)
        if extern:
            reads, launches = self._joined(op).reads, 1 + len(inside)
            node = Node((*inside, op.name), reads, (op.name,), op.type.numel, extern=True, launches=launches)
            self._emit(op, node)
        elif row.role is Role.REDUCTION:
            self._lower_reduction(op)
        elif row.role is Role.JOINED:
            self._join_in_place(op)
        elif row.role is Role.VIEW:
            self._exprs[op.name] = self._viewed(op)
        elif row.scatters:
            self._lower_scatter(op)
        else:
            self._lower_pointwise(op, row)

    def realize(self, name: str, alone: bool = False) -> None:
        """Write a value to memory: from here on it is a buffer that kernels read.

        Args:
            name: name of the value.
            alone: whether a view is copied; else the tensor that it is a view of is realized.
        """
        while not alone and self._exprs[name].ops and is_view(self._ops[name]):
            name = self._ops[name].refs()[0].name
        expr = self._exprs[name]
        if expr.ops:
            op = self._ops[name]
            self._emit(op, Node(expr.ops, expr.aligned().reads, (op.name,), op.type.numel))

    def is_realized_before(self, name: str, position: int) -> bool:
        """Whether an operator's result was realized before the operator at this position was lowered."""
        return self._realized_by.get(name, position) < position

    def made_by(self, name: str) -> list[str]:
        """Operators whose results make up a buffer: several for a concatenation in place, none for an input."""
        return [made for node in self.writers.get(name, ()) for made in self.nodes[node].makes]

    def returned(self) -> set[str]:
        """Operators whose results the graph returns, directly or through views."""
        buffers = {name for ref in self._graph.outputs for name, _ in self._exprs[ref.name].reads}
        return {made for name in buffers for made in self.made_by(name)}

    def _emit(self, op: Op, node: Node) -> None:
        self.writers[op.name] = (len(self.nodes),)
        self.nodes.append(node)
        self._set_buffer(op.name)
        self._update_views(op)

    def _set_buffer(self, name: str) -> None:
        self._exprs[name] = _buffer(name)
        self._realized_by[name] = self._lowered - 1

    def _update_views(self, op: Op) -> None:
        """Let existing views of a newly realized value read its buffer."""
        pending = [op]
        while pending:
            views = [user for user in self._users[pending.pop().name] if is_view(user)]
            for view in views:
                if view.name in self._exprs:
                    self._exprs[view.name] = self._viewed(view)
                    pending.append(view)

    def _joined(self, op: Op) -> _Expr:
        expr = _Expr()
        for ref in op.refs():
            source = self._exprs[ref.name]
            several = ref.name in self._ops and len(self._ops[ref.name].types) > 1
            part = several and is_view(self._ops[ref.name])
            expr = expr.merged(source.reordered(f"#{ref.index}") if part else source)
        return expr

    def _viewed(self, op: Op) -> _Expr:
        """Express a view as its buffer in another order, or as a recomputation of the value."""
        source = self._joined(op)
        broadcast = operators.lookup(op).view is View.EXPAND  # read as an operand of fewer elements is
        if not broadcast and not keeps_order(op, self._graph.type_of(op.refs()[0])):
            source = source.reordered(f"{op.base}{[value for key, value in op.args if key != 'self']}")
        return _Expr((*source.ops, op.name), source.reads, source.work) if source.ops else source

    def _lower_pointwise(self, op: Op, row: op_table.Row) -> None:
        window = operators.window_elements(op) if row.role is Role.WINDOW else 0
        copied = self._is_copied_view(op) or op.name in self._inside
        if copied:
            self.realize(op.refs()[0].name)
        if row.uses > 1:
            for ref in op.refs():
                if len(self._exprs[ref.name].reads) > READS_TO_REALIZE_REUSED:
                    self.realize(ref.name)
        joined = self._joined(op)
        if window:
            joined = joined.reordered(f"window{op.arg('kernel_size')}{op.arg('stride')}")
        elif copied or row.shifts:
            joined = joined.reordered(f"{op.base}{[value for key, value in op.args if key != 'self']}")
        expr = _Expr((*joined.ops, op.name), joined.reads, joined.work + row.work + window)
        self._exprs[op.name] = expr
        reused = self._uses(op.name) > 1
        reads = max(len(expr.reads), window)
        realized = reused and (reads > READS_TO_REALIZE_REUSED or self._realized_on_reuse(expr))
        if realized or reads > READS_TO_REALIZE or expr.work > WORK_TO_REALIZE:
            self.realize(op.name)

    def _is_copied_view(self, op: Op) -> bool:
        """Whether an operator copies a view to channels_last for a convolution, which realizes the viewed tensor."""
        if op.base != "clone" or op.arg("memory_format") != CHANNELS_LAST or not op.refs():
            return False
        source = self._ops.get(op.refs()[0].name)
        if source is None:
            return False
        view = operators.lookup(source).view
        return view is View.NARROW or (view in ORDER_KEPT and source.type.layout == "nchw")

    def _realized_on_reuse(self, expr: _Expr) -> bool:
        rows = (operators.lookup(self._ops[name]) for name in expr.ops)
        return self._target.on_cpu and any(row.realized_on_reuse for row in rows)

    def _uses(self, name: str) -> int:
        """Count computations that read a value, through views."""
        total = 0
        pending = [name]
        while pending:
            users = self._users[pending.pop()]
            views = [user.name for user in users if is_view(user)]
            total += len(users) - len(views)
            pending += views
        return total

    def _lower_reduction(self, op: Op) -> None:
        source = self._graph.type_of(op.refs()[0])
        outer = reduction_outer(op, source)
        inner = max(1, source.numel // max(1, outer))
        joined = self._joined(op)
        if source.layout == "nhwc" and op.arg("dim") in ((-1,), (len(source.shape) - 1,)):
            joined = joined.reordered("rows")
        split = split_reduction(self._graph, op, self._computed, self._target.multiprocessors)
        launches = 1 if self._target.on_cpu else split.levels
        ops = (*joined.ops, op.name)
        self._emit(op, Node(ops, joined.reads, (op.name,), outer, inner, launches=launches, crosswise=split.crosswise))

    def _lower_scatter(self, op: Op) -> None:
        """Lower writes at indices: one kernel copies or fills the first operand, another one writes into it."""
        joined = self._joined(op)
        self._emit(op, Node((*joined.ops, op.name), joined.reads, (op.name,), op.type.numel, launches=SCATTER_KERNELS))

    def _computed(self, name: str) -> Op | None:
        """Operator of a value that is recomputed or viewed where it is used; None for a buffer."""
        op = self._ops.get(name)
        return op if op is not None and (self._exprs[name].ops or is_view(op)) else None

    def _join_in_place(self, op: Op) -> None:
        """Realize inputs of a concatenation, each by a kernel that writes its place in the result."""
        for ref in op.refs():
            self.realize(ref.name)
        self.writers[op.name] = tuple(node for ref in op.refs() for node in self.writers[ref.name])
        self._set_buffer(op.name)
