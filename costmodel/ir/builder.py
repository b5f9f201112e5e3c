"""Builders for graph rewrites: new operators under unique names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType


class Emitter:
    """Builder of a list of operators, named after the operator that they belong to.

    Attributes:
        ops: operators added so far, in order.
    """

    def __init__(self, graph: Graph, origin: str, module: str = "") -> None:
        self.ops: list[Op] = []
        self._graph, self._origin, self._module = graph, origin, module
        self._types: dict[str, TensorType] = {}

    def type_of(self, ref: Ref) -> TensorType:
        """Type of a value of the graph or of an added operator."""
        return self._types.get(ref.name) or self._graph.type_of(ref)

    def add(self, op: str, like: TensorType, *args: tuple[str, Arg]) -> Ref:
        """Add an operator and return its result."""
        name = f"{self._origin}.{len(self.ops)}"
        self.ops.append(Op(name, op, args, (like,), self._module))
        self._types[name] = like
        return Ref(name)

    def cast(self, ref: Ref, dtype: str) -> Ref:
        """Convert a value to another dtype; the value itself if it has that dtype."""
        kind = self.type_of(ref)
        if kind.dtype == dtype:
            return ref
        return self.add("_to_copy", replace(kind, dtype=dtype), ("self", ref), ("dtype", f"torch.{dtype}"))


def rewritten(graph: Graph, rewrites: Mapping[str, Rewrite]) -> Graph:
    """Replace each operator by its rewrite, if there is one by its name and it applies; else the graph itself."""
    if not any(op.base in rewrites for op in graph.ops):
        return graph
    users = graph.users()
    returned = frozenset(ref.name for ref in graph.outputs)
    rewritten: list[Op] = []
    for op in graph.ops:
        rewrite = rewrites.get(op.base)
        made = rewrite(Site(graph, op, users, returned)) if rewrite else None
        rewritten += made or [op]
    if len(rewritten) == len(graph.ops) and all(new is old for new, old in zip(rewritten, graph.ops, strict=True)):
        return graph
    return replace(graph, ops=tuple(rewritten))


@dataclass(slots=True)
class Site:
    """One operator of a graph, and the operators that replace it, all in its module.

    Attributes:
        graph: the graph before any rewrite.
        op: the operator to rewrite.
        users: operators that read each value, by name.
        returned: names of the values that the graph returns.
    """

    graph: Graph
    op: Op
    users: Mapping[str, list[Op]]
    returned: Set[str]
    _made: list[Op] = field(default_factory=list)

    def ref(self, name: str) -> Ref | None:
        """Value passed as the argument of that name; None if it is no tensor."""
        ref = self.op.arg(name)
        return ref if isinstance(ref, Ref) else None

    def add(self, base: str, kind: TensorType | tuple[TensorType, ...], /, **args: Arg) -> Ref:
        """Add an operator under a unique name and return its result."""
        types = kind if isinstance(kind, tuple) else (kind,)
        name = f"{self.op.name}.{len(self._made)}"
        self._made.append(Op(name, base, tuple(args.items()), types, self.op.module))
        return Ref(name)

    def finish(self, base: str, /, **args: Arg) -> list[Op]:
        """Add the last operator, which takes the name and result types of the replaced one."""
        self._made.append(Op(self.op.name, base, tuple(args.items()), self.op.types, self.op.module))
        return self._made


Rewrite = Callable[[Site], list[Op] | None]
"""Operators that replace the operator at a site; None to keep it."""
