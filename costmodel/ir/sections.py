"""Sections of a partitioned graph: assignment of operators to sections, and each section as a graph of its own."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from costmodel.ir.partition import Partition
from costmodel.ir.types import Graph, Op, Ref, Value


def partitioned(graph: Graph, partition: Partition, ops: Sequence[Sequence[str]]) -> Graph:
    """Assign the operators of a graph to the sections of a partition.

    Args:
        graph: captured graph.
        partition: sections of a call.
        ops: operators that ran in each section, by name without overload, in order. The lists may differ from the
            graph's operators, which leave out dead code and keep attention and recurrent layers whole: an operator
            that is not found joins the operator before it.
    """
    wanted = [op.base for op in graph.ops]
    named = [(name, index) for index, section in enumerate(ops) for name in section]
    given = [name for name, _ in named]
    found: list[int | None] = [None] * len(wanted)
    for start, other, size in _matches(wanted, given):
        found[start : start + size] = [index for _, index in named[other : other + size]]
    last = next((index for index in found if index is not None), 0)
    sections = []
    for index in found:
        last = last if index is None else index
        sections.append(last)
    placed = tuple(replace(op, section=section) for op, section in zip(graph.ops, sections, strict=True))
    return replace(graph, ops=placed, partition=partition)


def _matches(one: list[str], other: list[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal names in two lists: start in each, and length."""
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
