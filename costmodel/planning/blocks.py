"""Graph -> blocks. A block is a convolution that cuDNN can run fused, or the connected operators between two of them.

Operators that only Inductor or eager execution can run stay in one block as far as they are connected, so that fusion
among them is never lost. A convolution whose epilogue was sunk into a concatenation is a block of its own. A view
belongs to the block of its first reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, operators
from costmodel.ir.op_table import Role
from costmodel.ir.subgraph import RELU, addend_of, is_fusible
from costmodel.planning.series_parallel import components
from costmodel.rewrites.sink_epilogues_into_cat import bare_convolutions


@dataclass(frozen=True, slots=True)
class Block:
    """Operators that run by one backend, by name and in order; `fusible` if cuDNN can run them as one convolution."""

    ops: tuple[str, ...]
    fusible: bool


def find_blocks(graph: Graph) -> tuple[Block, ...]:
    """Split a graph into blocks, in an order in which they can run; every operator is in exactly one."""
    order = {op.name: index for index, op in enumerate(graph.ops)}
    fused = _fusible_convolutions(graph, order)
    sources = _sources(graph)
    bare = bare_convolutions(graph)
    taken = {name: head for head, names in fused.items() for name in names}
    blocks: list[Block] = []
    between: list[Op] = []
    for op in graph.ops:
        if op.name in fused:
            blocks += _connected(between, sources)
            between = []
            blocks.append(Block(fused[op.name], True))
        elif op.name in bare:
            blocks += _connected(between, sources)
            between = []
            blocks.append(Block((op.name,), False))
        elif op.name not in taken and operators.lookup(op).role is not Role.VIEW:
            between.append(op)
    return _with_views(graph, (*blocks, *_connected(between, sources)))


def block_edges(graph: Graph, blocks: Sequence[Block]) -> tuple[tuple[int, int], ...]:
    """Edges between blocks: (producer, consumer), each pair once."""
    home = {name: index for index, block in enumerate(blocks) for name in block.ops}
    pairs = {
        (home[ref.name], home[op.name]): None
        for op in graph.ops
        for ref in op.refs()
        if ref.name in home and home[ref.name] != home[op.name]
    }
    return tuple(pairs)


def producers_of(count: int, edges: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Producers of each block, in order."""
    found: list[set[int]] = [set() for _ in range(count)]
    for producer, consumer in edges:
        found[consumer].add(producer)
    return tuple(tuple(sorted(before)) for before in found)


def _fusible_convolutions(graph: Graph, order: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Convolution -> its name with those of the addition and the ReLU that cuDNN can fuse; no other reader between."""
    users = graph.users()
    returned = {ref.name for ref in graph.outputs}

    def only_user(op: Op) -> Op | None:
        return users[op.name][0] if len(users[op.name]) == 1 and op.name not in returned else None

    found: dict[str, tuple[str, ...]] = {}
    for op in graph.ops:
        follower = only_user(op) if is_fusible(op) else None
        addend = addend_of(follower, op) if follower else None
        if follower is None:
            continue
        if follower.base == RELU:
            found[op.name] = (op.name, follower.name)
        elif addend is not None and order.get(addend.name, -1) < order[op.name]:
            last = only_user(follower)
            if last is not None and last.base == RELU:
                found[op.name] = (op.name, follower.name, last.name)
    return found


def _sources(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Operator -> operators that it reads, through views."""
    behind: dict[str, tuple[str, ...]] = {}
    for op in graph.ops:
        names = dict.fromkeys(name for ref in op.refs() for name in behind.get(f"view {ref.name}", (ref.name,)))
        key = f"view {op.name}" if operators.lookup(op).role is Role.VIEW else op.name
        behind[key] = tuple(names)
    return behind


def _connected(run: Sequence[Op], sources: Mapping[str, tuple[str, ...]]) -> list[Block]:
    """Blocks of consecutive operators: their connected components."""
    position = {op.name: index for index, op in enumerate(run)}
    after: dict[int, list[int]] = {}
    for op in run:
        for name in sources[op.name]:
            if name in position:
                after.setdefault(position[name], []).append(position[op.name])
    parts = components(range(len(run)), after)
    return [Block(tuple(run[index].name for index in part), False) for part in parts]


def _with_views(graph: Graph, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Put each view into the block of its first reader; unread views go to the last block."""
    home = {name: index for index, block in enumerate(blocks) for name in block.ops}
    users = graph.users()
    for op in reversed(graph.ops):
        if op.name not in home:
            home[op.name] = min((home[user.name] for user in users[op.name]), default=len(blocks) - 1)
    members: list[list[str]] = [[] for _ in blocks]
    for op in graph.ops:
        members[home[op.name]].append(op.name)
    return tuple(Block(tuple(names), block.fusible) for names, block in zip(members, blocks, strict=True))
