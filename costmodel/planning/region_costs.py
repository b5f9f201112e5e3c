"""Costs of choices: predicted device time of the kernels that a region of a graph launches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from costmodel.device import ASSUMED_GPU
from costmodel.features import device_share
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.ir.subgraph import Cutter, Part, cut, fused_part
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.matmul_precision import in_tf32
from costmodel.planning.blocks import Block, producers_of
from costmodel.planning.oracle import Choice
from costmodel.planning.stream_assignment import WAIT_US
from costmodel.profiles.profile import Profile
from costmodel.timeline import cost_tables
from costmodel.timeline.compile_time import compile_counts

GRID_US = 2.0**-10
"""Times are rounded to multiples of this, so that sums are exact in any order and equal kernels tie."""
Same = tuple[str, tuple[int, ...], tuple[Ref, ...], tuple[Value, ...]]
"""Backend of a region, identities of its operators, its outputs and its inputs, which decide its kernels."""
MOST_PARTNERS = 4
"""Number of nearest producers considered for fusion with a block; a concatenation reads dozens."""


def kernels_of(main: Graph, ops: Sequence[str], backend: str, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """Kernels that a region launches.

    Raises:
        ValueError: cuDNN cannot run these operators as one convolution.
    """
    return kernels_of_part(cut(main, ops), backend, on_cpu)


def kernels_of_part(
    part: Part, backend: str, on_cpu: bool = False, multiprocessors: int = ASSUMED_GPU.multiprocessors
) -> tuple[Kernel, ...]:
    """Kernels that a part of a graph launches; operators have the part's own names.

    Raises:
        ValueError: cuDNN cannot run the part as one convolution.
    """
    if backend == "inductor":
        return compiled_kernels(part.graph, on_cpu, multiprocessors)
    if backend == "eager":
        return eager_kernels(part.graph, on_cpu)
    fused = fused_part(part)
    if fused is None:
        raise ValueError(f"cuDNN cannot run {', '.join(op.base for op in part.graph.ops)} as one convolution")
    return (Kernel("cudnn", fused.graph, tuple(op.name for op in fused.graph.ops)),)


class RegionCosts:
    """Predicted device time of regions, each kernel predicted once; microseconds.

    Attributes:
        main: graph of the regions.

    Args:
        main: graph of the regions.
        profile: profile that predicts.
        other: region costs of another graph by the same profile; the two share predictions of equal regions.
    """

    def __init__(self, main: Graph, profile: Profile, other: RegionCosts | None = None) -> None:
        self._same: dict[Op, Op] = other._same if other else {}
        self.main = replace(main, ops=tuple(self._same.setdefault(op, op) for op in main.ops))
        self._cutter, self._predictor = Cutter(self.main), profile.predictor
        self._on_cpu, self._has_tf32 = profile.on_cpu, profile.device.tf32
        self._multiprocessors = profile.device.multiprocessors
        self._launch_us = 0.0 if profile.on_cpu else profile.costs("default_device", cost_tables.LAUNCH_COSTS)["launch"]
        self._compile_costs = profile.costs("compile")
        self._kernels: dict[tuple[str, tuple[str, ...]], tuple[Kernel, ...]] = {}
        self._selected: dict[Same, tuple[Kernel, ...]] = other._selected if other else {}
        self._parts: dict[tuple[str, str], tuple[Kernel, ...]] = other._parts if other else {}
        self._us: dict[tuple[str, str], float] = other._us if other else {}
        self._shares: dict[tuple[str, str], float] = other._shares if other else {}
        self._total_us: dict[tuple[str, tuple[str, ...]], float] = {}

    def kernels(self, backend: str, ops: Sequence[str]) -> tuple[Kernel, ...]:
        """Kernels that a region launches."""
        key = (backend, tuple(ops))
        if key not in self._kernels:
            selection = self._cutter.select(ops)
            same = (
                backend,
                tuple(map(id, selection.members)),
                selection.outputs,
                self._cutter.values_of(selection.inputs),
            )
            if same not in self._selected:
                self._selected[same] = self._kernels_of(backend, self._cutter.part(selection))
            self._kernels[key] = self._selected[same]
        return self._kernels[key]

    def _kernels_of(self, backend: str, part: Part) -> tuple[Kernel, ...]:
        """Kernels that a part launches; equal parts of the model are compiled once."""
        text = (backend, str(part.graph))
        if text not in self._parts:
            kernels = kernels_of_part(part, backend, self._on_cpu, self._multiprocessors)
            self._parts[text] = in_tf32(kernels) if self._has_tf32 else kernels
        return self._parts[text]

    def predict_regions(self, regions: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Predict the kernels of many regions in one batch, which is faster than one by one."""
        found = {kernel.key: kernel for region in regions for kernel in self.kernels(*region)}
        self._predict([kernel for key, kernel in found.items() if key not in self._us])

    def _predict(self, new: Sequence[Kernel]) -> None:
        estimates = self._predictor.predict(tuple(new), [0.5] * len(new)) if new else ()
        self._us.update((kernel.key, estimate.us) for kernel, estimate in zip(new, estimates, strict=True))

    def us(self, backend: str, ops: Sequence[str]) -> float:
        """Device time of a region, with the gaps between kernels inside the model."""
        key = (backend, tuple(ops))
        if key not in self._total_us:
            kernels = self.kernels(*key)
            if any(kernel.key not in self._us for kernel in kernels):
                self.predict_regions([key])
            times = [self._us[kernel.key] + self._launch_us * kernel.launches for kernel in kernels]
            self._total_us[key] = sum(map(_on_grid, times))
        return self._total_us[key]

    def conversion_us(self, kind: TensorType) -> float:
        """Time to convert a tensor to channels_last or back, by the faster kernel."""
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
        """Time that a plan takes longer to compile with these operators."""
        counts = compile_counts(self.kernels("inductor", ops))
        return sum(counts[name] * us for name, us in self._compile_costs.items() if name in counts and name != "start")

    def share(self, backend: str, ops: Sequence[str]) -> float:
        """Share of the device that a region fills, 0 to 1: the mean over its kernels' time."""
        if not (kernels := self.kernels(backend, ops)):
            return 0.0
        self.predict_regions([(backend, ops)])
        times = [self._us[kernel.key] for kernel in kernels]
        return sum(us * self._share(kernel) for us, kernel in zip(times, kernels, strict=True)) / max(sum(times), 1e-9)

    def _share(self, kernel: Kernel) -> float:
        key = kernel.key
        if key not in self._shares:
            predictor = self._predictor
            self._shares[key] = device_share(kernel, self._us[key], predictor.roofline, predictor.multiprocessors)
        return self._shares[key]


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Costs for the oracle, for the blocks of a graph: microseconds of device time, the bound of a CUDA graph.

    Attributes:
        blocks: blocks of the graph.
        region_costs: costs of regions of the graph.
        near: pairs of blocks between which fusion is considered.
        cudnn: whether cuDNN runs on the device.
        overlap: share of the device that a block fills on average; 1 if branches cannot run side by side.
        calls: number of calls over which compile time is spread.
        inductor: whether any block may be compiled.
    """

    blocks: Sequence[Block]
    region_costs: RegionCosts
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
        region_costs: RegionCosts,
        cudnn: bool = True,
        calls: float = math.inf,
    ) -> BlockCosts:
        """Costs of blocks, with all kernels predicted in one batch."""
        producers = producers_of(len(blocks), edges)
        near = frozenset((a, b) for b, found in enumerate(producers) for a in found[-MOST_PARTNERS:])
        costs = cls(blocks, region_costs, near, cudnn, calls=calls)
        single = [(str(choice), block.ops) for i, block in enumerate(blocks) for choice in costs.choices(i)]
        region_costs.predict_regions(
            [*single, *(("inductor", (*blocks[a].ops, *blocks[b].ops)) for a, b in sorted(near))]
        )
        return costs

    def choices(self, block: int) -> Sequence[Choice]:
        """Backends of a block, the preferred of a tie first; None alone for the graph's end, which runs nothing.

        Eager comes before Inductor: a block that gains nothing from Inductor joins no compiled region, and regions
        stay small enough to run on different streams.
        """
        if block == len(self.blocks):
            return (None,)
        fusible = self.cudnn and self.blocks[block].fusible
        return (*(("cudnn",) if fusible else ()), "eager", *(("inductor",) if self.inductor else ()))

    def run(self, block: int, choice: Choice) -> float:
        """Time of a block alone, with its share of the time to compile it."""
        if choice is None:
            return 0.0
        ops = self.blocks[block].ops
        spread = (
            self.region_costs.compile_us(ops) / self.calls
            if choice == "inductor" and math.isfinite(self.calls)
            else 0.0
        )
        return self.region_costs.us(str(choice), ops) + _on_grid(spread)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """Gain of fusion across two blocks, as a negative cost, if Inductor compiles both."""
        if before != "inductor" or after != "inductor" or (producer, consumer) not in self.near:
            return 0.0
        first, second = self.blocks[producer].ops, self.blocks[consumer].ops
        alone = self.region_costs.us("inductor", first) + self.region_costs.us("inductor", second)
        return self.region_costs.us("inductor", (*first, *second)) - alone

    def together(self, branches: Sequence[float]) -> float:
        """Time of branches on different streams: that of the longest, or of all if they fill the device."""
        crossings = WAIT_US * sum(us > 0 for us in branches)
        return max(*branches, _on_grid(self.overlap * sum(branches))) + crossings

    def forking(self) -> BlockCosts:
        """The same costs with branches that may run side by side."""
        filled = [
            (self.region_costs.us("eager", block.ops), self.region_costs.share("eager", block.ops))
            for block in self.blocks
        ]
        work = sum(us for us, _ in filled)
        return replace(self, overlap=sum(us * share for us, share in filled) / work if work else 1.0)


def _on_grid(us: float) -> float:
    return round(us / GRID_US) * GRID_US
