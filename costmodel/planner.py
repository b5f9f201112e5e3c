"""Graph and profile -> plan: the moves, the blocks, the oracle's decision on them, and the regions that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel import timeline
from costmodel.blocks import Block, block_edges, find_blocks
from costmodel.errors import RequestError
from costmodel.freeze import freeze
from costmodel.hardware import Profile
from costmodel.ir import Graph
from costmodel.moves import rewrite
from costmodel.oracle import STRATEGIES, Choice
from costmodel.plan import Plan, Region, fingerprint
from costmodel.prices import BlockCosts, Prices
from costmodel.program import compile_counts
from costmodel.tree import stream_tree

MOVES = (("fold_batch_norm", "channels_last"), ("fold_batch_norm",))
"""Sequences of moves that are tried; the plan keeps the one with which it is faster."""
START_US = 40.0
"""Host time of a replay: inputs copied in, the graph launched, outputs copied out, the wait. A prior, not measured."""


def make_plan(
    graph: Graph, profile: Profile, modes_ms: Mapping[str, float], torch_version: str, strategy: str = "exact"
) -> Plan:
    """The plan for a captured graph.

    Args:
        graph: captured exactly.
        profile: whose predictions decide.
        modes_ms: predicted latency by mode, kept in the plan beside its own.
        torch_version: of the torch that captured the graph.
        strategy: a key of STRATEGIES.

    Raises:
        RequestError: there is no such strategy.
        ProfileError: the profile is damaged or of another version.
    """
    if strategy not in STRATEGIES:
        raise RequestError(f"no strategy is called {strategy!r}; choose one of {', '.join(STRATEGIES)}")
    tried = [(moves, *_decide(freeze(rewrite(graph, moves)).main, profile, strategy)) for moves in MOVES]
    moves, regions, build_us = min(tried, key=lambda found: _total_us(found[1]))
    return Plan(
        model=graph.name,
        graph=fingerprint(graph),
        hardware=profile.name,
        strategy=strategy,
        moves=moves,
        launch="stream" if profile.on_cpu else "graph",
        regions=regions,
        latency_ms={**modes_ms, "plan": (_total_us(regions) + (0.0 if profile.on_cpu else START_US)) / 1e3},
        build_s=build_us / 1e6,
        torch=torch_version,
    )


def _decide(main: Graph, profile: Profile, strategy: str) -> tuple[tuple[Region, ...], float]:
    """The regions of the best decision, and the time to build them, microseconds."""
    blocks = find_blocks(main)
    edges = block_edges(main, blocks)
    prices = Prices(main, profile)
    decision = STRATEGIES[strategy](
        stream_tree(len(blocks), edges), BlockCosts.of(blocks, edges, prices, cudnn=not profile.on_cpu)
    )
    tried = [[decision.choices[index] for index in range(len(blocks))]]
    if strategy == "exact":  # what fuses across three blocks and more is in no sum over pairs
        tried.append(["inductor"] * len(blocks))
    regions = min((_regions(main, blocks, choices, prices) for choices in tried), key=_total_us)
    compiled = {region.ops for region in regions if region.backend == "inductor"}
    kernels = [kernel for ops in compiled for kernel in prices.kernels("inductor", ops)]
    return regions, timeline.total(compile_counts(kernels), profile.costs("compile")) if compiled else 0.0


def _regions(main: Graph, blocks: Sequence[Block], choices: Sequence[Choice], prices: Prices) -> tuple[Region, ...]:
    """Blocks of one choice in a row as one region; what cuDNN runs stands alone."""
    runs: list[tuple[str, list[Block]]] = []
    for block, choice in zip(blocks, choices, strict=True):
        if runs and runs[-1][0] == choice != "cudnn":
            runs[-1][1].append(block)
        else:
            runs.append((str(choice), [block]))
    modules = {op.name: op.module for op in main.ops}
    return tuple(_region(backend, run, modules, prices) for backend, run in runs)


def _region(backend: str, run: Sequence[Block], modules: Mapping[str, str], prices: Prices) -> Region:
    ops = tuple(name for block in run for name in block.ops)
    layers = tuple(dict.fromkeys(modules[name] for name in ops if modules[name]))
    return Region(backend, ops, layers, prices.us(backend, ops), _why(backend, run, prices))


def _why(backend: str, run: Sequence[Block], prices: Prices) -> str:
    if backend == "cudnn":
        other = prices.us("inductor", run[0].ops)
        return f"one kernel for convolution, bias and ReLU; Inductor would take {other:.1f} us"
    if backend == "eager":
        other = prices.us("inductor", [name for block in run for name in block.ops])
        return f"library kernels; Inductor would take {other:.1f} us"
    return "fused by Inductor"


def _total_us(regions: Sequence[Region]) -> float:
    return sum(region.us for region in regions)
