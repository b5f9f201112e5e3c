"""Memory of an applied plan: weights, tensors computed from them, and the private pool of its CUDA graph.

`costmodel.apply` needs more for a while: it prepares weights, checks outputs and searches cuDNN's algorithms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from costmodel.inductor.lowering import lower
from costmodel.inductor.pipeline import compile_graph
from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.ir.subgraph import Cutter, Part, fused_part
from costmodel.memory.storages import Storage, allocated, storages
from costmodel.memory.workspace import convolution_allowance_bytes, matmul_workspace_bytes, segments_bytes
from costmodel.planning.plan import Region
from costmodel.planning.stream_assignment import barriers


def plan_bytes(graph: Graph, main: Graph, regions: Sequence[Region], *, on_graph: bool, capability: str = "") -> int:
    """Predict the bytes that a call of an applied plan needs, the model's weights and the inputs included.

    Args:
        graph: captured graph.
        main: rewritten graph without its hoisted operators.
        regions: every operator of `main`, in execution order.
        on_graph: whether all regions are captured in one CUDA graph, which has its own inputs and returns copies.
        capability: the device's compute capability, `9.0`.
    """
    known = {value.name for value in graph.values}
    given = sum(allocated(value.type) for value in graph.values)
    prepared = sum(allocated(value.type) for value in main.values if value.name not in known)
    peaks = stream_peaks(main, regions, on_cpu=not on_graph)
    if not on_graph:
        return given + prepared + sum(peaks.values())
    copies = sum(allocated(value.type) for value in graph.inputs)
    copies += sum(allocated(graph.type_of(ref)) for ref in graph.outputs)
    kinds = {op.name: operators.lookup(op).kind for op in main.ops}
    matmul_streams = {region.stream for region in regions for name in region.ops if kinds[name] in ("linear", "matmul")}
    workspace = matmul_workspace_bytes(graph, capability, training=False)
    handles = 1 + len(matmul_streams) if matmul_streams else 0  # one for the warm-up, one for each captured stream
    pool = sum(map(segments_bytes, peaks.values())) + convolution_allowance_bytes(main)
    return given + prepared + copies + workspace * handles + pool


def stream_peaks(main: Graph, regions: Sequence[Region], on_cpu: bool = False) -> dict[int, int]:
    """Peak bytes of live results on each CUDA stream, with lifetimes as in `costmodel.execution.regions`.

    On one stream, a value is freed after the last region that reads it. Several streams share no memory; a value is
    then freed after the next region beside which nothing runs. Outputs of the graph are kept.
    """
    cutter = Cutter(main)
    parts = [cutter.cut(region.ops) for region in regions]
    storage_of = storages(main)
    home = {name: number for number, region in enumerate(regions) for name in region.ops}
    freed = _freed(main, regions, parts, storage_of, home)
    alive: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for number, (region, part) in enumerate(zip(regions, parts, strict=True)):
        stream = region.stream
        before = alive.get(stream, 0)
        peaks[stream] = max(peaks.get(stream, 0), before + region_bytes(part, region.backend, on_cpu))
        made = {storage_of[ref] for ref in part.outputs if home.get(storage_of[ref].owner.name) == number}
        alive[stream] = before + sum(storage.nbytes for storage in made)
        for storage in freed.get(number, ()):
            alive[regions[home[storage.owner.name]].stream] -= storage.nbytes
    return peaks


def _freed(
    main: Graph,
    regions: Sequence[Region],
    parts: Sequence[Part],
    storage_of: Mapping[Ref, Storage],
    home: Mapping[str, int],
) -> dict[int, list[Storage]]:
    """Number of a region -> storages freed once it has run."""
    last: dict[Storage, int] = {}
    for number, part in enumerate(parts):
        for ref in (*part.inputs, *part.outputs):
            last[storage_of[ref]] = number
    kept = {storage_of[ref] for ref in main.outputs}
    after = [sorted({home[ref.name] for ref in part.inputs if ref.name in home}) for part in parts]
    several = any(region.stream for region in regions)
    alone = barriers(after) if several else frozenset(range(len(regions)))
    found: dict[int, list[Storage]] = {}
    for storage, number in last.items():
        end = next((step for step in range(number, len(regions)) if step in alone), None)
        if storage.made_at >= 0 and storage not in kept and end is not None:
            found.setdefault(end, []).append(storage)
    return found


def region_bytes(part: Part, backend: str, on_cpu: bool = False) -> int:
    """Peak bytes of a region's own results, its outputs included.

    A value that Inductor inlines into its readers takes no memory, but keeps its operands alive.
    """
    if backend == "inductor":
        compilation = compile_graph(part.graph, on_cpu)
        return _peak(compilation.graph, compilation.analysis(lower).writers, unread=False)
    graph = (fused_part(part) or part).graph if backend == "cudnn" else part.graph
    return _peak(graph, {op.name for op in graph.ops if operators.lookup(op).role is not Role.VIEW}, unread=True)


def _peak(graph: Graph, kept: Collection[str], unread: bool) -> int:
    """Peak bytes of live results of the operators that write theirs to memory.

    Args:
        graph: operators of a region.
        kept: names of the operators that write their results; others are inlined into their readers, or are views.
        unread: whether results without a reader are allocated too. They are freed when the last other result of the
            operator is taken out of the list that it returns.
    """
    storage_of = storages(graph)
    read = {ref for op in graph.ops for ref in op.refs()} | set(graph.outputs)
    behind: dict[str, frozenset[str]] = {value.name: frozenset() for value in graph.values}
    last: dict[str, int] = {}
    taken: dict[str, int] = {}
    order: list[Op] = []
    for op in graph.ops:
        sources = frozenset().union(*(behind[ref.name] for ref in op.refs()))
        taken |= {ref.name: len(order) - 1 for ref in op.refs()}
        if op.name not in kept or operators.lookup(op).role is Role.JOINED:  # JOINED: its inputs were written into it
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
        sizes = {ref: storage_of[ref].nbytes for ref in (Ref(op.name, index) for index in range(len(op.types)))}
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
