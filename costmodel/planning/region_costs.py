"""What choices cost: regions of a graph as the kernels that they launch, at the predictor's prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costmodel.features import device_share
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.ir.subgraph import Cutter, Part, cut, fused_part
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.planning.blocks import Block, producers_of
from costmodel.planning.oracle import Choice
from costmodel.planning.stream_assignment import WAIT_US
from costmodel.profiles.profile import Profile
from costmodel.timeline import cost_tables, host_counts
from costmodel.timeline.issue_trace import compile_counts

GRID_US = 2.0**-10
"""Times are whole multiples of this, so that sums are exact in any order: ways that launch the same kernels tie."""
MOST_PARTNERS = 4
"""Of what a block reads, so many nearest blocks are considered for fusion with it; a concatenation reads dozens."""


def kernels_of(main: Graph, ops: Sequence[str], backend: str, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """What a region launches.

    Raises:
        ValueError: cuDNN cannot run these operators as one.
    """
    return kernels_of_part(cut(main, ops), backend, on_cpu)


def kernels_of_part(part: Part, backend: str, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """What a part of a graph launches; the kernels' operators go by the part's own names.

    Raises:
        ValueError: cuDNN cannot run it as one.
    """
    if backend == "inductor":
        return compiled_kernels(part.graph, on_cpu)
    if backend == "eager":
        return eager_kernels(part.graph, on_cpu)
    fused = fused_part(part)
    if fused is None:
        raise ValueError(f"cuDNN cannot run {', '.join(op.base for op in part.graph.ops)} as one convolution")
    return (Kernel("cudnn", fused.graph, tuple(op.name for op in fused.graph.ops)),)


class Prices:
    """Predicted device time of regions, each kernel predicted once; microseconds.

    Attributes:
        main: the graph that the regions are of.

    Args:
        main: the graph that the regions are of.
        profile: whose predictions tell the times.
        other: prices of another graph by the same profile; what the graphs share is not worked out again.
    """

    def __init__(self, main: Graph, profile: Profile, other: Prices | None = None) -> None:
        self.main = main
        self._cutter, self._predictor = Cutter(main), profile.predictor
        self._on_cpu = profile.on_cpu
        self._launch_us = 0.0 if profile.on_cpu else profile.costs("default_device", cost_tables.LAUNCH_COSTS)["launch"]
        self._compile_costs = profile.costs("compile")
        self._kernels: dict[tuple[str, tuple[str, ...]], tuple[Kernel, ...]] = {}
        self._parts: dict[tuple[str, str], tuple[Kernel, ...]] = other._parts if other else {}
        self._us: dict[tuple[str, str], float] = other._us if other else {}
        self._shares: dict[tuple[str, str], float] = other._shares if other else {}
        self._total_us: dict[tuple[str, tuple[str, ...]], float] = {}

    def kernels(self, backend: str, ops: Sequence[str]) -> tuple[Kernel, ...]:
        """What a region launches."""
        key = (backend, tuple(ops))
        if key not in self._kernels:
            part = self._cutter.cut(ops)
            text = (backend, str(part.graph))
            if text not in self._parts:
                self._parts[text] = kernels_of_part(part, backend, self._on_cpu)
            self._kernels[key] = self._parts[text]
        return self._kernels[key]

    def learn(self, regions: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Predicts the kernels of many regions at once, which is faster than one by one."""
        found = {kernel.key: kernel for region in regions for kernel in self.kernels(*region)}
        self._predict([kernel for key, kernel in found.items() if key not in self._us])

    def _predict(self, new: Sequence[Kernel]) -> None:
        estimates = self._predictor.predict(tuple(new), [0.5] * len(new)) if new else ()
        self._us.update((kernel.key, estimate.us) for kernel, estimate in zip(new, estimates, strict=True))

    def us(self, backend: str, ops: Sequence[str]) -> float:
        """Device time of a region, with what its launches take inside the model."""
        key = (backend, tuple(ops))
        if key not in self._total_us:
            self.learn([key])
            times = [self._us[kernel.key] + self._launch_us * kernel.launches for kernel in self._kernels[key]]
            self._total_us[key] = sum(map(_on_grid, times))
        return self._total_us[key]

    def conversion_us(self, kind: TensorType) -> float:
        """Bringing a tensor into channels-last order, or back, by the faster kernel."""
        copy = Op(
            "0",
            "clone",
            (("self", Ref("a0")), ("memory_format", "torch.channels_last")),
            (replace(kind, layout="nhwc"),),
        )
        graph = Graph("", (Value("a0", replace(kind, layout="nchw")),), (copy,), (Ref("0"),))
        kernels = [Kernel(backend, graph, ("0",)) for backend in ("aten", "triton")]
        new = [kernel for kernel in kernels if kernel.key not in self._us]
        self._predict(new)
        return _on_grid(min(self._us[kernel.key] for kernel in kernels))

    def compile_us(self, ops: Sequence[str]) -> float:
        """What compiling some operators adds to the time to build a plan."""
        counts = compile_counts(self.kernels("inductor", ops))
        return host_counts.total(counts, {**self._compile_costs, "start": 0.0})

    def share(self, backend: str, ops: Sequence[str]) -> float:
        """How much of the device a region fills, 0 to 1: the mean over its kernels' time."""
        if not (kernels := self.kernels(backend, ops)):
            return 0.0
        self.learn([(backend, ops)])
        times = [self._us[kernel.key] for kernel in kernels]
        return sum(us * self._share(kernel) for us, kernel in zip(times, kernels, strict=True)) / max(sum(times), 1e-9)

    def _share(self, kernel: Kernel) -> float:
        key = kernel.key
        if key not in self._shares:
            of = self._predictor
            self._shares[key] = device_share(kernel, self._us[key], of.roofline, of.multiprocessors)
        return self._shares[key]


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """What the oracle asks, for the blocks of a graph: microseconds of device time, which bounds a CUDA graph.

    Attributes:
        blocks: the units.
        prices: of regions.
        near: pairs of blocks between which fusion is considered.
        cudnn: whether the device has it.
        overlap: how much of the device a block fills on average; 1 where branches cannot run side by side.
        calls: how many calls the time to compile is spread over.
        inductor: whether any block may be compiled.
    """

    blocks: Sequence[Block]
    prices: Prices
    near: frozenset[tuple[int, int]]
    cudnn: bool = True
    overlap: float = 1.0
    calls: float = math.inf
    inductor: bool = True

    @classmethod
    def of(
        cls,
        blocks: Sequence[Block],
        edges: Iterable[tuple[int, int]],
        prices: Prices,
        cudnn: bool = True,
        calls: float = math.inf,
    ) -> BlockCosts:
        """Costs with everything predicted that will be asked; `cudnn` if the device has it."""
        producers = producers_of(len(blocks), edges)
        near = frozenset((a, b) for b, found in enumerate(producers) for a in found[-MOST_PARTNERS:])
        costs = cls(blocks, prices, near, cudnn, calls=calls)
        single = [(str(choice), block.ops) for i, block in enumerate(blocks) for choice in costs.choices(i)]
        prices.learn([*single, *(("inductor", (*blocks[a].ops, *blocks[b].ops)) for a, b in sorted(near))])
        return costs

    def choices(self, unit: int) -> Sequence[Choice]:
        """How a block can run, first what to prefer of ways that tie; what ends the graph is nothing and runs no way.

        Eager comes before Inductor: a block that gains nothing by it joins no region, and regions stay small enough to
        lie on lanes of their own.
        """
        if unit == len(self.blocks):
            return (None,)
        fusible = self.cudnn and self.blocks[unit].fusible
        return (*(("cudnn",) if fusible else ()), "eager", *(("inductor",) if self.inductor else ()))

    def run(self, unit: int, choice: Choice) -> float:
        """A block by itself, with its part of the time to compile it."""
        if choice is None:
            return 0.0
        ops = self.blocks[unit].ops
        spread = self.prices.compile_us(ops) / self.calls if choice == "inductor" and math.isfinite(self.calls) else 0.0
        return self.prices.us(str(choice), ops) + _on_grid(spread)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """What fusion across two blocks saves, as a negative cost, if Inductor compiles both."""
        if before != "inductor" or after != "inductor" or (producer, consumer) not in self.near:
            return 0.0
        first, second = self.blocks[producer].ops, self.blocks[consumer].ops
        alone = self.prices.us("inductor", first) + self.prices.us("inductor", second)
        return self.prices.us("inductor", (*first, *second)) - alone

    def together(self, branches: Sequence[float]) -> float:
        """Branches on streams of their own share the device: the longest one, or all if they fill it."""
        crossings = WAIT_US * sum(us > 0 for us in branches)
        return max(*branches, _on_grid(self.overlap * sum(branches))) + crossings

    def forking(self) -> BlockCosts:
        """The same costs with branches side by side."""
        filled = [(self.prices.us("eager", block.ops), self.prices.share("eager", block.ops)) for block in self.blocks]
        work = sum(us for us, _ in filled)
        return replace(self, overlap=sum(us * share for us, share in filled) / work if work else 1.0)


def _on_grid(us: float) -> float:
    return round(us / GRID_US) * GRID_US
