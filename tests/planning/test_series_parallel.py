"""Series-parallel trees of blocks: shapes by hand, and properties on random graphs."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.planning.series_parallel import (
    SOURCE,
    BlockDag,
    BlockLeaf,
    BlockPipeline,
    BlockSplitJoin,
    block_tree,
    blocks_of,
)


def chain(*elements) -> BlockPipeline:
    return BlockPipeline(tuple(BlockLeaf(item) if isinstance(item, int) else item for item in elements))


@pytest.mark.parametrize(
    ("count", "edges", "tree"),
    [
        pytest.param(0, [], chain(), id="nothing"),
        pytest.param(3, [(0, 1), (1, 2)], chain(0, 1, 2), id="row"),
        pytest.param(
            4,
            [(0, 1), (1, 2), (0, 2), (2, 3)],
            chain(0, BlockSplitJoin((chain(), chain(1)), BlockLeaf(2)), 3),
            id="residual: one branch is empty",
        ),
        pytest.param(
            5,
            [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)],
            chain(0, BlockSplitJoin((chain(1), chain(2, 3)), BlockLeaf(4))),
            id="two branches",
        ),
        pytest.param(
            6,
            [(0, 1), (0, 2), (1, 3), (1, 4), (3, 5), (4, 5), (2, 5)],
            chain(0, BlockSplitJoin((chain(1, BlockSplitJoin((chain(3), chain(4)), None)), chain(2)), BlockLeaf(5))),
            id="a branch that splits again and ends in the same join",
        ),
        pytest.param(
            5,
            [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4)],
            chain(0, BlockDag((1, 2), ((SOURCE, 1), (SOURCE, 2), (1, 2), (1, 3), (2, 3)), BlockLeaf(3)), 4),
            id="a bridge between two branches is a dag",
        ),
        pytest.param(
            3,
            [(0, 1), (0, 2)],
            chain(0, BlockSplitJoin((chain(1), chain(2)), BlockLeaf(3))),
            id="two results: leaf 3 is the end",
        ),
        pytest.param(
            3,
            [(0, 2), (1, 2)],
            chain(BlockSplitJoin((chain(0), chain(1)), BlockLeaf(2))),
            id="two blocks read the input",
        ),
    ],
)
def test_trees_by_hand(count, edges, tree):
    assert block_tree(count, edges) == tree


def edges_of(tree: BlockPipeline) -> set[tuple[int, int]]:
    """Every (producer, consumer) of a tree."""
    return set(_edges(tree, SOURCE, None))


def _edges(tree: BlockPipeline, source: int, end: int | None) -> Iterator[tuple[int, int]]:
    last = source
    for element in tree.elements:
        if isinstance(element, BlockLeaf):
            yield last, element.block
            last = element.block
            continue
        target = end if element.join is None else element.join.block
        if isinstance(element, BlockDag):
            yield from ((last if start == SOURCE else start, stop) for start, stop in element.edges)
        else:
            for branch in element.branches:
                yield from _edges(branch, last, target)
        if element.join is None:
            return
        last = target
    if end is not None:
        yield last, end


@st.composite
def graphs(draw) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 12))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    return count, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@st.composite
def series_parallel(draw) -> tuple[int, list[tuple[int, int]]]:
    """Random graph composed in series and in parallel."""
    edges: list[tuple[int, int]] = []
    counter = iter(range(10_000))

    def grow(start: int, depth: int) -> int:
        last = start
        for _ in range(draw(st.integers(1, 3))):
            ends = [last]
            if depth and draw(st.booleans()):
                ends = [grow(last, depth - 1) for _ in range(draw(st.integers(2, 3)))]
                ends += [last] if draw(st.booleans()) else []
            block = next(counter)
            edges.extend((end, block) for end in ends)
            last = block
        return last

    grow(next(counter), draw(st.integers(0, 3)))
    return next(counter), edges


@given(graphs())
def test_a_tree_has_every_block_once_and_every_edge(graph):
    count, edges = graph
    tree = block_tree(count, edges)
    consumers, producers = {end for _, end in edges}, {start for start, _ in edges}
    ends = [block for block in range(count) if block not in producers]
    expected = set(edges) | {(SOURCE, block) for block in range(count) if block not in consumers}
    expected |= {(block, count) for block in ends} if len(ends) > 1 else set()
    assert sorted(blocks_of(tree)) == list(range(count + (len(ends) > 1)))
    assert edges_of(tree) == expected
    order = {block: index for index, block in enumerate(blocks_of(tree))}
    assert all(order[start] < order[end] for start, end in edges)


@given(series_parallel())
def test_a_series_parallel_graph_has_no_dag(graph):
    count, edges = graph
    tree = block_tree(count, edges)
    assert "BlockDag" not in repr(tree)
    assert edges_of(tree) == {(SOURCE, 0), *edges}


def test_ten_thousand_blocks_in_a_row_of_residuals():
    edges = [(i, i + 1) for i in range(9999)] + [(i, i + 2) for i in range(0, 9998, 2)]
    tree = block_tree(10_000, edges)
    assert edges_of(tree) == {(SOURCE, 0), *edges}
    assert sum(isinstance(element, BlockSplitJoin) for element in tree.elements) == 4999
