"""Graph and profile -> plan: graph rewrites, blocks, the oracle's choice for each block, and the resulting regions."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.errors import RequestError
from costmodel.ir import Graph
from costmodel.planning.blocks import Block, block_edges, find_blocks, producers_of
from costmodel.planning.layout_search import choose_layouts
from costmodel.planning.oracle import STRATEGIES, Choice, sum_of_minima
from costmodel.planning.plan import Plan, Region, fingerprint
from costmodel.planning.plan_memory import plan_bytes
from costmodel.planning.region_costs import BlockCosts, RegionCosts
from costmodel.planning.rewrite_search import PLACED, Rewrites, least, try_rewrites
from costmodel.planning.series_parallel import block_tree
from costmodel.planning.stream_assignment import Task, assign_streams, makespan_us, merge_runs
from costmodel.prediction.roofline_parts import roofline_parts, roofline_us
from costmodel.profiles.profile import Profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from costmodel.timeline.compile_time import compile_counts, compile_us

UNFOLDED_SEQUENCES: tuple[Rewrites, ...] = ((), ("channels_last",))
"""Sequences that compute with the weights as they are: further ones for a memory limit, and the only ones unfolded."""
PLAIN: Rewrites = ("fold_batch_norm",)
LAST: Rewrites = ("fold_batch_norm", "channels_last")
BASE_SEQUENCES: tuple[Rewrites, ...] = (LAST, PLAIN)
"""Sequences of rewrites to start from; `try_rewrites` extends them, and the fastest plan is kept."""
LEAST_GAIN = 5e-3
"""Share of the latency that rewrites beyond BASE_SEQUENCES must save; a smaller gain is below prediction error."""
START_US = 40.0
"""Host time of a replay: copy inputs in, launch the graph, copy outputs out, wait. A prior, not measured."""


def make_plan(
    graph: Graph,
    profile: Profile,
    modes_ms: Mapping[str, float],
    torch_version: str,
    strategy: str = "exact",
    wanted: Objective | None = None,
) -> Plan:
    """Make the plan for a captured graph.

    Args:
        graph: from `capture_exactly`.
        profile: profile whose predictions are used.
        modes_ms: predicted latency by mode, stored in the plan beside its own.
        torch_version: version of the torch that captured the graph.
        strategy: a key of STRATEGIES.
        wanted: objective of the plan; None for the least latency.

    Raises:
        RequestError: there is no such strategy, or no plan within the memory limit.
        ProfileError: the profile is damaged or of another version.
    """
    if strategy not in STRATEGIES:
        raise RequestError(f"unknown strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}")
    wanted = wanted or Objective()
    rewrites, found = _choose(_candidates(graph, profile, strategy, wanted), wanted, graph.name)
    main = hoist_constants(apply_rewrites(graph, rewrites)).main
    return Plan(
        model=graph.name,
        graph=fingerprint(graph),
        hardware=profile.name,
        strategy=strategy,
        rewrites=rewrites,
        launch="stream" if profile.on_cpu else "graph",
        search=not profile.on_cpu,
        regions=found.regions,
        latency_ms={**modes_ms, "plan": _latency_ms(found.us, profile)},
        build_s=found.build_us / 1e6,
        torch=torch_version,
        memory_bytes=_nbytes(graph, main, found.regions, profile),
        roofline_ms=_roofline_ms(RegionCosts(main, profile), found.regions, profile),
    )


def _roofline_ms(region_costs: RegionCosts, regions: Sequence[Region], profile: Profile) -> float:
    """Least device time of the kernels of regions, one after another."""
    kernels = [kernel for region in regions for kernel in region_costs.kernels(region.backend, region.ops)]
    return roofline_us(roofline_parts(kernels, profile.predictor.roofline)) / 1e3


def _candidates(graph: Graph, profile: Profile, strategy: str, wanted: Objective) -> list[tuple[Rewrites, Candidate]]:
    """Decisions of the strategy for each sequence of rewrites that is tried."""
    known = RegionCosts(graph, profile)

    @functools.cache
    def rewritten(rewrites: Rewrites) -> Graph:  # sequences that are tried share their beginnings
        return apply_rewrites(rewritten(rewrites[:-1]), rewrites[-1:]) if rewrites else graph

    def costs_after(rewrites: Rewrites) -> RegionCosts:
        return RegionCosts(hoist_constants(rewritten(rewrites)).main, profile, known)

    def decide(rewrites: Rewrites) -> list[Candidate]:
        region_costs = costs_after(rewrites)
        found = _decisions(region_costs, profile, strategy, wanted)
        if math.isfinite(wanted.memory_limit):
            found = [replace(one, nbytes=_nbytes(graph, region_costs.main, one.regions, profile)) for one in found]
        return found

    if not wanted.folding:
        tried = [(rewrites, decide(rewrites)) for rewrites in UNFOLDED_SEQUENCES]
    elif strategy == "exact":  # the study's oracles choose among backends, not among graphs
        mixed = choose_layouts(costs_after(PLAIN), costs_after(LAST), cudnn=not profile.on_cpu, fork=wanted.fork)
        sequences = (*BASE_SEQUENCES, *([(*PLAIN, f"channels_last:{','.join(mixed)}")] if mixed else []))
        branches = PLACED if wanted.branch_rewrites else ()
        tried = try_rewrites(rewritten, sequences, decide, lambda found: min(map(wanted.value, found)), branches)
    else:
        tried = [(rewrites, decide(rewrites)) for rewrites in BASE_SEQUENCES]
    if math.isfinite(wanted.memory_limit) and wanted.folding:
        tried += [(rewrites, decide(rewrites)) for rewrites in UNFOLDED_SEQUENCES]
    candidates = [(rewrites, one) for rewrites, found in tried for one in found]
    if math.isfinite(wanted.memory_limit) and math.isfinite(wanted.calls):  # what compiles more may need less memory
        candidates += _candidates(graph, profile, strategy, replace(wanted, calls=math.inf))
    return candidates


def _choose(
    candidates: Sequence[tuple[Rewrites, Candidate]], wanted: Objective, name: str
) -> tuple[Rewrites, Candidate]:
    """Best candidate within the memory limit; one of BASE_SEQUENCES unless another saves LEAST_GAIN.

    Raises:
        RequestError: no candidate fits.
    """
    fitting = [(rewrites, one) for rewrites, one in candidates if one.nbytes <= wanted.memory_limit]
    if not fitting:
        needed = min(one.nbytes for _, one in candidates)
        limit = wanted.memory_limit
        given = f"{limit / 2**20:.0f} MiB" if limit >= 2**20 else f"{limit:.0f} bytes"
        raise RequestError(
            f"{name} cannot be planned within {given}; "
            f"the least that a plan for it is predicted to need is {math.ceil(needed / 2**20)} MiB"
        )
    best = least(fitting, lambda pair: wanted.value(pair[1]))
    usual = [pair for pair in fitting if pair[0] in BASE_SEQUENCES]
    simple = least(usual or fitting, lambda pair: wanted.value(pair[1]))
    return simple if wanted.value(simple[1]) * (1 - LEAST_GAIN) <= wanted.value(best[1]) else best


def bound_ms(graph: Graph, profile: Profile) -> float:
    """Theoretical oracle of the study: latency if each block ran its fastest way and passing tensors on were free."""
    found = []
    for rewrites in BASE_SEQUENCES:
        main = hoist_constants(apply_rewrites(graph, rewrites)).main
        blocks = find_blocks(main)
        edges = block_edges(main, blocks)
        costs = BlockCosts.of(blocks, edges, RegionCosts(main, profile), cudnn=not profile.on_cpu)
        found.append(sum_of_minima(block_tree(len(blocks), edges), costs).cost)
    return _latency_ms(min(found), profile)


def _nbytes(graph: Graph, main: Graph, regions: Sequence[Region], profile: Profile) -> int:
    """Device memory that a call needs."""
    return plan_bytes(graph, main, regions, on_graph=not profile.on_cpu, capability=profile.capability)


def _latency_ms(us: float, profile: Profile) -> float:
    """Latency of a call from the device time of its regions."""
    return (us + (0.0 if profile.on_cpu else START_US)) / 1e3


@dataclass(frozen=True, slots=True)
class Candidate:
    """Regions, with their total time and time to compile in microseconds, and the memory that they need."""

    regions: tuple[Region, ...]
    us: float
    build_us: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Objective:
    """Objective of a plan: the least latency, or the least time for N calls with compilation, within some memory.

    Attributes:
        calls: number of calls over which compile time is spread; infinite for the least latency.
        fork: whether branches may run side by side.
        branch_rewrites: whether the rewrites of PLACED may be used.
        memory_limit: most bytes that a call may need; it filters decisions and does not steer the search.
        folding: whether weights may be folded into others, which rounds products in another order.
    """

    calls: float = math.inf
    fork: bool = True
    branch_rewrites: bool = True
    memory_limit: float = math.inf
    folding: bool = True

    def value(self, candidate: Candidate) -> float:
        """Value to minimise: microseconds a call."""
        return candidate.us + candidate.build_us / self.calls


def _decisions(region_costs: RegionCosts, profile: Profile, strategy: str, wanted: Objective) -> list[Candidate]:
    """Candidate decisions for one rewritten graph, as regions."""
    main = region_costs.main
    blocks = find_blocks(main)
    edges = block_edges(main, blocks)
    costs = BlockCosts.of(blocks, edges, region_costs, cudnn=not profile.on_cpu, calls=wanted.calls)
    tree = block_tree(len(blocks), edges)

    def chosen(by: BlockCosts, how: str = strategy) -> list[Choice]:
        made = STRATEGIES[how](tree, by).choices
        return [made[index] for index in range(len(blocks))]

    after = producers_of(len(blocks), edges)
    one, several = (0,) * len(blocks), assign_streams(after)
    tried = [(one, chosen(costs))]
    if strategy == "exact":  # sums over pairs miss fusion across three and more blocks
        tried += [(one, ["inductor"] * len(blocks)), (one, chosen(costs, "published"))]
        if math.isfinite(wanted.calls):  # the first compiled region costs more than a further one
            tried.append((one, chosen(replace(costs, inductor=False))))
        if wanted.fork and not profile.on_cpu:
            tried.append((several, chosen(costs.forking())))
    if math.isfinite(wanted.memory_limit):
        tried.append((one, ["eager"] * len(blocks)))
    candidates = [_as_regions(main, blocks, after, streams, choices, region_costs) for streams, choices in tried]
    return [_with_compile_time(found, region_costs, profile) for found in candidates]


def _with_compile_time(found: Candidate, region_costs: RegionCosts, profile: Profile) -> Candidate:
    """Add the time to compile the regions, equal regions once."""
    compiled = {region.ops for region in found.regions if region.backend == "inductor"}
    kernels = [kernel for ops in compiled for kernel in region_costs.kernels("inductor", ops)]
    if not compiled:
        return found
    return replace(found, build_us=compile_us(compile_counts(kernels), profile.costs("compile")))


def _as_regions(
    main: Graph,
    blocks: Sequence[Block],
    after: Sequence[Sequence[int]],
    streams: Sequence[int],
    choices: Sequence[Choice],
    region_costs: RegionCosts,
) -> Candidate:
    """Merge consecutive blocks of one choice on one stream into regions; a cuDNN block stays alone."""
    runs = merge_runs(after, streams, [None if choice == "cudnn" else choice for choice in choices])
    modules = {op.name: op.module for op in main.ops}
    regions = tuple(
        _region(str(choices[run[0]]), streams[run[0]], [blocks[block] for block in run], modules, region_costs)
        for run in runs
    )
    return Candidate(regions, _makespan_us(main, regions, region_costs))


def _makespan_us(main: Graph, regions: Sequence[Region], region_costs: RegionCosts) -> float:
    """Total time of regions on their streams, each started once its inputs are ready."""
    home = {name: number for number, region in enumerate(regions) for name in region.ops}
    waits: list[set[int]] = [set() for _ in regions]
    for op in main.ops:
        waits[home[op.name]].update(home[ref.name] for ref in op.refs() if ref.name in home)
    return makespan_us(
        [
            Task(
                region.us,
                region_costs.share(region.backend, region.ops),
                tuple(sorted(before - {number})),
                region.stream,
            )
            for number, (region, before) in enumerate(zip(regions, waits, strict=True))
        ]
    )


def _region(
    backend: str, stream: int, run: Sequence[Block], modules: Mapping[str, str], region_costs: RegionCosts
) -> Region:
    ops = tuple(name for block in run for name in block.ops)
    layers = tuple(dict.fromkeys(modules[name] for name in ops if modules[name]))
    return Region(backend, ops, layers, region_costs.us(backend, ops), _why(backend, run, region_costs), stream)


def _why(backend: str, run: Sequence[Block], region_costs: RegionCosts) -> str:
    if backend == "cudnn":
        other = region_costs.us("inductor", run[0].ops)
        return f"one kernel for convolution, bias and ReLU; Inductor would take {other:.1f} us"
    if backend == "eager":
        other = region_costs.us("inductor", [name for block in run for name in block.ops])
        return f"library kernels; Inductor would take {other:.1f} us"
    return "fused by Inductor"
