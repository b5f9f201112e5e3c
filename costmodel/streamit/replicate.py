"""Replication of shared operators, which makes a graph series-parallel, and its cost.

Fused instruction replication after Dighe (2024), section 4.3.5, restricted to general nodes of the stream tree: inside
one, every use of a result gets its own operator, so that trees remain, which split-joins express. The alternative, used
by `lower`, carries the result past operators that do not need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op, Ref
from costmodel.ir import operators as operators_module
from costmodel.ir.passes import drop_dead_code
from costmodel.streamit.lower import constants, lower
from costmodel.streamit.schedule import schedule
from costmodel.streamit.types import Separator
from costmodel.streams import Dag, Leaf, Node, children_of, leaves, nodes, operator_tree

LIMIT = 10_000
"""Most operators of a replicated graph; a dense block doubles with every layer."""


@dataclass(frozen=True, slots=True)
class JoinCost:
    """Cost of the general nodes of a graph in one forward pass, replicated or carried.

    Attributes:
        operators: additional operators if shared results are recomputed.
        flops: FLOPs of the additional operators.
        carried: tensors that separators and identities pass on if shared results are carried.
    """

    operators: int
    flops: int
    carried: int

    def __str__(self) -> str:
        return (
            f"replicated: {self.operators} more operators, {self.flops / 1e9:.3f} GFLOP; "
            f"carried: {self.carried} tensors passed on, nothing computed twice"
        )


def join_cost(graph: Graph) -> JoinCost:
    """Compare the cost of replicating shared results of a graph with that of carrying them."""
    more = {name: runs - 1 for name, runs in executions(graph).items()}
    flops = sum(more[op.name] * operators_module.flops(graph, op) for op in graph.ops if op.name in more)
    plan = schedule(lower(graph))
    actors = zip(plan.actor_graph.actors, plan.steady, strict=True)
    carried = sum(runs * actor.work.push for actor, runs in actors if isinstance(actor.work, Separator))
    return JoinCost(sum(more.values()), flops, carried)


def executions(graph: Graph) -> dict[str, int]:
    """Count runs of each operator between inputs and outputs in the replicated graph.

    The counts are an upper bound if the replicated graph would have more than LIMIT operators.
    """
    graph = drop_dead_code(graph)
    bound = _bound(graph)
    if sum(bound.values()) > LIMIT:
        return bound
    known = {op.name for op in graph.ops}
    made = Counter(_origin(op.name, known) for op in _unfold(graph).ops)
    return {name: made[name] for name in bound}


def _origin(name: str, known: set[str]) -> str:
    """Name of the operator that a copy, or a copy of a copy, was made from."""
    while name not in known:
        name = name.rpartition(".copy")[0]
    return name


def _bound(graph: Graph) -> dict[str, int]:
    """Upper bound on the runs of each operator: results of nested regions are counted for every copy."""
    users = _users(graph)
    fixed = {op.name for op in constants(graph)}
    found: dict[str, int] = {}
    pending: list[tuple[Node[Op], int]] = [(operator_tree(graph), 1)]
    while pending:
        node, runs = pending.pop()
        if isinstance(node, Leaf):
            found[node.item.name] = runs
            continue
        times = _runs(node, users) if isinstance(node, Dag) else [1] * len(children_of(node))
        pending += [(child, runs * often) for child, often in zip(children_of(node), times, strict=True)]
    return {name: runs for name, runs in found.items() if name not in fixed}


def replicate_shared(graph: Graph, limit: int = LIMIT) -> Graph:
    """Replicate operators for every use of a shared result, so that the stream tree has no general node.

    Copies are called `NAME.copy1`, and so on. Dead code is left out.

    Raises:
        GraphError: the result would have more operators than `limit`.
    """
    graph = drop_dead_code(graph)
    number = sum(_bound(graph).values())
    if number > limit:
        raise GraphError(
            f"{graph.name}: replication would make {number} operators of {len(graph.ops)}; carry them instead"
        )
    return _unfold(graph)


def _unfold(graph: Graph) -> Graph:
    fixed = {op.name for op in constants(graph)}
    while any(isinstance(node, Dag) for node in nodes(operator_tree(graph))):
        graph = _unfold_outermost(graph, fixed)
    return graph


def _unfold_outermost(graph: Graph, fixed: set[str]) -> Graph:
    users, taken = _users(graph), {op.name for op in graph.ops}
    first = [op for op in graph.ops if op.name in fixed]
    made: list[Op] = []
    pending: list[Node[Op]] = [operator_tree(graph)]
    while pending:
        node = pending.pop()
        if isinstance(node, Dag):
            made += _Unfolding(node, users, fixed, taken).ops()
        elif isinstance(node, Leaf):
            made += [node.item] if node.item.name not in fixed else []
        else:
            pending.extend(reversed(children_of(node)))
    return replace(graph, ops=(*first, *made)).verify()


class _Unfolding:
    """General node as trees, one for each child that is read outside; new names are added to `taken`."""

    def __init__(self, region: Dag[Op], users: Mapping[str, set[str]], fixed: set[str], taken: set[str]) -> None:
        self._children = [[op for op in leaves(child) if op.name not in fixed] for child in region.children]
        self._before = _before(region)
        self._returned = [index for index, read in enumerate(_read_outside(region, users)) if read]
        self._used = {op.name for index in self._returned for op in self._children[index]}
        self._taken = taken

    def ops(self) -> Iterator[Op]:
        for index in self._returned:
            yield from self._tree(index, {}, keep=True)

    def _tree(self, index: int, names: dict[str, str], *, keep: bool) -> Iterator[Op]:
        """Child after its own copies of all that it reads; names of the copies are added to `names`."""
        inner: dict[str, str] = {}
        for source in self._before[index]:
            yield from self._tree(source, inner, keep=False)
        for op in self._children[index]:
            inner[op.name] = names[op.name] = op.name if keep else self._fresh(op.name)
            moved = op.reading(lambda ref: Ref(inner.get(ref.name, ref.name), ref.index))
            yield replace(moved, name=inner[op.name])

    def _fresh(self, name: str) -> str:
        """Name itself the first time, if nothing outside reads it, else the name of a copy."""
        if name not in self._used:
            self._used.add(name)
            return name
        fresh = next(copy for number in count(1) if (copy := f"{name}.copy{number}") not in self._taken)
        self._taken.add(fresh)
        return fresh


def _runs(region: Dag[Op], users: Mapping[str, set[str]]) -> list[int]:
    """Runs of each child of a region with its own copy for each use: one for outside, and one for each reader."""
    runs = [int(read) for read in _read_outside(region, users)]
    before = _before(region)
    for index in reversed(range(len(runs))):
        for source in before[index]:
            runs[source] += runs[index]
    return runs


def _before(region: Dag[Op]) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in region.children]
    for source, target in region.edges:
        before[target].append(source)
    return before


def _read_outside(region: Dag[Op], users: Mapping[str, set[str]]) -> Sequence[bool]:
    """Whether each child is read outside the region."""
    inside = {op.name for op in leaves(region)}
    return [any(not users[op.name] <= inside for op in leaves(child)) for child in region.children]


def _users(graph: Graph) -> dict[str, set[str]]:
    """Operator -> its readers; the empty name stands for the outputs of the graph."""
    users: dict[str, set[str]] = {op.name: set() for op in graph.ops}
    for op in graph.ops:
        for ref in op.refs():
            if ref.name in users:
                users[ref.name].add(op.name)
    for ref in graph.outputs:
        if ref.name in users:
            users[ref.name].add("")
    return users
