"""Acyclic graph of blocks -> series-parallel tree for the oracle. Depends on neither torch nor costs.

A pipeline is a sequence of leaves and split-joins. A split-join has branches, one of which may be empty (a residual),
and a leaf that joins them. A part that is not series-parallel is kept with its edges as a `BlockDag`.

Trees of `costmodel.streams` express the order of any items. Here every join is a block and every edge is kept, because
the oracle charges for edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SOURCE = -1
"""Producer of the blocks that read the graph's input; inside a `BlockDag`, the block before it."""
Edges = Mapping[int, Sequence[int]]
"""Block -> its readers."""


@dataclass(frozen=True, slots=True)
class BlockLeaf:
    """One block, by its number."""

    block: int


@dataclass(frozen=True, slots=True)
class BlockSplitJoin:
    """Branches that start at the block before, and the block that joins them.

    `join` is None for the last element of a branch: the join of the surrounding split-join ends it.
    """

    branches: tuple[BlockPipeline, ...]
    join: BlockLeaf | None


@dataclass(frozen=True, slots=True)
class BlockDag:
    """Blocks between two that every path passes, in execution order; `join` as in a split-join.

    `edges` lead into `blocks` and into the join, which has its number there even if `join` is None.
    """

    blocks: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    join: BlockLeaf | None


Element = BlockLeaf | BlockSplitJoin | BlockDag


@dataclass(frozen=True, slots=True)
class BlockPipeline:
    """Elements in sequence; none in the empty branch of a residual."""

    elements: tuple[Element, ...]


def block_tree(count: int, edges: Iterable[tuple[int, int]]) -> BlockPipeline:
    """Build the tree of blocks 0 .. count - 1.

    Blocks without a producer read the graph's input. If several have no consumer, they lead to a last leaf `count`: the
    graph's output.

    Args:
        count: number of blocks.
        edges: (producer, consumer), with the producer's number the smaller.
    """
    known = {(start, end) for start, end in edges if start != end}
    consuming, producing = {end for _, end in known}, {start for start, _ in known}
    ends = [block for block in range(count) if block not in producing]
    blocks = list(range(count))
    known |= {(SOURCE, block) for block in blocks if block not in consuming}
    if len(ends) > 1:
        known |= {(block, count) for block in ends}
        blocks.append(count)
    after: dict[int, list[int]] = {}
    for start, end in sorted(known):
        after.setdefault(start, []).append(end)
    return _pipeline(blocks, SOURCE, None, after)


def blocks_of(pipeline: BlockPipeline) -> Iterator[int]:
    """Blocks of a tree, each once, producers before consumers."""
    for element in pipeline.elements:
        if isinstance(element, BlockLeaf):
            yield element.block
            continue
        if isinstance(element, BlockSplitJoin):
            for branch in element.branches:
                yield from blocks_of(branch)
        else:
            yield from element.blocks
        if element.join is not None:
            yield element.join.block


def _pipeline(blocks: Sequence[int], source: int, end: int | None, after: Edges) -> BlockPipeline:
    """Blocks between `source` and `end` as a pipeline, split at the blocks that every path passes.

    Every path passes a block if no edge leads from an earlier block to a later one. An edge from `source` to `end` is
    an empty branch beside this pipeline, and is ignored here.
    """
    inside = set(blocks)
    far = max((block for block in after.get(source, ()) if block in inside), default=source)
    elements: list[Element] = []
    between: list[int] = []
    start = source
    for block in blocks:
        if far > block:
            between.append(block)
        else:
            elements.append(_joined(between, start, block, after, BlockLeaf(block)) if between else BlockLeaf(block))
            between, start = [], block
        far = max([far, *after.get(block, ())])
    if between and end is not None:
        elements.append(_joined(between, start, end, after, None, own=start != source))
    return BlockPipeline(tuple(elements))


def _joined(
    blocks: Sequence[int], start: int, end: int, after: Edges, join: BlockLeaf | None, own: bool = True
) -> BlockSplitJoin | BlockDag:
    """Element between two blocks that every path passes; `own` if an edge between the two belongs to it."""
    parts = components(blocks, after)
    empty = own and end in after.get(start, ())
    if len(parts) + empty > 1:
        branches = [BlockPipeline(())] if empty else []
        branches += [_pipeline(part, start, end, after) for part in parts]
        return BlockSplitJoin(tuple(branches), join)
    inside = set(blocks)
    edges = [(SOURCE, target) for target in after.get(start, ()) if target in inside]
    edges += [(block, target) for block in blocks for target in after.get(block, ())]
    return BlockDag(tuple(blocks), tuple(edges), join)


def components(blocks: Sequence[int], after: Edges) -> list[list[int]]:
    """Connected components, each in order, sorted by their first blocks."""
    leader = {block: block for block in blocks}

    def find(block: int) -> int:
        while leader[block] != block:
            leader[block] = leader[leader[block]]
            block = leader[block]
        return block

    for block in blocks:
        for target in after.get(block, ()):
            if target in leader:
                leader[find(target)] = find(block)
    parts: dict[int, list[int]] = {}
    for block in blocks:
        parts.setdefault(find(block), []).append(block)
    return list(parts.values())
