"""Sections of a partitioned graph: assignment of operators to sections, and each section as a graph of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from costmodel.ir.partition import Partition
from costmodel.ir.types import Graph, Op, Ref, Value


def partitioned(graph: Graph, partition: Partition, ops: Sequence[Sequence[str]]) -> Graph:
    """Assign the operators of a graph to the sections of a partition.

    An eager section without any operator of the graph is left out.

    Args:
        graph: captured graph.
        partition: sections of a call.
        ops: operators that ran in each section, by name without overload, in order. The lists may differ from the
            graph's operators, which leave out dead code and keep attention and recurrent layers whole.
    """
    named = [(name, index) for index, section in enumerate(ops) for name in section]
    found = _aligned([op.base for op in graph.ops], [name for name, _ in named], [index for _, index in named])
    kept = [
        index
        for index, number in enumerate(partition.sections)
        if number is not None or index in found or not partition.entered
    ]
    places = {index: place for place, index in enumerate(kept)}
    placed = tuple(replace(op, section=places[index]) for op, index in zip(graph.ops, found, strict=True))
    sections = tuple(partition.sections[index] for index in kept)
    return replace(graph, ops=placed, partition=replace(partition, sections=sections))


def _aligned(wanted: Sequence[str], given: Sequence[str], sections: Sequence[int]) -> list[int]:
    """Section of each operator of a graph.

    Args:
        wanted: names of the graph's operators.
        given: names of the operators that ran.
        sections: section in which each of them ran.

    Operators between two that are found in both lists take the sections of those that ran between the same two, in
    order; the section of the operator before, if none did.
    """
    found: list[int] = []
    before = 0
    for start, other, size in _matches(wanted, given):
        gap, missing = sections[before:other], start - len(found)
        last = found[-1] if found else next(iter(sections), 0)
        found += [gap[index * len(gap) // missing] if gap else last for index in range(missing)]
        found += sections[other : other + size]
        before = other + size
    return found


def _matches(one: Sequence[str], other: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal names in two lists: start in each, and length; the last one is empty, at both ends."""
    if one == other:
        yield 0, 0, len(one)
        return
    yield from difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()


def split(graph: Graph) -> list[tuple[int | None, Graph]]:
    """Graphs of the sections in order, each with the number of its compiled graph; None for an eager section.

    Operators keep their names. What a section reads from another becomes an input, what others read an output. A graph
    without a partition is one section.
    """
    if graph.partition is None or graph.partition.is_whole:
        return [(0, graph)]
    numbers = graph.partition.sections or (None,)
    members: list[list[Op]] = [[] for _ in numbers]
    for op in graph.ops:
        members[op.section].append(op)
    home = {op.name: op.section for op in graph.ops}
    read = {ref for op in graph.ops for ref in op.refs() if home.get(ref.name, op.section) != op.section}
    read.update(graph.outputs)
    values = {value.name: value for value in graph.values}
    return [(number, _section(graph, ops, values, read)) for number, ops in zip(numbers, members, strict=True)]


def _section(graph: Graph, ops: list[Op], values: dict[str, Value], read: set[Ref]) -> Graph:
    inside = {op.name for op in ops}
    outside = dict.fromkeys(ref for op in ops for ref in op.refs() if ref.name not in inside)
    given: dict[str, Value] = {}
    renamed: dict[Ref, Ref] = {}
    for ref in outside:
        known = values.get(ref.name)
        name = ref.name if ref.index == 0 else f"{ref.name}_{ref.index}"
        given[name] = known or Value(name, graph.type_of(ref))
        renamed[ref] = Ref(name)
    moved = tuple(op.reading(lambda ref: renamed.get(ref, ref)) for op in ops)
    outputs = [Ref(op.name, index) for op in ops for index in range(len(op.types)) if Ref(op.name, index) in read]
    return Graph(graph.name, tuple(given.values()), moved, tuple(outputs))
