"""Graph -> stream program. Every graph has one: what its tree cannot say in series and parallel, channels carry.

A channel holds the values that are still needed, each once a forward pass, in a known order. A stage of the program
runs some operators side by side; where other values must pass them by, they do so in a branch of their own. A general
region of the tree is a pipeline of such stages, one for each of its levels: nothing is computed twice, and the branch
that carries values is what StreamIt's split-joins have in place of a general join.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op, Ref
from costmodel.ir.passes import drop_dead_code
from costmodel.streamit.filter_names import filter_name
from costmodel.streamit.types import IDENTITY, Filter, Pipeline, Separator, SplitJoin, Stream
from costmodel.streams import Leaf, Node, operator_tree
from costmodel.streams import Pipeline as Series
from costmodel.streams import SplitJoin as Parallel

ONE_RESULT = frozenset(
    (
        *("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit_no_training", "native_layer_norm"),
        *("native_group_norm", "native_dropout", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    )
)
"""Operators whose modules return the first result alone; others (statistics for training, indices) come if read."""

Layout = tuple[Ref, ...]
"""The values that a channel holds in one forward pass, in order."""


def lower(graph: Graph) -> Pipeline:
    """The stream program of a graph: it pops a forward pass's inputs and pushes its outputs.

    Parameters, and what is computed of parameters alone, belong to the filters that read them.

    Raises:
        GraphError: the graph returns a parameter, or takes no input.
    """
    graph = drop_dead_code(graph)
    if not graph.inputs:
        raise GraphError(f"{graph.name}: a stream program needs an input")
    lowering = _Lowering(graph)
    layout = tuple(Ref(value.name) for value in graph.inputs)
    streams, layout = lowering.chain(lowering.whole, layout)
    streams += _arrange(layout, graph.outputs)
    return Pipeline(tuple(streams) or (IDENTITY,))


def constants(graph: Graph) -> tuple[Op, ...]:
    """The operators that depend on no input: they run once, before the stream."""
    varying = {value.name for value in graph.inputs}
    found: list[Op] = []
    for op in graph.ops:
        if any(ref.name in varying for ref in op.refs()):
            varying.add(op.name)
        else:
            found.append(op)
    return tuple(found)


@dataclass(slots=True)
class _Branch:
    """A part of the tree: an operator, or stages of branches; it takes the places from `start` to before `end`."""

    start: int
    end: int = 0
    op: Op | None = None
    stages: list[list[_Branch]] = field(default_factory=list)


class _Lowering:
    """Places of operators in the tree's order, and who reads what where.

    Attributes:
        whole: the tree, in stages.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constants = {op.name for op in constants(graph)} | {v.name for v in graph.values if v.role == "param"}
        self._place: dict[str, int] = {value.name: -1 for value in graph.inputs}
        self.whole = _Branch(-1)  # the inputs' place: they belong to it
        self.whole.stages = self._stages(operator_tree(graph))
        self.whole.end = len(self._place)
        self._readers: dict[Ref, list[int]] = {}
        for op in graph.ops:
            for ref in op.refs() if op.name in self._place else ():
                self._readers.setdefault(ref, []).append(self._place[op.name])
        for places in self._readers.values():
            places.sort()
        for ref in graph.outputs:
            if ref.name in self._constants:
                raise GraphError(f"{graph.name} returns {ref}, which depends on no input")
            self._readers.setdefault(ref, []).append(len(self._place))

    def _stages(self, node: Node[Op]) -> list[list[_Branch]]:
        if isinstance(node, Leaf):
            return [] if node.item.name in self._constants else [[self._leaf(node.item)]]
        if isinstance(node, Series):
            return [stage for child in node.children for stage in self._stages(child)]
        if isinstance(node, Parallel):
            return [[self._branch(branch) for branch in node.branches]]
        return [[self._branch(node.children[index]) for index in level] for level in node.levels()]

    def _leaf(self, op: Op) -> _Branch:
        place = self._place[op.name] = len(self._place)
        return _Branch(place, place + 1, op)

    def _branch(self, node: Node[Op]) -> _Branch:
        branch = _Branch(len(self._place))
        branch.stages = self._stages(node)
        branch.end = len(self._place)
        return branch

    def chain(self, branch: _Branch, layout: Layout) -> tuple[list[Stream], Layout]:
        """The streams of a branch, given what its channel holds, and what the channel after it holds."""
        streams: list[Stream] = []
        for stage in branch.stages:
            added, layout = self._stage([part for part in stage if part.start < part.end], layout, branch)
            streams += added
        return streams, layout

    def _stage(self, parts: Sequence[_Branch], layout: Layout, scope: _Branch) -> tuple[list[Stream], Layout]:
        """Operators or branches side by side, and beside them what passes by."""
        end = max(part.end for part in parts)
        past = tuple(ref for ref in layout if self._needed(ref, end, scope))
        wanted = [tuple(ref for ref in layout if self._read_in(ref, part)) for part in parts]
        if not past and len(parts) == 1:
            streams, made = self._part(parts[0], wanted[0])
            return [*_select(layout, wanted[0]), *streams], made
        results = [self._part(part, taken) for part, taken in zip(parts, wanted, strict=True)]
        if past:  # first, so that older values stand before newer ones, as in most operators' arguments
            wanted.insert(0, past)
            results.insert(0, ([], past))
        return [_split_join(layout, wanted, results)], tuple(ref for _, made in results for ref in made)

    def _part(self, part: _Branch, layout: Layout) -> tuple[list[Stream], Layout]:
        if part.op is None:
            return self.chain(part, layout)
        op = part.op
        refs = tuple(Ref(op.name, index) for index in range(len(op.types)))
        sure = 1 if op.base in ONE_RESULT else len(refs)
        made = tuple(ref for ref in refs if ref.index < sure or ref in self._readers)
        stream = Filter(
            name=filter_name(self._graph, op, layout),
            pop=len(layout),
            peek=len(layout),
            push=len(made),
            op=op,
            reads=layout,
            results=tuple(ref.index for ref in made),
        )
        live = tuple(ref for ref in made if ref in self._readers)
        return [stream, *_select(made, live)], live

    def _needed(self, ref: Ref, after: int, scope: _Branch) -> bool:
        """Whether a value must be passed on: something further along reads it, in this branch if it came into it."""
        places = self._readers.get(ref, [])
        index = bisect_left(places, after)
        return index < len(places) and (self._place[ref.name] >= scope.start or places[index] < scope.end)

    def _read_in(self, ref: Ref, part: _Branch) -> bool:
        places = self._readers.get(ref, [])
        index = bisect_left(places, part.start)
        return index < len(places) and places[index] < part.end


def _select(layout: Layout, wanted: Layout) -> list[Stream]:
    """A separator that passes on some of the values; none where all pass."""
    return [] if wanted == layout else [Separator(tuple(wanted.count(ref) for ref in layout))]


def _split_join(layout: Layout, wanted: Sequence[Layout], results: Sequence[tuple[list[Stream], Layout]]) -> SplitJoin:
    """Branches that want parts of a layout: dealt out in turn if no value goes to two of them, else duplicated."""
    dealt = tuple(ref for taken in wanted for ref in taken) == layout and len(layout) > 1
    branches = []
    for taken, (streams, _) in zip(wanted, results, strict=True):
        chosen = [] if dealt else _select(layout, taken)
        branches.append(_joined([*chosen, *streams]))
    joiner = tuple(len(made) for _, made in results)
    return SplitJoin(tuple(branches), joiner, tuple(map(len, wanted)) if dealt else ())


def _joined(streams: Sequence[Stream]) -> Stream:
    return streams[0] if len(streams) == 1 else Pipeline(tuple(streams) or (IDENTITY,))


def _arrange(layout: Layout, outputs: Layout) -> list[Stream]:
    """Brings what is left into the order in which it is returned."""
    if outputs == layout:
        return []
    if tuple(ref for ref in layout for _ in range(outputs.count(ref))) == outputs:
        return [Separator(tuple(outputs.count(ref) for ref in layout))]
    branches = tuple(Separator(tuple(int(ref == output) for ref in layout)) for output in outputs)
    return [SplitJoin(branches, (1,) * len(outputs))]
