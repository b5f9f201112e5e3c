"""Captured graph -> layers: operators grouped under the modules that the user wrote, and their shares of kernels.

A layer is an anchor operator (convolution, matmul, attention, reduction, pooling, concatenation) with the pointwise
operators that follow it inside the same block. Compiled kernels know no modules, so the time of a fused kernel is
shared out among the layers that it serves. Every kernel's time is shared out whole: the times of layers add up to
those of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from costmodel.ir import Graph, Op, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import origin_of

MOST_FROM_OUTSIDE = 8
"""Operators outside the anchor's module that a layer takes in; a loop in the forward pass of a parent has more."""

_NAMED_LIKE_CONCAT = "batch_norm"
"""Pointwise kind that a layer without an anchor is named after."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a captured graph.

    Attributes:
        name: module of the anchor, as in `named_modules()`; its kind for an anchor outside of submodules.
        module: module of the anchor; empty for the model itself.
        kind: kind of the anchor: `conv2d`, `linear`, `layer_norm`, ...
        ops: operators in order, without views.
        position: relative depth in the model, from 0 to 1.
    """

    name: str
    module: str
    kind: str
    ops: tuple[Op, ...]
    position: float

    @property
    def type(self) -> TensorType:
        """Type of its last result."""
        return self.ops[-1].type


Shares = tuple[Mapping[int, float], ...]
"""Shares of each kernel's time by the place of the layer, which add up to 1."""


def layers_of(graph: Graph) -> tuple[Layer, ...]:
    """Layers in execution order. Every operator that is no view belongs to one.

    An anchor leads a layer. Another operator joins the layer of the operand that was computed last, if its module is
    an ancestor of the anchor's, or a sibling or child of a module there that has no anchor of its own; a concatenation
    takes in operators of its own module only, any other layer at most MOST_FROM_OUTSIDE of other modules. Else it leads
    a layer. Casts of weights and inputs, as autocast makes them, belong to the next layer of their module.
    """
    groups: list[_Group] = []
    anchored = _with_ancestors({op.module for op in graph.ops if _leads(op)})
    made_by: dict[str, tuple[int, _Group]] = {}  # value -> order of the computing operator behind it, and its layer
    for order, op in enumerate(graph.ops):
        sources = [made_by[ref.name] for ref in op.refs() if ref.name in made_by]
        if operators.is_view(op):
            if sources:
                made_by[op.name] = sources[0]
            continue
        latest = max(sources, key=lambda source: source[0], default=None)
        if latest is not None and not _leads(op) and latest[1].takes(op, anchored):
            group = latest[1]
        else:
            group = _Group(order)
            groups.append(group)
        group.add(op, order)
        made_by[op.name] = (order, group)
    groups = _with_casts(groups, {value.name for value in graph.values})
    found = [group.layer(max(1, len(graph.ops) - 1)) for group in groups]
    return tuple(sorted(found, key=lambda layer: layer.position))


def _with_casts(groups: Sequence[_Group], given: Set[str]) -> list[_Group]:
    """Groups in which casts of given values have joined the group after them, if it is of the same module."""
    found: list[_Group] = []
    for group in reversed(groups):
        casts = all(op.base == operators.CAST and op.refs()[0].name in given for op in group.ops)
        if casts and found and group.modules <= found[-1].modules:
            found[-1].ops[:0] = group.ops
        else:
            found.append(group)
    return found[::-1]


def _with_ancestors(modules: Set[str]) -> Set[str]:
    return {module[:end] for module in modules for end in (*_dots(module), len(module))}


def _dots(module: str) -> list[int]:
    return [index for index, letter in enumerate(module) if letter == "."]


def _leads(op: Op) -> bool:
    return operators.lookup(op).role in operators.ANCHOR_RANK


@dataclass(slots=True)
class _Group:
    """Operators of a layer while it is being built.

    Attributes:
        anchor_order: place of the anchor in the graph.
        ops: operators so far.
        modules: their modules.
        parents: parents of these modules.
        outside: number of operators of other modules than the first one's.
    """

    anchor_order: int
    ops: list[Op] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    parents: set[str] = field(default_factory=set)
    outside: int = 0

    def add(self, op: Op, order: int) -> None:
        if self.ops and _rank(op) > max(map(_rank, self.ops)):
            self.anchor_order = order
        self.ops.append(op)
        self.modules.add(op.module)
        self.parents.add(_parent(op.module))
        self.outside += op.module != self.ops[0].module

    def takes(self, op: Op, anchored: Set[str]) -> bool:
        """Whether an operator without an anchor of its own belongs to this layer."""
        if operators.lookup(self.ops[0]).role is Role.CONCAT:
            return op.module == self.ops[0].module
        anchor, parent = self.ops[0].module, _parent(op.module)
        if op.module != anchor and self.outside >= MOST_FROM_OUTSIDE:
            return False
        if not op.module or op.module in self.modules or f"{anchor}.".startswith(f"{op.module}."):
            return True
        return op.module not in anchored and (parent in self.parents or parent in self.modules)

    def layer(self, span: int) -> Layer:
        anchor = max(self.ops, key=_rank)
        kind = operators.kind_of(anchor)
        position = round(self.anchor_order / span, 4)
        return Layer(anchor.module or kind, anchor.module, kind, tuple(self.ops), position)


def _parent(module: str) -> str:
    return module.rpartition(".")[0]


def _rank(op: Op) -> int:
    row = operators.lookup(op)
    like = Role.CONCAT if row.kind == _NAMED_LIKE_CONCAT else row.role
    return operators.ANCHOR_RANK.get(like, 0)


def eager_shares(layers: Sequence[Layer], kernels: Sequence[Kernel]) -> Shares:
    """Shares of eager kernels: each belongs to the layer of its operator."""
    home = _homes(layers)
    found: list[Mapping[int, float]] = []
    for kernel in kernels:
        place = home.get(origin_of(kernel.ops[0]))
        found.append(found[-1] if place is None and found else {place or 0: 1.0})
    return tuple(found)


def compiled_shares(graph: Graph, layers: Sequence[Layer], kernels: Sequence[Kernel]) -> Shares:
    """Shares of compiled kernels.

    A library call belongs to the layer of its operator. A fused kernel is shared out by the bytes that each operator
    computed in it would move alone: its operands and results. What Inductor fuses of a library call, such as adding
    a bias, moves the result of that call in and out. A concatenation that the kernels of its parts write in
    place moves nothing. A kernel of no operator (a copy of a weight to another layout) belongs to the kernel after it.
    """
    home = _homes(layers)
    by_name = {op.name: op for layer in layers for op in layer.ops}
    values = tuple(f"{value.name}." for value in graph.values)
    found: list[Mapping[int, float]] = []
    for kernel in reversed(kernels):
        origins = [origin_of(name) for name in kernel.ops if not name.startswith(values)]
        ops = [by_name[name] for name in dict.fromkeys(origins) if name in by_name]
        weights = _weights(graph, kernel, ops)
        total = sum(weights)
        shares: dict[int, float] = {}
        for op, weight in zip(ops, weights, strict=True):
            if weight:
                shares[home[op.name]] = shares.get(home[op.name], 0.0) + weight / total
        found.append(shares or (found[-1] if found else {len(layers) - 1: 1.0}))
    return tuple(reversed(found))


def _homes(layers: Sequence[Layer]) -> dict[str, int]:
    return {op.name: place for place, layer in enumerate(layers) for op in layer.ops}


def _weights(graph: Graph, kernel: Kernel, ops: Sequence[Op]) -> list[float]:
    """Weight of each operator in a kernel, at least one above 0 if there are operators."""
    if not ops:
        return []
    if kernel.backend != "triton":
        leading = max(range(len(ops)), key=lambda index: (_rank(ops[index]), index))
        return [float(index == leading) for index in range(len(ops))]
    whole = set(kernel.ops)
    joined = [operators.lookup(op).role is Role.CONCAT and op.name not in whole for op in ops]
    moved = [float(max(1, _bytes_alone(graph, op))) for op in ops]
    return moved if all(joined) else [0.0 if part else size for size, part in zip(moved, joined, strict=True)]


def _bytes_alone(graph: Graph, op: Op) -> int:
    """Bytes of an operator's operands and of its first result."""
    if operators.lookup(op).role is Role.EXTERN:
        return 2 * op.type.nbytes
    return sum(graph.type_of(ref).nbytes for ref in dict.fromkeys(op.refs())) + op.type.nbytes
