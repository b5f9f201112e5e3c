"""Extraction of the operators of one kernel from a graph, as a graph of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from costmodel.ir import Graph, Op, Ref, TensorType, Value, operators
from costmodel.ir.op_table import View
from costmodel.ir.op_table_training import TRAINING_NAMES
from costmodel.ir.operators import ATTENTION, CAST, is_view
from costmodel.kernels.eager_layout import Order, inverse, permuted, shows_memory_order

TIMES_ONE = ("mul.Tensor", 1.0)
"""Operator that copies a part of a computed value: Inductor would remove a clone that changes no strides."""


class Extractor:
    """Extractor of groups of operators of one graph as graphs of their own, with canonical names.

    Views between a group and the values that it reads are included, so that inputs keep their strides. The viewed
    values become inputs (`a0`, `a1`, ...) or parameters (`p0`, ...); the cast of a parameter is a parameter, so that
    a kernel that reads weights under autocast is that of a model in that precision. Everything that attention or a
    cast itself reads is an input: the kernel is the same for a computed and a constant mask. A value whose memory order
    differs from the order of its dimensions is an input in its memory order, read through a `permute`.
    """

    def __init__(self, graph: Graph, orders: Mapping[str, Order] | None = None) -> None:
        """Prepare extraction from a graph, with memory orders of results that are known and not contiguous."""
        self._graph, self._orders = graph, orders or {}
        self._ops = {op.name: op for op in graph.ops}
        self._position = {op.name: index for index, op in enumerate(graph.ops)}
        self._values = {value.name: value for value in graph.values}
        self._users: dict[str, list[str]] = {}
        for op in graph.ops:
            for ref in op.refs():
                self._users.setdefault(ref.name, []).append(op.name)
        self._returned = {ref.name for ref in graph.outputs}

    def extract(self, names: Iterable[str], written: Collection[str] | None = None) -> Graph:
        """Extract a group as a graph, whose outputs are the values that operators outside the group read.

        Args:
            names: names of the group's operators.
            written: names of the operators whose results are written to memory: a value that another group recomputes
                is no output. None for all.
        """
        computed = set(names)
        group = self._with_views(computed)
        order = sorted(group, key=self._position.__getitem__)
        renamed: dict[str, str] = {}
        through: dict[str, str] = {}  # inputs in another memory order -> the view that they are read through
        values: list[Value] = []
        new_ops: list[Op] = []
        counts = {"input": 0, "param": 0}
        bases = {self._ops[name].base for name in computed}
        reads_inputs = ATTENTION in bases or bases == {CAST}
        for name in order:
            op = self._ops[name]
            outside = [ref for ref in op.refs() if ref.name not in group]
            for ref in outside:
                self._add_value(ref, "input" if reads_inputs else self._role(ref), renamed, values, counts)
            if outside and self._shows_memory(op):
                renamed[name] = renamed[_key(outside[0])]
                continue
            for ref in outside:
                if self._order_of(ref) is not None and _key(ref) not in through:
                    new_ops.append(self._permutation(str(len(new_ops)), ref, renamed[_key(ref)]))
                    through[_key(ref)] = new_ops[-1].name
            names = renamed | through if through else renamed
            args = op.args_reading(partial(_renamed, names=names))
            renamed[name] = str(len(new_ops))
            new_ops.append(Op(renamed[name], op.op, args, op.types))
        outputs = []
        for ref in self._outputs(order, computed, written):
            output = Ref(renamed[ref.name], ref.index)
            if (copy := self._copied_part(ref, output, computed, len(new_ops))) is not None:
                new_ops.append(copy)
                output = Ref(copy.name)
            outputs.append(output)
        return Graph("", tuple(values), tuple(new_ops), tuple(outputs))

    def _copied_part(self, ref: Ref, output: Ref, computed: Collection[str], place: int) -> Op | None:
        """Copy of an output that is a view of a part of a computed value; None for any other output.

        If the view itself were returned, all of the viewed tensor would be written.
        """
        source, in_order = ref, True
        while source.name in computed and is_view(op := self._ops[source.name]):
            in_order = in_order and operators.lookup(op).view is View.NARROW
            source = op.refs()[0]
        kind, whole = self._graph.type_of(ref), self._graph.type_of(source)
        if source == ref or source.name not in computed or kind.numel >= whole.numel:
            return None
        layout = "nhwc" if in_order and whole.layout == "nhwc" else "nchw"
        name, one = TIMES_ONE
        return Op(str(place), name, (("self", output), ("other", one)), (replace(kind, layout=layout),))

    def _role(self, ref: Ref) -> str:
        """Role of a value; a cast or a view has the role of what it was made from."""
        name = ref.name
        while (op := self._ops.get(name)) is not None and (op.base == CAST or is_view(op)):
            name = op.refs()[0].name
        source = self._values.get(name)
        return "param" if source is not None and source.role == "param" else "input"

    def _add_value(
        self, ref: Ref, role: str, renamed: dict[str, str], values: list[Value], counts: dict[str, int]
    ) -> None:
        key = _key(ref)
        if key in renamed:
            return
        name = f"{'p' if role == 'param' else 'a'}{counts[role]}"
        counts[role] += 1
        renamed[key] = name
        kind, order = self._graph.type_of(ref), self._order_of(ref)
        stored = kind if order is None else TensorType(kind.dtype, permuted(kind.shape, order))
        values.append(Value(name, stored, role))

    def _order_of(self, ref: Ref) -> Order | None:
        return None if ref.index else self._orders.get(ref.name)

    def _shows_memory(self, op: Op) -> bool:
        """Whether a view shows the viewed tensor in its memory order."""
        source = op.refs()[0]
        order = self._order_of(source)
        return order is not None and shows_memory_order(op, self._graph.type_of(source), order)

    def _permutation(self, name: str, ref: Ref, value: str) -> Op:
        """View of an input in its memory order that restores the order of its dimensions."""
        kind, order = self._graph.type_of(ref), self._orders[ref.name]
        return Op(name, "permute", (("self", Ref(value)), ("dims", inverse(order))), (kind,))

    def _with_views(self, names: set[str]) -> set[str]:
        """Group with the views between it and the values that it reads."""
        group = set(names)
        pending = list(names)
        while pending:
            for ref in self._ops[pending.pop()].refs():
                op = self._ops.get(ref.name)
                if op is not None and op.name not in group and is_view(op):
                    group.add(op.name)
                    pending.append(op.name)
        return group

    def _outputs(self, order: Sequence[str], computed: set[str], written: Collection[str] | None) -> list[Ref]:
        if written is None:
            written = {name for name in computed if name in self._returned or self._users_of(name) - computed}
        outputs = [name for name in order if name in computed and name in written]
        return [ref for name in outputs or [order[-1]] for ref in self._results(name)]

    def _results(self, name: str) -> list[Ref]:
        """Results of an operator that count as written: the first, and of a training step's own operators all."""
        op = self._ops[name]
        if op.base not in TRAINING_NAMES or len(op.types) == 1:
            return [Ref(name)]
        return [Ref(name, index) for index, kind in enumerate(op.types) if kind.numel]

    def _users_of(self, name: str) -> set[str]:
        return set(self._users.get(name, ()))


def _key(ref: Ref) -> str:
    return f"{ref.name}#{ref.index}"


def _renamed(ref: Ref, names: dict[str, str]) -> Ref:
    key = _key(ref)
    return Ref(names[key]) if key in names else Ref(names[ref.name], ref.index)
