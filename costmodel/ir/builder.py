"""What rewrites of a graph share: operators appended under names of their own."""

from __future__ import annotations

from dataclasses import replace

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
