"""Search of layouts: the convolutions that run in channels_last, by the oracle's choice for each block.

Each block has a cost in either layout. A tensor passed between blocks of different layouts costs a copy. The chosen
convolutions are converted by the rewrite `channels_last`, and the plan is then costed as a whole like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.ir import Graph, TensorType
from costmodel.planning.blocks import Block, block_edges, find_blocks
from costmodel.planning.oracle import Choice, decide
from costmodel.planning.region_costs import BlockCosts, RegionCosts
from costmodel.planning.series_parallel import SOURCE, block_tree

LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """Costs for the oracle where a choice is a pair (backend, layout); microseconds.

    Attributes:
        by_layout: costs of the blocks with their inputs in one layout.
        copies_us: (producer, consumer) -> time to convert the tensors passed between them; the producer may be
            SOURCE.
    """

    by_layout: Mapping[str, BlockCosts]
    copies_us: Mapping[tuple[int, int], float]

    def choices(self, block: int) -> Sequence[Choice]:
        """Every backend in either layout; None alone for the graph's end, which runs nothing."""
        backends = self.by_layout["nchw"].choices(block)
        return backends if backends == (None,) else [(backend, layout) for backend in backends for layout in LAYOUTS]

    def run(self, block: int, choice: Choice) -> float:
        """Time of a block alone."""
        backend, layout = _parts(choice)
        return self.by_layout[layout].run(block, backend)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """Time of a copy where the layouts differ, else the gain of fusion; inputs of the graph are nchw."""
        (one, layout), (other, wanted) = _parts(before), _parts(after)
        if other is None:
            return 0.0
        if layout != wanted:
            return self.copies_us.get((producer, consumer), 0.0)
        return self.by_layout[layout].edge(producer, one, consumer, other)

    def together(self, branches: Sequence[float]) -> float:
        """Time of branches side by side; the same in both layouts."""
        return self.by_layout["nchw"].together(branches)


def _parts(choice: Choice | None) -> tuple[str | None, str]:
    return (choice[0], choice[1]) if isinstance(choice, tuple) else (None, "nchw")


def choose_layouts(plain: RegionCosts, last: RegionCosts, cudnn: bool, fork: bool) -> tuple[str, ...]:
    """Choose the convolutions that run in channels_last; none if all or none should, or the model already is.

    Args:
        plain: region costs of a graph with every convolution in nchw.
        last: region costs of the same graph with every convolution in channels_last.
        cudnn: whether cuDNN runs on the device.
        fork: whether branches may run side by side.
    """
    graph = plain.main
    if any(kind.layout == "nhwc" for op in graph.ops for kind in op.types):
        return ()
    blocks = find_blocks(graph)
    edges = block_edges(graph, blocks)
    by_layout = {
        layout: BlockCosts.of(_known_to(region_costs.main, blocks), edges, region_costs, cudnn)
        for layout, region_costs in zip(LAYOUTS, (plain, last), strict=True)
    }
    if fork:
        by_layout = {layout: costs.forking() for layout, costs in by_layout.items()}
    costs = LayoutCosts(by_layout, _copies_us(graph, blocks, plain))
    made = decide(block_tree(len(blocks), edges), costs).choices
    wanted = {name for index, block in enumerate(blocks) if _parts(made[index])[1] == "nhwc" for name in block.ops}
    convolutions = [op for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4]
    names = tuple(op.name for op in convolutions if op.name in wanted)
    return names if len(names) < len(convolutions) else ()


def _known_to(graph: Graph, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks without operators that a graph lacks: in one layout a view of a weight may be hoisted."""
    names = {op.name for op in graph.ops}
    return tuple(replace(block, ops=tuple(name for name in block.ops if name in names)) for block in blocks)


def _copies_us(graph: Graph, blocks: Sequence[Block], region_costs: RegionCosts) -> dict[tuple[int, int], float]:
    """Time to convert the tensors passed between two blocks into the other layout, each tensor once."""
    home = {name: index for index, block in enumerate(blocks) for name in block.ops}
    given = {value.name for value in graph.values if value.role == "param"}
    passed: dict[tuple[int, int], dict[str, TensorType]] = {}
    for op in graph.ops:
        for ref in op.refs():
            producer = home.get(ref.name, SOURCE)
            if producer != home[op.name] and ref.name not in given and _has_two_layouts(graph.type_of(ref)):
                passed.setdefault((producer, home[op.name]), {})[str(ref)] = graph.type_of(ref)
    return {pair: sum(map(region_costs.conversion_us, kinds.values())) for pair, kinds in passed.items()}


def _has_two_layouts(kind: TensorType) -> bool:
    return len(kind.shape) == 4 and kind.shape[1] > 1 and math.prod(kind.shape[2:]) > 1
