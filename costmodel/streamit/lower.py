"""Graph -> stream program. Graphs that are not series-parallel have one too: channels carry values past stages.

A channel holds the values that are still needed, each once a forward pass, in a fixed order. A stage of the program
runs some operators side by side; values that must pass them have a branch of their own. A general node of the tree
becomes a pipeline of such stages, one a level, and nothing is computed twice. The branch that carries values replaces
the general join that StreamIt lacks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op, Ref
from costmodel.ir.passes import drop_dead_code
from costmodel.streamit.filter_names import filter_name
from costmodel.streamit.types import IDENTITY, Filter, FilterPipeline, FilterSplitJoin, Separator, Stream
from costmodel.streams import Leaf, Node, Pipeline, SplitJoin, operator_tree

ONE_RESULT = frozenset(
    (
        *("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit_no_training", "native_layer_norm"),
        *("native_group_norm", "native_dropout", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    )
)
"""Operators whose modules return the first result alone; other results (statistics, indices) are pushed if read."""

Layout = tuple[Ref, ...]
"""Values that a channel holds in one forward pass, in order."""


def lower(graph: Graph) -> FilterPipeline:
    """Lower a graph to a stream program that pops the inputs of a forward pass and pushes its outputs.

    Parameters, and values computed from parameters alone, belong to the filters that read them.

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
    return FilterPipeline(tuple(streams) or (IDENTITY,))


def constants(graph: Graph) -> tuple[Op, ...]:
    """Operators that depend on no input; they run once, before the stream."""
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
    """Part of the tree: an operator, or stages of branches; it has the places from `start` to before `end`."""

    start: int
    end: int = 0
    op: Op | None = None
    stages: list[list[_Branch]] = field(default_factory=list)


class _Lowering:
    """Places of operators in the order of the tree, and places of the readers of each value.

    Attributes:
        whole: tree in stages.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._constants = {op.name for op in constants(graph)} | {v.name for v in graph.values if v.role == "param"}
        self._place: dict[str, int] = {value.name: -1 for value in graph.inputs}
        self.whole = _Branch(-1)  # the place of the inputs, which belong to it
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
        if isinstance(node, Pipeline):
            return [stage for child in node.children for stage in self._stages(child)]
        if isinstance(node, SplitJoin):
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
        """Streams of a branch for a layout of its input channel, and the layout of its output channel."""
        streams: list[Stream] = []
        for stage in branch.stages:
            added, layout = self._stage([part for part in stage if part.start < part.end], layout, branch)
            streams += added
        return streams, layout

    def _stage(self, parts: Sequence[_Branch], layout: Layout, scope: _Branch) -> tuple[list[Stream], Layout]:
        """Operators or branches side by side, with a branch for values that pass them."""
        end = max(part.end for part in parts)
        past = tuple(ref for ref in layout if self._needed(ref, end, scope))
        wanted = [tuple(ref for ref in layout if self._read_in(ref, part)) for part in parts]
        if not past and len(parts) == 1:
            streams, made = self._part(parts[0], wanted[0])
            return [*_select(layout, wanted[0]), *streams], made
        results = [self._part(part, taken) for part, taken in zip(parts, wanted, strict=True)]
        if past:  # first, so that older values precede newer ones, as in most operators' arguments
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
        """Whether a later operator reads a value, within this branch if the value came from outside."""
        places = self._readers.get(ref, [])
        index = bisect_left(places, after)
        return index < len(places) and (self._place[ref.name] >= scope.start or places[index] < scope.end)

    def _read_in(self, ref: Ref, part: _Branch) -> bool:
        places = self._readers.get(ref, [])
        index = bisect_left(places, part.start)
        return index < len(places) and places[index] < part.end


def _select(layout: Layout, wanted: Layout) -> list[Stream]:
    """Separator that passes some of the values; none if all pass."""
    return [] if wanted == layout else [Separator(tuple(wanted.count(ref) for ref in layout))]


def _split_join(
    layout: Layout, wanted: Sequence[Layout], results: Sequence[tuple[list[Stream], Layout]]
) -> FilterSplitJoin:
    """Split-join of branches that read parts of a layout: round-robin if each value has one branch, else duplicate."""
    round_robin = tuple(ref for taken in wanted for ref in taken) == layout and len(layout) > 1
    branches = []
    for taken, (streams, _) in zip(wanted, results, strict=True):
        chosen = [] if round_robin else _select(layout, taken)
        branches.append(_in_sequence([*chosen, *streams]))
    joiner = tuple(len(made) for _, made in results)
    return FilterSplitJoin(tuple(branches), joiner, tuple(map(len, wanted)) if round_robin else ())


def _in_sequence(streams: Sequence[Stream]) -> Stream:
    return streams[0] if len(streams) == 1 else FilterPipeline(tuple(streams) or (IDENTITY,))


def _arrange(layout: Layout, outputs: Layout) -> list[Stream]:
    """Streams that bring the remaining values into the order of the outputs."""
    if outputs == layout:
        return []
    if tuple(ref for ref in layout for _ in range(outputs.count(ref))) == outputs:
        return [Separator(tuple(outputs.count(ref) for ref in layout))]
    branches = tuple(Separator(tuple(int(ref == output) for ref in layout)) for output in outputs)
    return [FilterSplitJoin(branches, (1,) * len(outputs))]
