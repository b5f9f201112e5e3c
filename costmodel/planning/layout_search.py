"""Which convolutions run in channels-last order: the oracle's choice of a backend and a layout for every unit.

Units are priced in either order, and passing a tensor on from a unit to one of the other order costs a copy. What is
chosen is made by the move `channels_last` at the convolutions named, and then priced as a whole like any other move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.ir import Graph, TensorType
from costmodel.planning.blocks import Block, block_edges, find_blocks
from costmodel.planning.oracle import Choice, decide
from costmodel.planning.region_costs import BlockCosts, Prices
from costmodel.planning.series_parallel import SOURCE, stream_tree

LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """What the oracle asks where a choice is a backend and a layout; microseconds.

    Attributes:
        by_layout: costs of the same units, what they read being in one layout.
        copies_us: (producer, consumer) -> bringing what the one reads of the other into the other order; the producer
            may be SOURCE.
    """

    by_layout: Mapping[str, BlockCosts]
    copies_us: Mapping[tuple[int, int], float]

    def choices(self, unit: int) -> Sequence[Choice]:
        """Every backend in either layout; what ends the graph is nothing and runs no way."""
        backends = self.by_layout["nchw"].choices(unit)
        return backends if backends == (None,) else [(backend, layout) for backend in backends for layout in LAYOUTS]

    def run(self, unit: int, choice: Choice) -> float:
        """A unit by itself."""
        backend, layout = _parts(choice)
        return self.by_layout[layout].run(unit, backend)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """A copy where the layouts differ, else what fusion saves; what comes from outside is in plain order."""
        (one, layout), (other, wanted) = _parts(before), _parts(after)
        if other is None:
            return 0.0
        if layout != wanted:
            return self.copies_us.get((producer, consumer), 0.0)
        return self.by_layout[layout].edge(producer, one, consumer, other)

    def together(self, branches: Sequence[float]) -> float:
        """Branches side by side, as in either layout."""
        return self.by_layout["nchw"].together(branches)


def _parts(choice: Choice | None) -> tuple[str | None, str]:
    return (choice[0], choice[1]) if isinstance(choice, tuple) else (None, "nchw")


def choose_layouts(plain: Prices, last: Prices, cudnn: bool, fork: bool) -> tuple[str, ...]:
    """Names of the convolutions that the oracle wants in channels-last order, if it wants some so and others not.

    None where the model is in that order as it was captured.

    Args:
        plain: prices of a graph with every convolution in plain order.
        last: prices of the same graph with every convolution in channels-last order.
        cudnn: whether the device has it.
        fork: whether branches may run side by side.
    """
    graph = plain.main
    if any(kind.layout == "nhwc" for op in graph.ops for kind in op.types):
        return ()
    blocks = find_blocks(graph)
    edges = block_edges(graph, blocks)
    by_layout = {
        layout: BlockCosts.of(_known_to(prices.main, blocks), edges, prices, cudnn)
        for layout, prices in zip(LAYOUTS, (plain, last), strict=True)
    }
    if fork:
        by_layout = {layout: costs.forking() for layout, costs in by_layout.items()}
    costs = LayoutCosts(by_layout, _copies_us(graph, blocks, plain))
    made = decide(stream_tree(len(blocks), edges), costs).choices
    wanted = {name for unit, block in enumerate(blocks) if _parts(made[unit])[1] == "nhwc" for name in block.ops}
    convolutions = [op for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4]
    names = tuple(op.name for op in convolutions if op.name in wanted)
    return names if len(names) < len(convolutions) else ()


def _known_to(graph: Graph, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks without what a graph does not have: in one order a view of a weight may be part of what is frozen."""
    names = {op.name for op in graph.ops}
    return tuple(replace(block, ops=tuple(name for name in block.ops if name in names)) for block in blocks)


def _copies_us(graph: Graph, blocks: Sequence[Block], prices: Prices) -> dict[tuple[int, int], float]:
    """What the tensors that pass between two units take to be copied into the other order, each once."""
    home = {name: unit for unit, block in enumerate(blocks) for name in block.ops}
    given = {value.name for value in graph.values if value.role == "param"}
    passed: dict[tuple[int, int], dict[str, TensorType]] = {}
    for op in graph.ops:
        for ref in op.refs():
            producer = home.get(ref.name, SOURCE)
            if producer != home[op.name] and ref.name not in given and _has_two_orders(graph.type_of(ref)):
                passed.setdefault((producer, home[op.name]), {})[str(ref)] = graph.type_of(ref)
    return {pair: sum(map(prices.conversion_us, kinds.values())) for pair, kinds in passed.items()}


def _has_two_orders(kind: TensorType) -> bool:
    return len(kind.shape) == 4 and kind.shape[1] > 1 and math.prod(kind.shape[2:]) > 1
