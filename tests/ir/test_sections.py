"""Sections of a graph: assignment by hand, and sections that together compute the same as the whole graph."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.ir import Graph, Op, Partition, Ref, TensorType, Value
from costmodel.ir.sections import partitioned, split

KIND = TensorType("float32", (2, 3))


def chain(names: list[str]) -> Graph:
    """Operators in a row, each reading the one before and the input."""
    ops = [
        Op(str(index), name, (("self", Ref(str(index - 1) if index else "x")), ("other", Ref("x"))), (KIND,))
        for index, name in enumerate(names)
    ]
    return Graph("chain", (Value("x", KIND, "input"),), tuple(ops), (Ref(str(len(names) - 1)),))


@pytest.mark.parametrize(
    ("names", "ran", "sections", "expected"),
    [
        pytest.param("abc", ["ab", "c"], (0, 1), [0, 0, 1], id="equal"),
        pytest.param("abc", ["abb", "dc"], (0, 1), [0, 0, 1], id="dead-code-left-out"),
        pytest.param("aLc", ["a", "mns", "c"], (0, None, 1), [0, 1, 2], id="kept-whole"),
        pytest.param("aXYc", ["a", "pqrs", "tuvw", "c"], (0, None, 1, 2), [0, 1, 2, 3], id="two-kept-whole"),
        pytest.param("aLc", ["a", "c"], (0, 1), [0, 0, 1], id="not-seen"),
        pytest.param("Lc", ["mn", "c"], (None, 0), [0, 1], id="first"),
        pytest.param("aL", ["a", "mn"], (0, None), [0, 1], id="last"),
    ],
)
def test_operators_take_the_sections_that_they_ran_in(
    names: str, ran: list[str], sections: tuple[int | None, ...], expected: list[int]
):
    graph = partitioned(chain(list(names)), Partition(sections, 2), ran)
    assert [op.section for op in graph.ops] == expected
    assert graph.partition == Partition(sections, 2)


def test_an_eager_section_without_operators_of_the_graph_is_left_out():
    graph = partitioned(chain(["a", "b"]), Partition((None, 0, None, 1), 2), [["detach"], ["a"], ["seed"], ["b"]])
    assert graph.partition == Partition((0, 1), 2)
    assert [op.section for op in graph.ops] == [0, 1]


def test_a_graph_that_was_not_checked_is_one_section():
    graph = chain(["a", "b"])
    assert split(graph) == [(0, graph)]


def test_results_that_another_section_reads_are_outputs_there_and_inputs_here():
    graph = partitioned(chain(["a", "b", "c"]), Partition((0, None), 1), [["a", "b"], ["c"]])
    (number, first), (none, second) = split(graph)
    assert (number, none) == (0, None)
    assert first.outputs == (Ref("1"),)
    assert [value.name for value in second.values] == ["1", "x"]
    assert second.outputs == (Ref("2"),)


def interpreted(graph: Graph, known: dict[str, int]) -> dict[str, int]:
    """A number for each value: of an operator by its name and the numbers that it reads."""
    values = dict(known)
    for op in graph.ops:
        values[op.name] = hash((op.op, tuple(values[ref.name] for ref in op.refs())))
    return values


@st.composite
def divided(draw: st.DrawFn) -> Graph:
    """Random data flow in sections of random sizes."""
    count = draw(st.integers(1, 12))
    ops = []
    for index in range(count):
        names = ["x", "w", *map(str, range(index))]
        read = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        args = tuple((f"a{place}", Ref(name)) for place, name in enumerate(read))
        ops.append(Op(str(index), draw(st.sampled_from("fgh")), args, (KIND,)))
    outputs = draw(st.lists(st.sampled_from([op.name for op in ops]), min_size=1, unique=True))
    values = (Value("x", KIND, "input"), Value("w", KIND, "param"))
    graph = Graph("random", values, tuple(ops), tuple(map(Ref, outputs)))
    cuts = sorted(draw(st.sets(st.integers(1, count), max_size=4)) | {0, count})
    parts = [[op.base for op in ops[start:end]] for start, end in itertools.pairwise(cuts)]
    numbers = tuple(draw(st.sampled_from([index, None])) for index in range(len(parts)))
    return partitioned(graph, Partition(numbers, 1), parts)


@given(divided())
def test_sections_one_after_another_compute_what_the_whole_computes(graph: Graph):
    whole = interpreted(graph, {"x": 1, "w": 2})
    known = {"x": 1, "w": 2}
    for _, part in split(graph):
        part.verify()
        found = interpreted(part, {value.name: known[value.name] for value in part.values})
        known |= {ref.name: found[ref.name] for ref in part.outputs}
    assert all(known[ref.name] == whole[ref.name] for ref in graph.outputs)
    assert sum(len(part.ops) for _, part in split(graph)) == len(graph.ops)
    assert graph.partition is not None
    if not graph.partition.is_whole:
        assert [number for number, _ in split(graph)] == list(graph.partition.sections)
