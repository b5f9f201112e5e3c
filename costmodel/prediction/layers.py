"""Kernels of a compiled model -> units: an anchor operator with the pointwise operators fused into it.

Every kernel and every operator that computes belongs to exactly one unit, so the times of units add up to the model's.
Drawings show units. Layers of a report follow the user's modules instead (`costmodel.prediction.layer_groups`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.device import ASSUMED_GPU, Device
from costmodel.ir import Graph, Op, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import compiled_trace, origin_of

_NAMED_LIKE_CONCAT = "batch_norm"
"""Pointwise kind with the rank of a concatenation, as users name a layer after the later one of the two."""


@dataclass(frozen=True, slots=True)
class Unit:
    """An anchor operator with the operators fused into it.

    Attributes:
        name: module of the anchor, as in `named_modules()`; its kind for an anchor outside of modules.
        kind: kind of the anchor: `conv2d`, `linear`, `layer_norm`, ...
        ops: operators in order, without views.
        position: relative depth in the model, from 0 to 1.
        kernels: indices of the compiled kernels that compute it.
    """

    name: str
    kind: str
    ops: tuple[Op, ...]
    position: float
    kernels: tuple[int, ...]

    def __str__(self) -> str:
        names = "+".join(map(operators.kind_of, self.ops))
        return f"{self.position:5.3f} {self.name}: {names} ({len(self.kernels)} kernels)"


def find_units(graph: Graph, device: Device = ASSUMED_GPU) -> tuple[Unit, ...]:
    """Units of a captured graph compiled for a device, in execution order."""
    return group_units(graph, compiled_trace(graph, device.is_cpu, device.multiprocessors).kernels)


def group_units(graph: Graph, kernels: Sequence[Kernel]) -> tuple[Unit, ...]:
    """Units from the kernels of a compiled model, in execution order.

    A library call leads a unit, and so does a fused kernel that reduces, pools or concatenates. Other fused kernels
    (bias, batch norm, activation, residual addition) join the unit that they follow. A kernel that only copies or
    prepares an operand joins the unit of the kernel that uses it.

    Args:
        graph: the captured graph.
        kernels: `compiled_trace(graph).kernels`.
    """
    if not kernels:
        return ()
    sites = _Sites(graph, kernels)
    leader = _leaders(sites)
    kernels_of: dict[int, list[int]] = {}
    for index, first in enumerate(leader):
        kernels_of.setdefault(first, []).append(index)
    ops_of: dict[int, list[Op]] = {}
    current = next((leader[index] for index in sites.home.values()), 0)
    for op in sites.computing:  # an operator that is folded away stays with the one before it
        current = leader[sites.home[op.name]] if op.name in sites.home else current
        ops_of.setdefault(current, []).append(op)
    order = {op.name: index for index, op in enumerate(graph.ops)}
    units = [_unit(tuple(ops_of[first]), order, tuple(kernels_of[first])) for first in kernels_of if first in ops_of]
    return tuple(sorted(units, key=lambda unit: unit.position))


class _Sites:
    """Kernels in which the operators of a graph are computed.

    Attributes:
        kernels: compiled kernels.
        computing: operators that are no views, in order.
        home: operator -> index of the kernel that its time counts to: its library call, else the kernel that writes its
            result. For a concatenation whose parts several kernels write in place, the first kernel that reads it
            whole; if none does, the last that writes a part.
        origins: operators that each kernel computes, in full or in part.
        own: operators whose home each kernel is.
    """

    def __init__(self, graph: Graph, kernels: Sequence[Kernel]) -> None:
        self.kernels = kernels
        self.by_name = {op.name: op for op in graph.ops}
        self.computing = [op for op in graph.ops if operators.lookup(op).role is not Role.VIEW]
        values = tuple(f"{value.name}." for value in graph.values)
        self.origins = [
            {origin_of(name) for name in kernel.ops if not name.startswith(values)} & self.by_name.keys()
            for kernel in kernels
        ]
        self.home = self._homes()
        self.own: list[list[Op]] = [[] for _ in kernels]
        for op in self.computing:
            if op.name in self.home:
                self.own[self.home[op.name]].append(op)

    def _homes(self) -> dict[str, int]:
        library: dict[str, int] = {}
        whole: dict[str, int] = {}
        part: dict[str, int] = {}
        for index, (kernel, origins) in enumerate(zip(self.kernels, self.origins, strict=True)):
            for name in origins:
                part[name] = index
                if kernel.backend != "triton":
                    library.setdefault(name, index)
                if name in kernel.ops:
                    whole.setdefault(name, index)
        joined = {name: index for name, index in self._first_readers().items() if name not in whole}
        return {op.name: (part | joined | whole | library)[op.name] for op in self.computing if op.name in part}

    def _first_readers(self) -> dict[str, int]:
        """Concatenation -> index of the first kernel that reads it."""
        found: dict[str, int] = {}
        for index, origins in enumerate(self.origins):
            sources = _sources(origins, self.by_name)
            for name in sources & self.by_name.keys():
                if operators.lookup(self.by_name[name]).role is Role.CONCAT:
                    found.setdefault(name, index)
        return found

    def leads(self, index: int) -> bool:
        """Whether a kernel leads a unit of its own."""
        kernel = self.kernels[index]
        return kernel.backend != "triton" or any(
            operators.lookup(op).role is Role.CONCAT
            or (operators.lookup(op).role in operators.ANCHOR_RANK and op.name in kernel.ops)
            for op in self.own[index]
        )

    def follows(self, index: int) -> set[int]:
        """Homes of the operators that a kernel reads or recomputes."""
        names = self.origins[index] | _sources(self.origins[index], self.by_name)
        return {self.home[name] for name in names if name in self.home} - {index}


def _sources(origins: set[str], by_name: Mapping[str, Op]) -> set[str]:
    """Operators outside a group that the group reads, directly or through views."""
    found: set[str] = set()
    pending = list(origins)
    while pending:
        op = by_name.get(pending.pop())
        for ref in op.refs() if op else ():
            if ref.name in found or ref.name in origins:
                continue
            found.add(ref.name)
            if ref.name in by_name and operators.lookup(by_name[ref.name]).role is Role.VIEW:
                pending.append(ref.name)
    return found


def _leaders(sites: _Sites) -> list[int]:
    """Index of the kernel that leads each kernel's unit."""
    leader: dict[int, int] = {}
    for index, own in enumerate(sites.own):
        if not own:
            continue
        before = [leader[other] for other in sites.follows(index) if other < index]
        leader[index] = index if sites.leads(index) else max(before, default=index)
    found = []
    following = max(leader, default=0)
    for index in reversed(range(len(sites.kernels))):
        following = index if index in leader else following
        made_for = max((sites.home[name] for name in sites.origins[index] if name in sites.home), default=following)
        found.append(leader.get(index, leader.get(made_for, 0)))
    return found[::-1]


def _unit(computing: tuple[Op, ...], order: Mapping[str, int], kernels: tuple[int, ...]) -> Unit:
    anchor = max(reversed(computing), key=_rank)
    kind = operators.kind_of(anchor)
    position = order[anchor.name] / max(1, len(order) - 1)
    return Unit(anchor.module or kind, kind, computing, round(position, 4), kernels)


def _rank(op: Op) -> int:
    row = operators.lookup(op)
    return (
        operators.ANCHOR_RANK[Role.CONCAT] if row.kind == _NAMED_LIKE_CONCAT else operators.ANCHOR_RANK.get(row.role, 0)
    )
