"""What rewrites of a graph share: operators appended under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType


class Emitter:
    """Appends operators on tensors of given types, named after the operator that they are made for.

    Attributes:
        ops: what was appended, in order.
    """

    def __init__(self, graph: Graph, origin: str, module: str = "") -> None:
        self.ops: list[Op] = []
        self._graph, self._origin, self._module = graph, origin, module
        self._types: dict[str, TensorType] = {}

    def type_of(self, ref: Ref) -> TensorType:
        """The type of a value of the graph, or of what was appended."""
        return self._types.get(ref.name) or self._graph.type_of(ref)

    def add(self, op: str, like: TensorType, *args: tuple[str, Arg]) -> Ref:
        """One more operator, and its result."""
        name = f"{self._origin}.{len(self.ops)}"
        self.ops.append(Op(name, op, args, (like,), self._module))
        self._types[name] = like
        return Ref(name)

    def cast(self, ref: Ref, dtype: str) -> Ref:
        """A value in another element type; itself where it has that."""
        kind = self.type_of(ref)
        if kind.dtype == dtype:
            return ref
        return self.add("_to_copy", replace(kind, dtype=dtype), ("self", ref), ("dtype", f"torch.{dtype}"))


def rewritten(graph: Graph, rewrites: Mapping[str, Rewrite]) -> Graph:
    """The graph after each operator's rewrite, by its name, where it has one that applies."""
    users = graph.users()
    returned = frozenset(ref.name for ref in graph.outputs)
    rewritten: list[Op] = []
    for op in graph.ops:
        rewrite = rewrites.get(op.base)
        made = rewrite(Site(graph, op, users, returned)) if rewrite else None
        rewritten += made or [op]
    return replace(graph, ops=tuple(rewritten))


@dataclass(slots=True)
class Site:
    """One operator where it stands, and the operators that it is rewritten into, all in its module.

    Attributes:
        graph: the graph before any rewrite.
        op: the operator.
        users: value -> the operators that read it.
        returned: names of what the graph returns.
    """

    graph: Graph
    op: Op
    users: Mapping[str, list[Op]]
    returned: Set[str]
    _made: list[Op] = field(default_factory=list)

    def ref(self, name: str) -> Ref | None:
        """The argument of that name, if it is a tensor."""
        ref = self.op.arg(name)
        return ref if isinstance(ref, Ref) else None

    def add(self, base: str, kind: TensorType | tuple[TensorType, ...], /, **args: Arg) -> Ref:
        """One more operator, under a name of its own."""
        types = kind if isinstance(kind, tuple) else (kind,)
        name = f"{self.op.name}.{len(self._made)}"
        self._made.append(Op(name, base, tuple(args.items()), types, self.op.module))
        return Ref(name)

    def finish(self, base: str, /, **args: Arg) -> list[Op]:
        """The operator that takes the old name, and with it the old results."""
        self._made.append(Op(self.op.name, base, tuple(args.items()), self.op.types, self.op.module))
        return self._made


Rewrite = Callable[[Site], list[Op] | None]
