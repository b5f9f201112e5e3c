"""Host and device times of kernels -> wall time of one synchronised call, in each mode.

The host issues calls one after another; the device starts a kernel once it is issued and the one before it has ended.
Wall time is the end of the last kernel. In graph mode one launch replays all.
On a CPU the host is the device: it runs what it issues before it goes on, and wall time is a sum (`costmodel.serial`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.kernels import Kernel
from costmodel.predictor import Estimate
from costmodel.program import Program, dispatch_class, distinct_fused
from costmodel.serial import BETWEEN, SERIAL_MODES, kernel_counts

LAUNCH_COSTS = ("launch",)
"""What a launch takes the device in a model beyond its kernel alone."""

WALL_COSTS = ("gap",)
"""What the device idles between two kernels of a stream."""

Costs = Mapping[str, float]


PRODUCTS = ("linear", "matmul")
"""Kinds of kernels that are products of matrices."""


@dataclass(frozen=True)
class TimedProgram:
    """A program and what each of its kernels takes alone, microseconds.

    Attributes:
        program: what is issued.
        device_us: of the device, in the kernels' order.
        host_us: of the host, to issue it among others like it; what Triton launches has costs of its own instead.
    """

    program: Program
    device_us: Sequence[float]
    host_us: Sequence[float]

    @classmethod
    def of(cls, program: Program, estimates: Sequence[Estimate]) -> TimedProgram:
        """The program with what was predicted of its kernels, in order."""
        return cls(program, [one.us for one in estimates], [one.host_us for one in estimates])

    @cached_property
    def kinds(self) -> int:
        """How many kinds of kernels it issues."""
        return len({kernel.kind for kernel in self.program.kernels})

    @cached_property
    def classes(self) -> int:
        """How many kinds of calls that is to the host, as `costmodel.program.dispatch_class` tells them apart."""
        return len(set(map(dispatch_class, self.program.kernels)))

    @cached_property
    def distinct_fused(self) -> int:
        """How many of its fused kernels are not alike."""
        return distinct_fused(self.program.kernels)


@dataclass(frozen=True, slots=True)
class Timing:
    """One mode of one model, microseconds: wall time, host time to issue, device time."""

    latency_us: float
    host_us: float
    device_us: float

    def times(self, factor: float) -> Timing:
        """All of it so many times as long."""
        return Timing(self.latency_us * factor, self.host_us * factor, self.device_us * factor)


def queue_us(
    host_us: Sequence[float], device_us: Sequence[float], prologue_us: float = 0.0, gap_us: float = 0.0
) -> tuple[float, float]:
    """When the host has issued all and when the device has finished, if the host starts at 0; microseconds.

    Args:
        host_us: time to issue each call, in order.
        device_us: device time of each call; 0 for one that launches nothing.
        prologue_us: host time before the first call.
        gap_us: what the device idles between two kernels of a stream, beyond what a graph's replay does.
    """
    issued = finished = prologue_us
    for host, device in zip(host_us, device_us, strict=True):
        issued += host
        if device:
            finished = max(finished + gap_us, issued) + device
    return issued, finished


@dataclass(frozen=True, slots=True)
class Queue:
    """The two sides of a stream, microseconds.

    Attributes:
        prologue_us: host time of the whole pass rather than of a call.
        host_us: host time of each call.
        device_us: device time of each call.
    """

    prologue_us: float
    host_us: Sequence[float]
    device_us: Sequence[float]

    @property
    def host_total_us(self) -> float:
        """Host time of the whole pass."""
        return self.prologue_us + sum(self.host_us)

    def scaled(self, host: float, device: float) -> Queue:
        """The same with every host and every device time multiplied."""
        calls, kernels = [us * host for us in self.host_us], [us * device for us in self.device_us]
        return Queue(self.prologue_us * host, calls, kernels)

    def latency_us(self, gap_us: float) -> float:
        """Wall time: until the host has issued all and the device has finished."""
        return max(queue_us(self.host_us, self.device_us, self.prologue_us, gap_us))

    def timing(self, wall: Costs) -> Timing:
        """What a synchronised call takes."""
        return Timing(self.latency_us(wall["gap"]), self.host_total_us, sum(self.device_us))


def device_times(timed: TimedProgram, costs: Costs) -> list[float]:
    """Device time of each kernel inside its model: alone, plus what its launches take there; microseconds."""
    more = costs["launch"]
    return [us + more * kernel.launches for us, kernel in zip(timed.device_us, timed.program.kernels, strict=True)]


def eager_counts(timed: TimedProgram) -> dict[str, float]:
    """What eager host time is a sum of: the amounts that the costs of the same names multiply.

    Every call takes longer in a pass that comes back to more: to more kinds of kernels, whose code has to be fetched
    into the CPU's caches again (`kinds`), and to more modules and tensors, of which each call has its own (`calls`).
    Measured alone, a kernel makes all views that lead to it, others' too: `view_again` takes those off.
    """
    program, alone = timed.program, sum(timed.host_us)
    return {
        "dispatch": alone,
        "kinds": alone * timed.kinds,
        "calls": alone * math.log(max(1, len(program.kernels))),
        "convolution": sum(kernel.anchor.base == "convolution" for kernel in program.kernels),
        "product": sum(kernel.kind in PRODUCTS for kernel in program.kernels),
        "view": program.calls.views,
        "view_again": program.views_again,
        "idle": program.calls.idle,
        "write": program.calls.writes,
        "module": program.calls.modules,
        "start": 1.0,
    }


def default_counts(timed: TimedProgram) -> dict[str, float]:
    """What the host time of a compiled call is a sum of."""
    program = timed.program
    calls = [_call_counts(*call) for call in zip(program.kernels, timed.host_us, strict=True)]
    counts = {name: sum(call.get(name, 0.0) for call in calls) for name in CALL_COSTS}
    once = {"distinct": timed.distinct_fused, "start": program.fragments}
    return counts | once | {"parameter": program.parameters, "module": program.checked_modules}


CALL_COSTS = ("dispatch", "product", "triton", "output")
"""What the host time of a compiled call is a sum of that goes by its kernels."""


def _call_counts(kernel: Kernel, host_us: float) -> dict[str, float]:
    """What one kernel adds: a library's call, a product's, or launches, with an output allocated by a call each.

    Compiled code calls products directly, which eager execution gets to by way of views and copies.
    """
    if kernel.backend == "triton":
        return {"triton": kernel.launches, "output": len(kernel.graph.outputs)}
    if kernel.kind in PRODUCTS:
        return {"product": 1.0}
    return {"dispatch": host_us}


def graph_counts(program: Program) -> dict[str, float]:
    """What a graph's replay adds to its device time is a sum of."""
    return {"parameter": program.parameters, "module": program.checked_modules, "start": 1.0}


def total(counts: Mapping[str, float], costs: Costs) -> float:
    """The sum of amounts times costs, microseconds."""
    return sum(amount * costs[name] for name, amount in counts.items())


def compile_us(counts: Mapping[str, float], costs: Costs) -> float:
    """What compiling takes, microseconds; of a few kernels the costs' line may tell less than nothing."""
    return max(0.0, total(counts, costs))


def eager_queue(timed: TimedProgram, tables: Mapping[str, Costs]) -> Queue:
    """Eager execution: the host's whole time spread over the calls in proportion to what each takes alone."""
    costs = tables["eager_host"]
    host = total(eager_counts(timed), costs)
    spread = (host - costs["start"]) / max(1e-9, sum(timed.host_us))
    calls = [us * spread for us in timed.host_us]
    return Queue(costs["start"], calls, device_times(timed, tables["eager_device"]))


def default_queue(timed: TimedProgram, tables: Mapping[str, Costs]) -> Queue:
    """torch.compile's default mode: guards and arguments first, then a launch a kernel.

    A pass that was cut enters its graphs one after another: all but the first entry are spread over the calls, and so
    is what fused kernels that are not alike take more than as many that are.
    """
    program, costs = timed.program, tables["default_host"]
    beside = (program.fragments - 1) * costs["start"] + timed.distinct_fused * costs["distinct"]
    each = beside / max(1, len(program.kernels))
    calls = [total(_call_counts(*call), costs) + each for call in zip(program.kernels, timed.host_us, strict=True)]
    prologue = program.parameters * costs["parameter"] + program.checked_modules * costs["module"] + costs["start"]
    return Queue(prologue, calls, device_times(timed, tables["default_device"]))


def timings(eager: TimedProgram, compiled: TimedProgram, tables: Mapping[str, Costs]) -> dict[str, Timing]:
    """A call in every mode there is, from what is issued eager and compiled.

    On a CPU, whose tables of costs are those of `SERIAL_MODES`, there are no CUDA graphs; nor is a pass that was cut
    one of them. Microseconds.
    """
    if all(table in tables for table in SERIAL_MODES.values()):
        issued = {"eager": eager, "default": compiled}
        return {mode: serial_timing(issued[mode], table, tables) for mode, table in SERIAL_MODES.items()}
    found = {"eager": eager_timing(eager, tables), "default": default_timing(compiled, tables)}
    if compiled.program.fragments == 1:
        found["reduce-overhead"] = graph_timing(compiled, tables)
    return found


def serial_timing(timed: TimedProgram, name: str, tables: Mapping[str, Costs]) -> Timing:
    """A call on a CPU: kernels one after another, at the factors of a table, and what is between them."""
    device = total(kernel_counts(timed.program, timed.device_us), tables[name])
    between = max(0.0, total(BETWEEN[name](timed.program), tables[name]))
    return Timing(device + between, between, device)


def eager_timing(timed: TimedProgram, tables: Mapping[str, Costs]) -> Timing:
    """A synchronised eager call."""
    return eager_queue(timed, tables).timing(tables["eager_wall"])


def default_timing(timed: TimedProgram, tables: Mapping[str, Costs]) -> Timing:
    """A synchronised call of the model compiled in default mode."""
    return default_queue(timed, tables).timing(tables["default_wall"])


def graph_timing(timed: TimedProgram, tables: Mapping[str, Costs]) -> Timing:
    """torch.compile's reduce-overhead mode: the compiled kernels as one CUDA graph."""
    device = sum(device_times(timed, tables["default_device"]))
    host = total(graph_counts(timed.program), tables["graph_host"])
    return Timing(device + host, host, device)
