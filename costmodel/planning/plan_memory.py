"""What a plan holds in memory while it runs: weights, what was prepared of them, and its CUDA graph's pool.

To apply a plan takes more for a while: weights are prepared, outputs checked, algorithms searched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from costmodel.inductor.lowering import lower
from costmodel.inductor.pipeline import compile_graph
from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.ir.subgraph import Cutter, Part, fused_part
from costmodel.memory.storages import Storage, allocated, storages
from costmodel.memory.workspace import convolution_allowance_bytes, products_workspace_bytes, segments_bytes
from costmodel.planning.plan import Region
from costmodel.planning.stream_assignment import barriers


def plan_bytes(graph: Graph, main: Graph, regions: Sequence[Region], *, on_graph: bool, capability: str = "") -> int:
    """Predicted bytes that a call of an applied plan needs, the model's own weights and the inputs included.

    Args:
        graph: as it was captured.
        main: after the moves, frozen.
        regions: every operator of `main`, in the order in which they run.
        on_graph: whether all is captured in one CUDA graph, which has inputs of its own and returns copies.
        capability: the device's compute capability, `9.0`.
    """
    known = {value.name for value in graph.values}
    given = sum(allocated(value.type) for value in graph.values)
    prepared = sum(allocated(value.type) for value in main.values if value.name not in known)
    lanes = lane_peaks(main, regions, on_cpu=not on_graph)
    if not on_graph:
        return given + prepared + sum(lanes.values())
    copies = sum(allocated(value.type) for value in graph.inputs)
    copies += sum(allocated(graph.type_of(ref)) for ref in graph.outputs)
    kinds = {op.name: operators.lookup(op).kind for op in main.ops}
    products = {region.lane for region in regions for name in region.ops if kinds[name] in ("linear", "matmul")}
    workspace = products_workspace_bytes(graph, capability, training=False)
    handles = 1 + len(products) if products else 0  # one for the calls before the capture, one for each stream in it
    pool = sum(map(segments_bytes, lanes.values())) + convolution_allowance_bytes(main)
    return given + prepared + copies + workspace * handles + pool


def lane_peaks(main: Graph, regions: Sequence[Region], on_cpu: bool = False) -> dict[int, int]:
    """Peak bytes of live results on each CUDA stream, with the lifetimes of `costmodel.execution.regions.Program`.

    In a row, a value is let go of after the last region that reads it. On several lanes, which share no memory, it is
    kept until the next region beside which nothing runs. What the graph returns is kept.
    """
    cutter = Cutter(main)
    parts = [cutter.cut(region.ops) for region in regions]
    blocks = storages(main)
    home = {name: number for number, region in enumerate(regions) for name in region.ops}
    freed = _freed(main, regions, parts, blocks, home)
    alive: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for number, (region, part) in enumerate(zip(regions, parts, strict=True)):
        lane = region.lane
        before = alive.get(lane, 0)
        peaks[lane] = max(peaks.get(lane, 0), before + region_bytes(part, region.backend, on_cpu))
        made = {blocks[ref] for ref in part.outputs if home.get(blocks[ref].owner.name) == number}
        alive[lane] = before + sum(block.nbytes for block in made)
        for block in freed.get(number, ()):
            alive[regions[home[block.owner.name]].lane] -= block.nbytes
    return peaks


def _freed(
    main: Graph,
    regions: Sequence[Region],
    parts: Sequence[Part],
    blocks: Mapping[Ref, Storage],
    home: Mapping[str, int],
) -> dict[int, list[Storage]]:
    """By the number of a region, the blocks that are let go of once it has run."""
    last: dict[Storage, int] = {}
    for number, part in enumerate(parts):
        for ref in (*part.inputs, *part.outputs):
            last[blocks[ref]] = number
    kept = {blocks[ref] for ref in main.outputs}
    after = [sorted({home[ref.name] for ref in part.inputs if ref.name in home}) for part in parts]
    several = any(region.lane for region in regions)
    alone = barriers(after) if several else frozenset(range(len(regions)))
    found: dict[int, list[Storage]] = {}
    for block, number in last.items():
        end = next((step for step in range(number, len(regions)) if step in alone), None)
        if block.made_at >= 0 and block not in kept and end is not None:
            found.setdefault(end, []).append(block)
    return found


def region_bytes(part: Part, backend: str, on_cpu: bool = False) -> int:
    """The most bytes of its own results that a region holds at once, those that it returns included.

    What Inductor computes where it is used takes no memory, but keeps what it is computed from alive.
    """
    if backend == "inductor":
        compilation = compile_graph(part.graph, on_cpu)
        return _peak(compilation.graph, compilation.analysis(lower).writers, unread=False)
    graph = (fused_part(part) or part).graph if backend == "cudnn" else part.graph
    return _peak(graph, {op.name for op in graph.ops if operators.lookup(op).role is not Role.VIEW}, unread=True)


def _peak(graph: Graph, kept: Collection[str], unread: bool) -> int:
    """The most bytes alive at once, of the operators whose results are kept in memory.

    Args:
        graph: what a region runs.
        kept: operators whose results are kept; those of others are computed, or seen, where they are used.
        unread: whether results that nothing reads are made too. They are let go of when the last of their operator's
            other results is taken out of the list in which it returns them.
    """
    blocks = storages(graph)
    read = {ref for op in graph.ops for ref in op.refs()} | set(graph.outputs)
    behind: dict[str, frozenset[str]] = {value.name: frozenset() for value in graph.values}
    last: dict[str, int] = {}
    taken: dict[str, int] = {}
    order: list[Op] = []
    for op in graph.ops:
        sources = frozenset().union(*(behind[ref.name] for ref in op.refs()))
        taken |= {ref.name: len(order) - 1 for ref in op.refs()}
        if op.name not in kept or operators.lookup(op).role is Role.JOINED:  # joined: its inputs lie in it already
            behind[op.name] = sources
            continue
        behind[op.name] = frozenset((op.name,))
        last |= dict.fromkeys((*sources, op.name), len(order))
        order.append(op)
    for ref in graph.outputs:
        taken[ref.name] = len(order) - 1
        last |= dict.fromkeys(behind[ref.name], len(order))
    freed = [0] * (len(order) + 1)
    made = []
    for position, op in enumerate(order):
        sizes = {ref: blocks[ref].nbytes for ref in (Ref(op.name, index) for index in range(len(op.types)))}
        wanted = sum(nbytes for ref, nbytes in sizes.items() if ref in read)
        others = sum(sizes.values()) - wanted if unread else 0
        made.append(wanted + others)
        freed[last[op.name]] += wanted
        freed[max(position, taken.get(op.name, position))] += others
    alive = peak = 0
    for position, nbytes in enumerate(made):
        alive += nbytes
        peak = max(peak, alive)
        alive -= freed[position]
    return peak
