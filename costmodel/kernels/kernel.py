"""Kernels: what a device is asked to run, each as a small graph of its own that can be measured alone.

Eager execution runs one kernel call an operator; a compiler runs library calls and fused groups. Both are described by
the same type, so that one predictor serves both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from costmodel import ops
from costmodel.attention import fast_path
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.memory_orders import Order, inverse, memory_orders, turned, undoes
from costmodel.ops import Role
from costmodel.realize import CUTTING

COPY = "copy"
"""What users know copies by."""
TIMES_ONE = ("mul.Tensor", 1.0)
"""How a kernel copies a part of what it computes: Inductor would take a clone out that changes no strides."""


@dataclass(frozen=True)
class Kernel:
    """One call that the host issues: operators computed together by one implementation.

    Attributes:
        backend: `aten` (a library call, as eager execution makes it), `triton` (a fused kernel that Inductor makes; on
            a CPU, a loop in C++) or `cudnn` (a convolution with its bias, addition and ReLU fused).
        graph: what it computes, with canonical names; inputs and parameters have the layouts they have in the model.
        ops: names of the operators it computes, in the graph that it was taken from.
        launches: how many device kernels the host launches for it; more than one where a reduction is split.
    """

    backend: str
    graph: Graph
    ops: tuple[str, ...] = field(compare=False)
    launches: int = 1

    @cached_property
    def anchor(self) -> Op:
        """The operator that costs most: the library call, else the reduction, else the last operator."""
        computing = [op for op in self.graph.ops if ops.lookup(op).role is not Role.VIEW]
        return max(reversed(computing or self.graph.ops), key=lambda op: ops.ANCHOR_RANK.get(ops.lookup(op).role, 0))

    @cached_property
    def key(self) -> tuple[str, str]:
        """What makes two kernels take the same time: how they run, and their graph's text.

        An operator alone is the same graph as a library call and as a kernel of Inductor's.
        """
        return ("inductor" if self.backend == "triton" else "aten", str(self.graph))

    @cached_property
    def kind(self) -> str:
        """The anchor's name, as users know it: `conv2d`, `linear`, `layer_norm`, ...; `copy` for that of a part."""
        anchor = self.anchor
        copies = self.backend == "triton" and (anchor.op, anchor.arg("other")) == TIMES_ONE
        return COPY if copies else ops.lookup(anchor).kind


def eager_kernels(graph: Graph, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """One kernel call for each operator that is not a view, in execution order."""
    return kernels_of(as_issued(graph, on_cpu))


def as_issued(graph: Graph, on_cpu: bool = False) -> Graph:
    """The operators as eager execution gets to them: on a GPU, as ATen dispatches them; on a CPU, as captured."""
    return graph if on_cpu else choose_libraries(fast_path(graph))


def count_views(graph: Graph) -> int:
    """How many operators launch nothing."""
    return sum(ops.lookup(op).role is Role.VIEW for op in graph.ops)


def kernels_of(graph: Graph) -> tuple[Kernel, ...]:
    """One kernel call for each operator of a graph `as_issued` that is not a view, in execution order.

    An `as_strided_scatter` is none either: it says where an operator that wrote through a view has left its result.
    """
    extractor = Extractor(graph, memory_orders(graph))
    return tuple(
        Kernel("aten", extractor.extract([op.name]), (op.name,))
        for op in graph.ops
        if ops.lookup(op).role is not Role.VIEW and op.base != "as_strided_scatter"
    )


def choose_libraries(graph: Graph) -> Graph:
    """Operators as ATen dispatches them on a GPU: batch norm goes to cuDNN in float32, if it has three dimensions.

    The rule is ATen's `_batch_norm_impl_index` in evaluation, for parameters of the input's type: with scale and shift.
    """

    def choose(op: Op) -> Op:
        on_cudnn = op.base == "native_batch_norm" and op.type.dtype == "float32" and len(op.type.shape) >= 3
        affine = all(isinstance(op.arg(name), Ref) for name in ("weight", "bias"))
        if not on_cudnn or not affine or op.type.shape[0] > 65535:
            return op
        args = tuple(("epsilon" if key == "eps" else key, value) for key, value in op.args)
        args = tuple(("exponential_average_factor" if key == "momentum" else key, value) for key, value in args)
        reserve = TensorType("uint8", (0,))
        return Op(op.name, "cudnn_batch_norm", args, (*op.types[:3], reserve), op.module)

    return replace(graph, ops=tuple(choose(op) for op in graph.ops))


def grouping(groups: int, inputs: int, outputs: int) -> str:
    """How a convolution's channels are grouped, as far as cuDNN's kernels tell it apart; empty for one group.

    On an H200 it has fast kernels for groups of 4, 8, 16, ... channels (`even`); others (`uneven`) take several times
    as long, and the host twice as long to issue. Depthwise ones that make several channels of one (`multiplied`) are
    often issued one by one.

    Args:
        groups: how many.
        inputs: channels that each reads.
        outputs: channels that each makes.
    """
    if groups == 1:
        return ""
    if inputs == 1:
        return "depthwise" if outputs == 1 else "multiplied"
    return "even" if inputs.bit_count() == outputs.bit_count() == 1 and inputs > 2 else "uneven"


class Extractor:
    """Takes groups of operators out of one graph as graphs of their own, in canonical names.

    Views that lead from outside into a group come along, so that its inputs keep their strides; what lies before
    them becomes an input (`a0`, `a1`, ...) or a parameter (`p0`, ...). All that attention reads are inputs: the kernel
    is the same whether its mask is computed or held. What lies in memory in another order than its dimensions' is read
    as it lies, through a view that turns it.
    """

    def __init__(self, graph: Graph, orders: Mapping[str, Order] | None = None) -> None:
        """Of a graph, and orders in memory of its operators' results where they are known and not plain."""
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
        """The group's graph. Its outputs are what something outside the group reads.

        Args:
            names: of the group's operators.
            written: names of the operators whose results reach memory, if not all of them do: what another group
                computes anew is no output.
        """
        computed = set(names)
        group = self._with_views(computed)
        order = sorted(group, key=self._position.__getitem__)
        renamed: dict[str, str] = {}
        through: dict[str, str] = {}  # views that inputs which lie turned are read through
        values: list[Value] = []
        new_ops: list[Op] = []
        counts = {"input": 0, "param": 0}
        attends = any(self._ops[name].base == "scaled_dot_product_attention" for name in computed)
        for name in order:
            op = self._ops[name]
            outside = [ref for ref in op.refs() if ref.name not in group]
            for ref in outside:
                self._add_value(ref, "input" if attends else self._role(ref), renamed, values, counts)
            if outside and self._shows_memory(op):
                renamed[name] = renamed[_key(outside[0])]
                continue
            for ref in outside:
                if self._order_of(ref) is not None and _key(ref) not in through:
                    new_ops.append(self._turning(str(len(new_ops)), ref, renamed[_key(ref)]))
                    through[_key(ref)] = new_ops[-1].name
            names = renamed | through if through else renamed
            moved = op.reading(partial(_renamed, names=names))
            renamed[name] = str(len(new_ops))
            new_ops.append(Op(renamed[name], op.op, moved.args, op.types))
        outputs = []
        for ref in self._outputs(order, computed, written):
            output = Ref(renamed[ref.name], ref.index)
            if (copy := self._copied_part(ref, output, computed, len(new_ops))) is not None:
                new_ops.append(copy)
                output = Ref(copy.name)
            outputs.append(output)
        return Graph("", tuple(values), tuple(new_ops), tuple(outputs))

    def _copied_part(self, ref: Ref, output: Ref, computed: Collection[str], place: int) -> Op | None:
        """The copy that a group makes of a part of what it computes; None where it writes all of it.

        Returned as it is, a view would have all that it is a view of written, as nothing else reads it here.
        """
        source, in_order = ref, True
        while source.name in computed and ops.lookup(self._ops[source.name]).role is Role.VIEW:
            in_order = in_order and self._ops[source.name].base in CUTTING
            source = self._ops[source.name].refs()[0]
        kind, whole = self._graph.type_of(ref), self._graph.type_of(source)
        if source == ref or source.name not in computed or kind.numel >= whole.numel:
            return None
        layout = "nhwc" if in_order and whole.layout == "nhwc" else "nchw"
        name, one = TIMES_ONE
        return Op(str(place), name, (("self", output), ("other", one)), (replace(kind, layout=layout),))

    def _role(self, ref: Ref) -> str:
        source = self._values.get(ref.name)
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
        lies = kind if order is None else TensorType(kind.dtype, turned(kind.shape, order))
        values.append(Value(name, lies, role))

    def _order_of(self, ref: Ref) -> Order | None:
        return None if ref.index else self._orders.get(ref.name)

    def _shows_memory(self, op: Op) -> bool:
        """Whether a view shows what it is a view of as that lies in memory."""
        source = op.refs()[0]
        order = self._order_of(source)
        return order is not None and undoes(op, self._graph.type_of(source), order)

    def _turning(self, name: str, ref: Ref, value: str) -> Op:
        """The view of an input as it lies that has the dimensions of what it stands for."""
        kind, order = self._graph.type_of(ref), self._orders[ref.name]
        return Op(name, "permute", (("self", Ref(value)), ("dims", inverse(order))), (kind,))

    def _with_views(self, names: set[str]) -> set[str]:
        """The group and the views between it and what lies outside it, up to their first source."""
        group = set(names)
        pending = list(names)
        while pending:
            for ref in self._ops[pending.pop()].refs():
                op = self._ops.get(ref.name)
                if op is not None and op.name not in group and ops.lookup(op).role is Role.VIEW:
                    group.add(op.name)
                    pending.append(op.name)
        return group

    def _outputs(self, order: Sequence[str], computed: set[str], written: Collection[str] | None) -> list[Ref]:
        if written is None:
            written = {name for name in computed if name in self._returned or self._users_of(name) - computed}
        outputs = [name for name in order if name in computed and name in written]
        return [Ref(name) for name in outputs or [order[-1]]]

    def _users_of(self, name: str) -> set[str]:
        return set(self._users.get(name, ()))


def _key(ref: Ref) -> str:
    return f"{ref.name}#{ref.index}"


def _renamed(ref: Ref, names: dict[str, str]) -> Ref:
    key = _key(ref)
    return Ref(names[key]) if key in names else Ref(names[ref.name], ref.index)
