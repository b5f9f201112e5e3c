"""Graph -> what is computed once, of parameters alone, and what is left for each pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from costmodel.ir import Graph, Op, Ref, Value, operators
from costmodel.ir.op_table import Role


@dataclass(frozen=True, slots=True)
class Frozen:
    """A graph in two parts.

    Attributes:
        preparation: run once; from original parameters to the parameters `frozen.*` of `main`, in their order there.
        main: run at each pass; its other parameters are original ones.
    """

    preparation: Graph
    main: Graph


def freeze(graph: Graph) -> Frozen:
    """Splits off the operators whose operands are constant; views of constants stay, for they launch no kernel."""
    constant = constant_names(graph)
    computed = {op.name for op in graph.ops if op.name in constant and operators.lookup(op).role is not Role.VIEW}
    kept = _reached(graph, graph.outputs, {op.name for op in graph.ops} - computed)
    read = dict.fromkeys([*(ref for op in kept for ref in op.refs()), *graph.outputs])
    given = {ref: Ref(f"frozen.{ref.name}.{ref.index}") for ref in read if ref.name in computed}
    main = replace(
        graph,
        values=(
            *_values(graph, {ref.name for ref in read}, keep_inputs=True),
            *(Value(new.name, graph.type_of(old), "param") for old, new in given.items()),
        ),
        ops=tuple(op.reading(lambda ref: given.get(ref, ref)) for op in kept),
        outputs=tuple(given.get(ref, ref) for ref in graph.outputs),
    )
    before = _reached(graph, given, constant)
    sources = _values(graph, {ref.name for op in before for ref in op.refs()}, keep_inputs=False)
    return Frozen(Graph(f"{graph.name}.preparation", sources, before, tuple(given)).verify(), main.verify())


def constant_names(graph: Graph) -> set[str]:
    """Names of the operators and parameters that no input has a part in."""
    constant = {value.name for value in graph.values if value.role == "param"}
    for op in graph.ops:
        if not operators.lookup(op).random and all(ref.name in constant for ref in op.refs()):
            constant.add(op.name)
    return constant


def _reached(graph: Graph, targets: Iterable[Ref], among: Collection[str]) -> tuple[Op, ...]:
    """Those operators that the targets depend on without leaving `among`, in order."""
    wanted = {ref.name for ref in targets}
    found: list[Op] = []
    for op in reversed(graph.ops):
        if op.name in wanted and op.name in among:
            found.append(op)
            wanted.update(ref.name for ref in op.refs())
    return tuple(reversed(found))


def _values(graph: Graph, names: Collection[str], keep_inputs: bool) -> tuple[Value, ...]:
    return tuple(value for value in graph.values if value.name in names or (keep_inputs and value.role == "input"))
