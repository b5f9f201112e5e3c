"""Graph and profile -> plan: the moves, the blocks, the oracle's decision on them, and the regions that follow."""

from __future__ import annotations

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
from costmodel.planning.region_costs import BlockCosts, Prices
from costmodel.planning.rewrite_search import PLACED, Moves, least, try_moves
from costmodel.planning.series_parallel import stream_tree
from costmodel.planning.stream_assignment import Task, assign_lanes, makespan_us, merge_runs
from costmodel.profiles.profile import Profile
from costmodel.rewrites.hoist_constants import freeze
from costmodel.rewrites.registry import rewrite
from costmodel.timeline import host_counts
from costmodel.timeline.issue_trace import compile_counts

MOVES_FOR_MEMORY: tuple[Moves, ...] = ((), ("channels_last",))
"""Further ones that are tried within a memory limit: what is not folded needs no memory of its own."""
PLAIN: Moves = ("fold_batch_norm",)
LAST: Moves = ("fold_batch_norm", "channels_last")
MOVES: tuple[Moves, ...] = (LAST, PLAIN)
"""Sequences of moves that are tried, beside those of `try_moves`; the plan keeps that with which it is fastest."""
LEAST_GAIN = 5e-3
"""What moves beyond those of MOVES must save of the whole to be made: less is in no prediction."""
START_US = 40.0
"""Host time of a replay: inputs copied in, the graph launched, outputs copied out, the wait. A prior, not measured."""


def make_plan(
    graph: Graph,
    profile: Profile,
    modes_ms: Mapping[str, float],
    torch_version: str,
    strategy: str = "exact",
    wanted: Objective | None = None,
) -> Plan:
    """The plan for a captured graph.

    Args:
        graph: captured exactly.
        profile: whose predictions decide.
        modes_ms: predicted latency by mode, kept in the plan beside its own.
        torch_version: of the torch that captured the graph.
        strategy: a key of STRATEGIES.
        wanted: what the plan is for; None for the least latency.

    Raises:
        RequestError: there is no such strategy, or no plan within the memory limit.
        ProfileError: the profile is damaged or of another version.
    """
    if strategy not in STRATEGIES:
        raise RequestError(f"no strategy is called {strategy!r}; choose one of {', '.join(STRATEGIES)}")
    wanted = wanted or Objective()
    moves, found = _choose(_candidates(graph, profile, strategy, wanted), wanted, graph.name)
    return Plan(
        model=graph.name,
        graph=fingerprint(graph),
        hardware=profile.name,
        strategy=strategy,
        moves=moves,
        launch="stream" if profile.on_cpu else "graph",
        search=not profile.on_cpu,
        regions=found.regions,
        latency_ms={**modes_ms, "plan": _latency_ms(found.us, profile)},
        build_s=found.build_us / 1e6,
        torch=torch_version,
        memory_bytes=_nbytes(graph, freeze(rewrite(graph, moves)).main, found.regions, profile),
    )


def _candidates(graph: Graph, profile: Profile, strategy: str, wanted: Objective) -> list[tuple[Moves, Found]]:
    """What the strategy decides on the graph after each sequence of moves that is tried."""
    known = Prices(graph, profile)

    def priced(moves: Moves) -> Prices:
        return Prices(freeze(rewrite(graph, moves)).main, profile, known)

    def decide(moves: Moves) -> list[Found]:
        prices = priced(moves)
        found = _decisions(prices, profile, strategy, wanted)
        if math.isfinite(wanted.memory_limit):
            found = [replace(one, nbytes=_nbytes(graph, prices.main, one.regions, profile)) for one in found]
        return found

    if strategy == "exact":  # the study's oracles choose a backend for the layers that a model has
        mixed = choose_layouts(priced(PLAIN), priced(LAST), cudnn=not profile.on_cpu, fork=wanted.fork)
        sequences = (*MOVES, *([(*PLAIN, f"channels_last:{','.join(mixed)}")] if mixed else []))
        branches = PLACED if wanted.branch_moves else ()
        tried = try_moves(graph, sequences, decide, lambda found: min(map(wanted.of, found)), branches)
    else:
        tried = [(moves, decide(moves)) for moves in MOVES]
    if math.isfinite(wanted.memory_limit):
        tried += [(moves, decide(moves)) for moves in MOVES_FOR_MEMORY]
    return [(moves, one) for moves, found in tried for one in found]


def _choose(candidates: Sequence[tuple[Moves, Found]], wanted: Objective, name: str) -> tuple[Moves, Found]:
    """The best candidate within the memory limit; one of the usual moves unless others save LEAST_GAIN.

    Raises:
        RequestError: none fits.
    """
    fitting = [(moves, one) for moves, one in candidates if one.nbytes <= wanted.memory_limit]
    if not fitting:
        needed = min(one.nbytes for _, one in candidates)
        raise RequestError(
            f"{name} cannot be planned within {wanted.memory_limit / 2**20:.0f} MiB; "
            f"the least that a plan for it is predicted to need is {math.ceil(needed / 2**20)} MiB"
        )
    best = least(fitting, lambda pair: wanted.of(pair[1]))
    usual = [pair for pair in fitting if pair[0] in MOVES]
    simple = least(usual or fitting, lambda pair: wanted.of(pair[1]))
    return simple if wanted.of(simple[1]) * (1 - LEAST_GAIN) <= wanted.of(best[1]) else best


def bound_ms(graph: Graph, profile: Profile) -> float:
    """The study's theoretical oracle: latency if every block ran its fastest way and passing tensors on were free."""
    found = []
    for moves in MOVES:
        main = freeze(rewrite(graph, moves)).main
        blocks = find_blocks(main)
        edges = block_edges(main, blocks)
        costs = BlockCosts.of(blocks, edges, Prices(main, profile), cudnn=not profile.on_cpu)
        found.append(sum_of_minima(stream_tree(len(blocks), edges), costs).cost)
    return _latency_ms(min(found), profile)


def reprice(plan: Plan, graph: Graph, profile: Profile) -> Plan:
    """The same plan as another profile prices it: its regions' times and its latency.

    Args:
        plan: made for this graph.
        graph: captured exactly.
        profile: whose predictions tell the times.
    """
    main = freeze(rewrite(graph, plan.moves)).main
    prices = Prices(main, profile)
    regions = tuple(replace(region, us=prices.us(region.backend, region.ops)) for region in plan.regions)
    latency = {**plan.latency_ms, "plan": _latency_ms(_makespan_us(main, regions, prices), profile)}
    return replace(plan, hardware=profile.name, regions=regions, latency_ms=latency)


def _nbytes(graph: Graph, main: Graph, regions: Sequence[Region], profile: Profile) -> int:
    """What a call needs of the device's memory."""
    return plan_bytes(graph, main, regions, on_graph=not profile.on_cpu, capability=profile.capability)


def _latency_ms(us: float, profile: Profile) -> float:
    """What a call takes whose regions take so many microseconds."""
    return (us + (0.0 if profile.on_cpu else START_US)) / 1e3


@dataclass(frozen=True, slots=True)
class Found:
    """Regions, what they take together and the time to build them, in microseconds, and the memory that they need."""

    regions: tuple[Region, ...]
    us: float
    build_us: float = 0.0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Objective:
    """What a plan is for: the least latency, or the least time for some calls, compiling included; within some memory.

    Attributes:
        calls: how many calls the time to build is spread over; infinite for the least latency.
        fork: whether branches may run side by side.
        branch_moves: whether siblings may be merged and epilogues moved to concatenations.
        memory_limit: bytes that a call may need. It chooses among decisions, and has no part in how they are found.
    """

    calls: float = math.inf
    fork: bool = True
    branch_moves: bool = True
    memory_limit: float = math.inf

    def of(self, found: Found) -> float:
        """What is to be as small as possible: microseconds a call."""
        return found.us + found.build_us / self.calls


def _decisions(prices: Prices, profile: Profile, strategy: str, wanted: Objective) -> list[Found]:
    """Decisions of which one is the best, and what follows from them."""
    main = prices.main
    blocks = find_blocks(main)
    edges = block_edges(main, blocks)
    costs = BlockCosts.of(blocks, edges, prices, cudnn=not profile.on_cpu, calls=wanted.calls)
    tree = stream_tree(len(blocks), edges)

    def chosen(priced: BlockCosts, how: str = strategy) -> list[Choice]:
        made = STRATEGIES[how](tree, priced).choices
        return [made[index] for index in range(len(blocks))]

    after = producers_of(len(blocks), edges)
    one, several = (0,) * len(blocks), assign_lanes(after)
    tried = [(one, chosen(costs))]
    if strategy == "exact":  # what fuses across three blocks and more is in no sum over pairs
        tried += [(one, ["inductor"] * len(blocks)), (one, chosen(costs, "published"))]
        if math.isfinite(wanted.calls):  # a first region to compile costs more than a further one
            tried.append((one, chosen(replace(costs, inductor=False))))
        if wanted.fork and not profile.on_cpu:
            tried.append((several, chosen(costs.forking())))
    if math.isfinite(wanted.memory_limit):
        tried.append((one, ["eager"] * len(blocks)))
    laid_out = [_laid_out(main, blocks, after, lanes, choices, prices) for lanes, choices in tried]
    return [_built(found, prices, profile) for found in laid_out]


def _built(found: Found, prices: Prices, profile: Profile) -> Found:
    """The same with the time to compile its regions, equal ones once."""
    compiled = {region.ops for region in found.regions if region.backend == "inductor"}
    kernels = [kernel for ops in compiled for kernel in prices.kernels("inductor", ops)]
    if not compiled:
        return found
    return replace(found, build_us=host_counts.compile_us(compile_counts(kernels), profile.costs("compile")))


def _laid_out(
    main: Graph,
    blocks: Sequence[Block],
    after: Sequence[Sequence[int]],
    lanes: Sequence[int],
    choices: Sequence[Choice],
    prices: Prices,
) -> Found:
    """Blocks of one choice in a row on their lane as one region; what cuDNN runs stands alone."""
    runs = merge_runs(after, lanes, [None if choice == "cudnn" else choice for choice in choices])
    modules = {op.name: op.module for op in main.ops}
    regions = tuple(
        _region(str(choices[run[0]]), lanes[run[0]], [blocks[block] for block in run], modules, prices) for run in runs
    )
    return Found(regions, _makespan_us(main, regions, prices))


def _makespan_us(main: Graph, regions: Sequence[Region], prices: Prices) -> float:
    """What regions take on their lanes, each once what it reads is there."""
    home = {name: number for number, region in enumerate(regions) for name in region.ops}
    waits: list[set[int]] = [set() for _ in regions]
    for op in main.ops:
        waits[home[op.name]].update(home[ref.name] for ref in op.refs() if ref.name in home)
    return makespan_us(
        [
            Task(region.us, prices.share(region.backend, region.ops), tuple(sorted(before - {number})), region.lane)
            for number, (region, before) in enumerate(zip(regions, waits, strict=True))
        ]
    )


def _region(backend: str, lane: int, run: Sequence[Block], modules: Mapping[str, str], prices: Prices) -> Region:
    ops = tuple(name for block in run for name in block.ops)
    layers = tuple(dict.fromkeys(modules[name] for name in ops if modules[name]))
    return Region(backend, ops, layers, prices.us(backend, ops), _why(backend, run, prices), lane)


def _why(backend: str, run: Sequence[Block], prices: Prices) -> str:
    if backend == "cudnn":
        other = prices.us("inductor", run[0].ops)
        return f"one kernel for convolution, bias and ReLU; Inductor would take {other:.1f} us"
    if backend == "eager":
        other = prices.us("inductor", [name for block in run for name in block.ops])
        return f"library kernels; Inductor would take {other:.1f} us"
    return "fused by Inductor"
