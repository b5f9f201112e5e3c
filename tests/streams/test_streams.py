"""Stream trees: exact order, all items, and no general node in series-parallel graphs."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op, operators
from costmodel.prediction.layers import Unit, find_units
from costmodel.streams import (
    Dag,
    Leaf,
    Node,
    Pipeline,
    SplitJoin,
    children_of,
    format_tree,
    leaves,
    nodes,
    operator_tree,
    stream_tree,
    unit_dependencies,
    unit_tree,
)
from costmodel.streams.dominators import Dominators

STUDY = ("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1")
OTHERS = ("swin_t", "vit_b_16", "efficientnet_b0", "timm:dla34")
Before = Sequence[Collection[int]]
Pairs = set[tuple[int, int]]


def tree_order(node: Node[int]) -> Pairs:
    """Pairs of leaves in order, by the definition of the nodes."""
    below = children_of(node)
    found: Pairs = set().union(*map(tree_order, below))
    if isinstance(node, Pipeline):
        edges = [(i, j) for j in range(len(below)) for i in range(j)]
    else:
        edges = (
            list(closure([[a for a, b in node.edges if b == j] for j in range(len(below))]))
            if isinstance(node, Dag)
            else []
        )
    for i, j in edges:
        found |= set(product(leaves(below[i]), leaves(below[j])))
    return found


def closure(before: Before) -> Pairs:
    """All (i, j) such that j depends on i; sources come before their readers."""
    found: list[set[int]] = []
    for sources in before:
        found.append(set(sources).union(*(found[source] for source in sources)))
    return {(i, j) for j, sources in enumerate(found) for i in sources}


def shape(node: Node[int]) -> object:
    """A tree without the order of branches and of a general node's children."""
    if isinstance(node, Leaf):
        return node.item
    below = tuple(map(shape, children_of(node)))
    if isinstance(node, Pipeline):
        return ("pipeline", below)
    if isinstance(node, SplitJoin):
        return ("split-join", frozenset(below))
    return ("dag", frozenset(below), frozenset((below[i], below[j]) for i, j in node.edges))


@st.composite
def dags(draw: st.DrawFn, size: int = 12) -> list[list[int]]:
    count = draw(st.integers(1, size))
    return [sorted(draw(st.sets(st.integers(max(0, i - 4), i - 1), max_size=3))) if i else [] for i in range(count)]


@st.composite
def series_parallel(
    draw: st.DrawFn, entry: tuple[int, ...] = (), before: list[list[int]] | None = None, depth: int = 3
):
    """A graph composed in series and in parallel: (what each item reads, the items that it ends with)."""
    before = [] if before is None else before
    kind = draw(st.sampled_from(("item", "series", "parallel"))) if depth else "item"
    if kind == "item":
        before.append(list(entry))
        return before, (len(before) - 1,)
    ends: tuple[int, ...] = entry if kind == "series" else ()
    for _ in range(draw(st.integers(2, 3))):
        start = ends if kind == "series" else entry
        _, last = draw(series_parallel(start, before, depth - 1))
        ends = last if kind == "series" else ends + last
    return before, ends


class TestDecomposition:
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
    @given(dags())
    def test_the_order_is_that_of_the_graph_and_nothing_is_lost(self, before: Before) -> None:
        tree = stream_tree(range(len(before)), before)
        assert Counter(leaves(tree)) == Counter(range(len(before)))
        assert tree_order(tree) == closure(before)

    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(dags(), st.sets(st.integers(0, 11)))
    def test_constants_keep_the_order(self, before: Before, fed: set[int]) -> None:
        """Where some items depend on no input, the tree may say more than the graph, never less."""
        tree = stream_tree(range(len(before)), before, fed)
        assert Counter(leaves(tree)) == Counter(range(len(before)))
        assert tree_order(tree) >= closure(before)

    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(series_parallel())
    def test_a_series_parallel_graph_needs_no_general_node(
        self, drawn: tuple[list[list[int]], tuple[int, ...]]
    ) -> None:
        before, _ = drawn
        tree = stream_tree(range(len(before)), before)
        assert not any(isinstance(node, Dag) for node in nodes(tree))
        assert tree_order(tree) == closure(before)

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(dags(16))
    def test_the_form_is_canonical(self, before: Before) -> None:
        """No pipeline in a pipeline, no split-join beside a split-join, no branch twice empty."""
        for node in nodes(stream_tree(range(len(before)), before)):
            if isinstance(node, Pipeline):
                assert len(node.children) != 1
                assert not any(isinstance(child, Pipeline) for child in node.children)
            if isinstance(node, SplitJoin):
                assert len(node.branches) > 1
                assert not any(isinstance(branch, SplitJoin) for branch in node.branches)
                assert node.branches.count(Pipeline()) <= 1
            if isinstance(node, Dag):
                assert len(node.children) >= 2  # the smallest is a bridge: b reads a and the entry, the exit a and b
                assert node.edges == tuple(sorted(set(node.edges)))
                assert all(source < target for source, target in node.edges)

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(dags(), st.randoms(use_true_random=False))
    def test_the_shape_does_not_depend_on_the_order_given(self, before: Before, chance: random.Random) -> None:
        names = list(range(len(before)))
        chance.shuffle(names)  # item i is given at place names.index(i)
        shuffled = [[names.index(source) for source in before[name]] for name in names]
        assert shape(stream_tree(names, shuffled)) == shape(stream_tree(range(len(before)), before))

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(dags())
    def test_branches_and_children_come_in_the_order_of_their_first_items(self, before: Before) -> None:
        """An empty branch is the last."""
        for node in nodes(stream_tree(range(len(before)), before)):
            if isinstance(node, SplitJoin | Dag):
                firsts = [next(leaves(child), len(before)) for child in children_of(node)]
                assert firsts == sorted(firsts)

    def test_items_may_come_in_any_order(self) -> None:
        assert list(leaves(stream_tree("cab", [[2], [], [1]]))) == ["a", "b", "c"]

    def test_a_cycle_is_refused(self) -> None:
        with pytest.raises(GraphError, match="items depend on each other in a cycle: 1, 2, 1"):
            stream_tree("abc", [[], [2], [1]])

    def test_nothing_is_an_empty_pipeline(self) -> None:
        assert stream_tree([], []) == Pipeline()

    @pytest.mark.parametrize("shape", ["chain", "ladder", "window", "skips"])
    def test_ten_thousand_items(self, shape: str) -> None:
        """Quadratic time would take minutes here."""
        chance = random.Random(7)
        before = {
            "chain": lambda i: [i - 1],
            "ladder": lambda i: [i - 1, i - 2],
            "window": lambda i: [chance.randrange(max(0, i - 20), i) for _ in range(2)],
            "skips": lambda i: [i - 1, 0, chance.randrange(i)],
        }[shape]
        graph = [[] if i < 2 else sorted({*before(i)}) for i in range(10_000)]
        assert sorted(leaves(stream_tree(range(10_000), graph))) == list(range(10_000))


class TestShapes:
    def test_a_residual_has_an_empty_branch(self) -> None:
        tree = stream_tree(["conv", "body", "add"], [[], [0], [0, 1]])
        assert tree == Pipeline((Leaf("conv"), SplitJoin((Leaf("body"), Pipeline())), Leaf("add")))

    def test_a_residual_from_the_input_too(self) -> None:
        tree = stream_tree(["body", "add"], [[], [0]], fed=[0, 1])
        assert tree == Pipeline((SplitJoin((Leaf("body"), Pipeline())), Leaf("add")))

    def test_all_of_several_read_by_all_of_several(self) -> None:
        tree = stream_tree("abcd", [[], [], [0, 1], [0, 1]])
        assert tree == Pipeline((SplitJoin((Leaf("a"), Leaf("b"))), SplitJoin((Leaf("c"), Leaf("d")))))

    def test_skips_inside_skips_are_series_parallel(self) -> None:
        """A U-Net: down 0, down 1, bottom, up 1 (reads down 1), up 0 (reads down 0)."""
        tree = stream_tree(["d0", "d1", "b", "u1", "u0"], [[], [0], [1], [1, 2], [0, 3]])
        inner = Pipeline((Leaf("d1"), SplitJoin((Leaf("b"), Pipeline())), Leaf("u1")))
        assert tree == Pipeline((Leaf("d0"), SplitJoin((inner, Pipeline())), Leaf("u0")))

    def test_what_shares_a_result_is_general(self) -> None:
        """The study's fused instruction: y + f(x), y + h(x) with y = g(x)."""
        tree = stream_tree(["g", "f", "h", "+f", "+h"], [[], [], [], [0, 1], [0, 2]])
        assert tree == Dag(tuple(map(Leaf, ["g", "f", "h", "+f", "+h"])), ((0, 3), (0, 4), (1, 3), (2, 4)))
        assert tree.levels() == ((0, 1, 2), (3, 4))

    def test_a_region_is_as_small_as_its_entry_and_exit_let_it_be(self) -> None:
        """A dense block (a, b, c from x) with a residual around it, as in ESRGAN: a branch beside it."""
        before = [[], [0], [0, 1], [0, 1, 2], [3], [0, 4]]
        tree = stream_tree(["x", "a", "b", "c", "scale", "add"], before)
        dense = SplitJoin((Dag((Leaf("a"), Leaf("b")), ((0, 1),)), Pipeline()))
        block = Pipeline((dense, Leaf("c"), Leaf("scale")))
        assert tree == Pipeline((Leaf("x"), SplitJoin((block, Pipeline())), Leaf("add")))

    def test_inner_regions_are_children_of_outer_ones(self) -> None:
        """x feeds a dense pair (a, b), then their reader c; c and x feed another (d, e), read by f with x and d."""
        before = [[], [0], [0, 1], [0, 1, 2], [3, 0], [4, 0, 3], [0, 4, 5]]
        tree = stream_tree("xabcdef", before)
        assert sum(isinstance(node, Dag) for node in nodes(tree)) == 2
        outer = next(node for node in nodes(tree) if isinstance(node, Dag))
        assert any(isinstance(node, Dag) for child in outer.children for node in nodes(child))

    def test_parts_between_the_same_ends_are_branches(self) -> None:
        fused = [[0], [0], [0], [1, 2], [1, 3], [4, 5]]  # g, f, h, two sums, their sum
        shifted = [[source + 6 if source else 0 for source in found] for found in fused]
        tree = stream_tree(range(14), [[], *fused, *shifted, [6, 12]])
        split = tree.children[1]
        assert isinstance(split, SplitJoin)
        assert [type(branch) for branch in split.branches] == [Pipeline, Pipeline]
        assert [type(node) for node in split.branches[0].children] == [Dag, Leaf]

    def test_constants_stand_before_what_reads_them(self) -> None:
        names = ["mask", "conv", "t", "linear", "add", "mul"]
        tree = stream_tree(names, [[], [], [], [1, 2], [3, 0], [4, 0]], fed=[1])
        assert list(leaves(tree)) == ["mask", "conv", "t", "linear", "add", "mul"]
        assert not any(isinstance(node, SplitJoin) for node in nodes(tree))


def test_levels_are_the_lengths_of_the_longest_paths() -> None:
    node = Dag(tuple(map(Leaf, "abcde")), ((0, 1), (0, 3), (1, 2), (2, 3)))
    assert node.levels() == ((0, 4), (1,), (2,), (3,))
    assert Dag((), ()).levels() == ()


def test_parents_come_before_their_children_and_these_in_their_order() -> None:
    inner = SplitJoin((Leaf("b"), Pipeline()))
    tree = Pipeline((Leaf("a"), inner, Leaf("c")))
    assert list(nodes(tree)) == [tree, Leaf("a"), inner, Leaf("b"), Pipeline(), Leaf("c")]
    assert list(leaves(tree)) == ["a", "b", "c"]
    assert children_of(Leaf("a")) == ()


def test_the_text_indents_by_depth_and_shows_an_empty_branch() -> None:
    tree = Pipeline((Leaf("a"), SplitJoin((Pipeline((Leaf("b"), Leaf("c"))), Pipeline())), Leaf("d")))
    assert format_tree(tree, str.upper).splitlines() == [
        *("pipeline", "  A", "  split-join", "    pipeline", "      B", "      C", "    -", "  D")
    ]


def test_the_text_names_what_a_general_nodes_children_come_after() -> None:
    tree = stream_tree(["g", "f", "h", "+f", "+h", "end"], [[], [], [], [0, 1], [0, 2], [3, 4]])
    assert format_tree(tree).splitlines() == [
        "pipeline",
        "  dag",
        "    0: g",
        "    1: f",
        "    2: h",
        "    3 after 0,1: +f",
        "    4 after 0,2: +h",
        "  end",
    ]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dags(14))
def test_dominators_are_what_every_path_leads_through(before: Before) -> None:
    """Against the definition: one dominates another if without it the other cannot be reached."""
    into = [dict.fromkeys(sources or ([0] if index else [])) for index, sources in enumerate(before)]
    out = [{j: None for j, tails in enumerate(into) if i in tails} for i in range(len(into))]
    tree = Dominators(range(len(into)), into, out)
    for removed in range(1, len(into)):
        reached = {0}
        for junction in range(1, len(into)):
            if junction != removed and reached & set(into[junction]):
                reached.add(junction)
        for junction in range(len(into)):
            assert tree.dominates(removed, junction) == (junction not in reached)


@pytest.mark.parametrize("model", [*STUDY, *OTHERS])
def test_models_lose_no_operator_and_no_unit(graph_of: Callable[[str], Graph], model: str) -> None:
    graph = graph_of(model)
    order = [op.name for op in leaves(operator_tree(graph))]
    assert sorted(order) == sorted(op.name for op in graph.ops)
    place = {name: index for index, name in enumerate(order)}
    assert all(place[ref.name] < place[op.name] for op in graph.ops for ref in op.refs() if ref.name in place)
    units = find_units(graph)
    ranks = {id(unit): index for index, unit in enumerate(leaves(unit_tree(graph, units)))}
    assert sorted(ranks) == sorted(map(id, units))
    for unit, sources in zip(units, unit_dependencies(graph, units)[0], strict=True):
        assert all(ranks[id(units[source])] < ranks[id(unit)] for source in sources)


@pytest.mark.parametrize("model", ["alexnet", "resnet50", "mobilenet_v2", "googlenet", "squeezenet1_1"])
def test_models_that_are_series_parallel_have_no_general_node(graph_of: Callable[[str], Graph], model: str) -> None:
    graph = graph_of(model)
    assert not any(isinstance(node, Dag) for node in nodes(operator_tree(graph)))
    assert not any(isinstance(node, Dag) for node in nodes(unit_tree(graph, find_units(graph))))


def test_densenet_has_a_general_node_a_block(graph_of: Callable[[str], Graph]) -> None:
    dags_found = [node for node in nodes(operator_tree(graph_of("densenet121"))) if isinstance(node, Dag)]
    assert len(dags_found) == 4


def test_trees_and_programs_need_no_torch() -> None:
    check = "import sys, costmodel.streams, costmodel.streamit, costmodel.ir.passes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize("model", STUDY)
def test_golden(graph_of: Callable[[str], Graph], golden: Callable[[str, str], None], model: str) -> None:
    def label(unit: Unit) -> str:
        return f"{unit.name}: {'+'.join(operators.lookup(op).kind for op in unit.ops)}"

    graph = graph_of(model)
    golden(f"streams_{model}", format_tree(unit_tree(graph, find_units(graph)), label))


def test_views_are_read_through(graph_of: Callable[[str], Graph]) -> None:
    """AlexNet's flattening is a view: its unit tree is one pipeline."""
    graph = graph_of("alexnet")
    tree: Node[Unit] = unit_tree(graph, find_units(graph))
    assert isinstance(tree, Pipeline)
    assert all(isinstance(child, Leaf) for child in tree.children)
    trunk: Node[Op] = operator_tree(graph)
    assert isinstance(trunk, Pipeline)
    assert len(trunk.children) == len(graph.ops)
