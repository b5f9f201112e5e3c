"""What choices cost: regions of a graph as the kernels that they launch, at the predictor's prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costmodel import timeline
from costmodel.blocks import Block
from costmodel.compile import compiled_kernels
from costmodel.hardware import Profile
from costmodel.ir import Graph
from costmodel.kernels import Kernel, eager_kernels
from costmodel.oracle import Choice
from costmodel.program import footprint_of
from costmodel.regions import cut, fused_part

MOST_PARTNERS = 4
"""Of what a block reads, so many nearest blocks are considered for fusion with it; a concatenation reads dozens."""


def kernels_of(main: Graph, ops: Sequence[str], backend: str) -> tuple[Kernel, ...]:
    """What a region launches.

    Raises:
        ValueError: cuDNN cannot run these operators as one.
    """
    part = cut(main, ops)
    if backend == "inductor":
        return compiled_kernels(part.graph)
    if backend == "eager":
        return eager_kernels(part.graph)
    fused = fused_part(part)
    if fused is None:
        raise ValueError(f"cuDNN cannot run {', '.join(ops)} as one convolution")
    return (Kernel("cudnn", fused.graph, tuple(ops)),)


class Prices:
    """Predicted device time of regions, each kernel predicted once; microseconds."""

    def __init__(self, main: Graph, profile: Profile) -> None:
        self._main, self._predictor = main, profile.predictor
        cold = profile.costs("default_device", ("cold_launch",))["cold_launch"]
        self._cold_us = cold * timeline.coldness(footprint_of(main))
        self._kernels: dict[tuple[str, tuple[str, ...]], tuple[Kernel, ...]] = {}
        self._us: dict[str, float] = {}
        self._total_us: dict[tuple[str, tuple[str, ...]], float] = {}

    def kernels(self, backend: str, ops: Sequence[str]) -> tuple[Kernel, ...]:
        """What a region launches."""
        key = (backend, tuple(ops))
        if key not in self._kernels:
            self._kernels[key] = kernels_of(self._main, ops, backend)
        return self._kernels[key]

    def learn(self, regions: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Predicts the kernels of many regions at once, which is faster than one by one."""
        found = {str(kernel.graph): kernel for region in regions for kernel in self.kernels(*region)}
        new = {text: kernel for text, kernel in found.items() if text not in self._us}
        estimates = self._predictor.predict(tuple(new.values()), [0.5] * len(new)) if new else ()
        self._us.update((text, estimate.us) for text, estimate in zip(new, estimates, strict=True))

    def us(self, backend: str, ops: Sequence[str]) -> float:
        """Device time of a region, with what its launches find cold."""
        key = (backend, tuple(ops))
        if key not in self._total_us:
            self.learn([key])
            times = [self._us[str(kernel.graph)] + self._cold_us * kernel.launches for kernel in self._kernels[key]]
            self._total_us[key] = sum(times)
        return self._total_us[key]


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """What the oracle asks, for the blocks of a graph: microseconds of device time, which bounds a CUDA graph."""

    blocks: Sequence[Block]
    prices: Prices
    near: frozenset[tuple[int, int]]
    cudnn: bool = True

    @classmethod
    def of(
        cls, blocks: Sequence[Block], edges: Iterable[tuple[int, int]], prices: Prices, cudnn: bool = True
    ) -> BlockCosts:
        """Costs with everything predicted that will be asked; `cudnn` if the device has it."""
        producers: dict[int, list[int]] = {}
        for producer, consumer in edges:
            producers.setdefault(consumer, []).append(producer)
        near = frozenset((a, b) for b, found in producers.items() for a in sorted(found)[-MOST_PARTNERS:])
        costs = cls(blocks, prices, near, cudnn)
        single = [(str(choice), block.ops) for i, block in enumerate(blocks) for choice in costs.choices(i)]
        prices.learn([*single, *(("inductor", (*blocks[a].ops, *blocks[b].ops)) for a, b in sorted(near))])
        return costs

    def choices(self, unit: int) -> Sequence[Choice]:
        """How a block can run; what ends the graph is nothing and runs no way."""
        if unit == len(self.blocks):
            return (None,)
        fusible = self.cudnn and self.blocks[unit].fusible
        return ("cudnn", "inductor", "eager") if fusible else ("inductor", "eager")

    def run(self, unit: int, choice: Choice) -> float:
        """A block by itself."""
        return 0.0 if choice is None else self.prices.us(str(choice), self.blocks[unit].ops)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """What fusion across two blocks saves, as a negative cost, if Inductor compiles both."""
        if before != "inductor" or after != "inductor" or (producer, consumer) not in self.near:
            return 0.0
        both = (*self.blocks[producer].ops, *self.blocks[consumer].ops)
        return self.prices.us("inductor", both) - self.run(producer, before) - self.run(consumer, after)

    def together(self, branches: Sequence[float]) -> float:  # noqa: ARG002 - what the oracle asks
        """Plans do not fork streams yet."""
        return math.inf
