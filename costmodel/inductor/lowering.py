"""Inductor's lowering: which values are kept in memory, and which are computed anew where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.inductor.split_reductions import reduction_outer, split_reduction
from costmodel.ir import Graph, Op, TensorType, op_table, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import ATTENTION, CHANNELS_LAST, CUTTING, HEAVY, INSIDE, REGROUPING, SHIFTING, TURNING
from costmodel.ir.strides import dense, layout_of, strides_through

READS_TO_REALIZE_REUSED = 4
"""`config.realize_reads_threshold`: a value used twice is kept in memory if computing it reads more buffers."""
READS_TO_REALIZE = 8
"""`config.realize_acc_reads_threshold`: a value that reads more buffers is kept in any case."""
WORK_TO_REALIZE = 30
"""`config.realize_opcount_threshold`: likewise for a value of more arithmetic."""
Read = tuple[str, str]
"""A buffer and the order in which it is read: "" for its own order, else the views that change it."""


def most_reads(users: Sequence[Op]) -> int:
    """How many buffers a value may read without being kept in memory."""
    return READS_TO_REALIZE if len(users) == 1 else READS_TO_REALIZE_REUSED


@dataclass(frozen=True, slots=True)
class _Expr:
    """A value not kept in memory: the operators that compute it, what they read, their arithmetic."""

    ops: tuple[str, ...] = ()
    reads: frozenset[Read] = frozenset()
    work: int = 0

    def merged(self, other: _Expr) -> _Expr:
        return _Expr(tuple(dict.fromkeys(self.ops + other.ops)), self.reads | other.reads, self.work + other.work)

    def reordered(self, how: str) -> _Expr:
        return replace(self, reads=frozenset((name, f"{order}/{how}") for name, order in self.reads))

    def aligned(self) -> _Expr:
        """As loops in another order compute it: where all is read through the same last turns, the loops take those.

        `pick_loop_order` and `shared_data_after_reordering_loop`: then they can follow those that made what is read.
        """
        orders = [order.split("/") for _, order in self.reads]
        while orders and len({order[-1] for order in orders}) == 1 and orders[0][-1].partition("[")[0] in TURNING:
            orders = [order[:-1] for order in orders]
        names = (name for name, _ in self.reads)
        return replace(self, reads=frozenset((name, "/".join(left)) for name, left in zip(names, orders, strict=True)))


def _buffer(name: str) -> _Expr:
    return _Expr((), frozenset(((name, ""),)))


@dataclass(slots=True)
class Node:
    """One realised computation: a library call, or loops over a domain of `outer` x `inner` elements.

    Attributes:
        ops: names of the operators that it computes.
        reads: what it reads from memory, and in which orders.
        makes: names of the operators whose results are realised: one, and more where nodes have been joined.
        outer: independent results; `inner` elements are reduced to each, one where nothing is reduced.
        extern: whether it is a library call.
        launches: kernels that it takes; several where a reduction is made in levels.
        crosswise: whether it is a reduction whose loops no others over all elements follow.
        ancestors: used by the scheduler: bit mask of the groups that must run before it.
        first: used by the scheduler: index of the first node in a group.
    """

    ops: list[str]
    reads: set[Read]
    makes: list[str]
    outer: int
    inner: int = 1
    extern: bool = False
    launches: int = 1
    crosswise: bool = False
    ancestors: int = 0
    first: int = 0

    @property
    def domain(self) -> int:
        """How many elements the loops visit."""
        return self.outer * self.inner


def realize(graph: Graph, on_cpu: bool = False) -> Lowering:
    """Lowers every operator and keeps what the graph returns; see `Lowering.nodes` and `Lowering.writers`."""
    lowering = Lowering(graph, on_cpu)
    for op in graph.ops:
        lowering.lower(op)
    for ref in graph.outputs:
        lowering.realize(ref.name)
    return lowering


class Lowering:
    """Decides, operator by operator, what is kept in memory and what is computed where it is used.

    Attributes:
        nodes: the computations that are kept, in order of creation.
        writers: buffer -> indices of the nodes that write it; several where inputs were joined in place.
    """

    def __init__(self, graph: Graph, on_cpu: bool = False) -> None:
        self.graph = graph
        self._on_cpu = on_cpu
        self.nodes: list[Node] = []
        self.writers: dict[str, tuple[int, ...]] = {}
        self._ops = {op.name: op for op in graph.ops}
        self._users = graph.users()
        self._exprs: dict[str, _Expr] = {value.name: _buffer(value.name) for value in graph.values}

    def lower(self, op: Op) -> None:
        """Adds one operator."""
        row = operators.lookup(op)
        inside = [ref.name for ref in op.refs() if self._is_inside(ref.name)]
        if row.role in (Role.EXTERN, Role.WINDOW):
            for ref in op.refs():
                if ref.name not in inside:
                    self.realize(ref.name, alone=op.base == ATTENTION)
        if row.role is Role.EXTERN:
            node = Node([*inside, op.name], set(self._joined(op).reads), [op.name], op.type.numel, extern=True)
            node.launches += len(inside)
            self._emit(op, node)
        elif row.role is Role.REDUCTION:
            self._lower_reduction(op)
        elif row.role is Role.JOINED:
            self._join_in_place(op)
        elif row.role is Role.VIEW:
            self._exprs[op.name] = self._viewed(op)
        else:
            self._lower_pointwise(op, row)

    def realize(self, name: str, alone: bool = False) -> None:
        """Keeps a value in memory: from here on it is a buffer that kernels read.

        Args:
            name: of the value.
            alone: whether a view is kept as it is, a copy; else all that it is a view of is kept.
        """
        while not alone and self._exprs[name].ops and operators.lookup(self._ops[name]).role is Role.VIEW:
            name = self._ops[name].refs()[0].name
        expr = self._exprs[name]
        if expr.ops:
            op = self._ops[name]
            self._emit(op, Node([*expr.ops], set(expr.aligned().reads), [op.name], op.type.numel))

    def in_memory(self, name: str) -> bool:
        """Whether a value is kept, or a view of one that is, as far as has been lowered."""
        return not self._exprs[name].ops

    def made_by(self, name: str) -> list[str]:
        """The operators whose results make up a value in memory: itself, or what was joined in it; none of an input."""
        return [made for node in self.writers.get(name, ()) for made in self.nodes[node].makes]

    def returned(self) -> set[str]:
        """The operators whose results the graph returns, as they are or through views."""
        buffers = {name for ref in self.graph.outputs for name, _ in self._exprs[ref.name].reads}
        return {made for name in buffers for made in self.made_by(name)}

    def _emit(self, op: Op, node: Node) -> None:
        self.writers[op.name] = (len(self.nodes),)
        self.nodes.append(node)
        self._exprs[op.name] = _buffer(op.name)
        self._see_anew(op)

    def _see_anew(self, op: Op) -> None:
        """Lets the views of what is kept from now on read it."""
        pending = [op]
        while pending:
            views = [user for user in self._users[pending.pop().name] if operators.lookup(user).role is Role.VIEW]
            for view in views:
                if view.name in self._exprs:
                    self._exprs[view.name] = self._viewed(view)
                    pending.append(view)

    def _joined(self, op: Op) -> _Expr:
        expr = _Expr()
        for ref in op.refs():
            source = self._exprs[ref.name]
            several = ref.name in self._ops and len(self._ops[ref.name].types) > 1
            part = several and operators.lookup(self._ops[ref.name]).role is Role.VIEW
            expr = expr.merged(source.reordered(f"#{ref.index}") if part else source)
        return expr

    def _viewed(self, op: Op) -> _Expr:
        """A view of a buffer is that buffer, read in another order; a view of a computed value computes it anew."""
        source = self._joined(op)
        kinds = [self.graph.type_of(ref) for ref in op.refs()]
        if not _keeps_order(op, kinds[0]):
            source = source.reordered(f"{op.base}{[value for key, value in op.args if key != 'self']}")
        return replace(source, ops=(*source.ops, op.name)) if source.ops else source

    def _lower_pointwise(self, op: Op, row: op_table.Row) -> None:
        window = operators.window_elements(op) if row.role is Role.WINDOW else 0
        copied = self._is_copied_view(op) or self._is_inside(op.name)
        if copied:
            self.realize(op.refs()[0].name)
        if row.uses > 1:
            for ref in op.refs():
                if len(self._exprs[ref.name].reads) > READS_TO_REALIZE_REUSED:
                    self.realize(ref.name)
        joined = self._joined(op)
        if window:
            joined = joined.reordered(f"window{op.arg('kernel_size')}{op.arg('stride')}")
        elif copied or op.base in SHIFTING:
            joined = joined.reordered(f"{op.base}{[value for key, value in op.args if key != 'self']}")
        expr = _Expr((*joined.ops, op.name), joined.reads, joined.work + row.work + window)
        self._exprs[op.name] = expr
        reused = self._uses(op.name) > 1
        reads = max(len(expr.reads), window)
        kept = reused and (reads > READS_TO_REALIZE_REUSED or self._heavy(expr))
        if kept or reads > READS_TO_REALIZE or expr.work > WORK_TO_REALIZE:
            self.realize(op.name)

    def _is_copied_view(self, op: Op) -> bool:
        """Whether a convolution wants a view in channels-last order: it first keeps what that is a view of."""
        if op.base != "clone" or op.arg("memory_format") != CHANNELS_LAST or not op.refs():
            return False
        source = self._ops.get(op.refs()[0].name)
        if source is None:
            return False
        return source.base in CUTTING or (source.base in REGROUPING and source.type.layout == "nchw")

    def _is_inside(self, name: str) -> bool:
        """Whether a value is a copy that the convolution makes which reads it."""
        op = self._ops.get(name)
        return op is not None and op.base == INSIDE and all(user.base == "convolution" for user in self._users[name])

    def _heavy(self, expr: _Expr) -> bool:
        return self._on_cpu and any(self._ops[name].base in HEAVY for name in expr.ops)

    def _uses(self, name: str) -> int:
        """How many computations read a value, through views."""
        total = 0
        pending = [name]
        while pending:
            users = self._users[pending.pop()]
            views = [user.name for user in users if operators.lookup(user).role is Role.VIEW]
            total += len(users) - len(views)
            pending += views
        return total

    def _lower_reduction(self, op: Op) -> None:
        source = self.graph.type_of(op.refs()[0])
        outer = reduction_outer(op, source)
        inner = max(1, source.numel // max(1, outer))
        joined = self._joined(op)
        if source.layout == "nhwc" and op.arg("dim") in ((-1,), (len(source.shape) - 1,)):
            joined = joined.reordered("rows")
        split = split_reduction(self.graph, op, self._computed)
        node = Node([*joined.ops, op.name], set(joined.reads), [op.name], outer, inner, crosswise=split.crosswise)
        node.launches = 1 if self._on_cpu else split.levels
        self._emit(op, node)

    def _computed(self, name: str) -> Op | None:
        """The operator that computes a value where it is used, or sees it there."""
        op = self._ops.get(name)
        return op if op is not None and (self._exprs[name].ops or operators.lookup(op).role is Role.VIEW) else None

    def _join_in_place(self, op: Op) -> None:
        """The inputs have been copied into their places by kernels of their own; joining them costs nothing."""
        for ref in op.refs():
            self.realize(ref.name)
        self.writers[op.name] = tuple(node for ref in op.refs() for node in self.writers[ref.name])
        self._exprs[op.name] = _buffer(op.name)


def _keeps_order(op: Op, source: TensorType) -> bool:
    """Whether all elements of what a view sees follow each other in it as before."""
    if op.base in TURNING:  # of a plain tensor it gives a plain one, if it turns dimensions of one element only
        plain = replace(source, layout="nhwc" if source.layout == "nhwc" else "nchw")
        return layout_of(op.type.shape, strides_through(op, plain, dense(plain), op.type)) == "nchw"
    in_named_orders = op.type.layout != "strided" and source.layout != "strided"
    return (in_named_orders or op.base in REGROUPING) and op.type.numel == source.numel
