"""Kernel times of a training step -> host, device and wall time of a synchronised step, in each mode.

A step is a series of segments, each a series of calls of the host: forward pass, loss, backward pass, optimizer. The
device runs behind, as in `costmodel.timeline.queue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.timeline.gpu import default_queue, device_times, eager_queue, replay_queue
from costmodel.timeline.queue import Costs, Queue, Timing
from costmodel.timeline.step_costs import STEP_COSTS
from costmodel.timeline.timed_trace import TimedTrace

Tables = Mapping[str, Costs]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Optimizer of a step.

    Attributes:
        timed: its multi-tensor operators.
        parameters: parameters that it updates.
        counts_steps: whether it counts steps in a tensor on the CPU for each parameter.
    """

    timed: TimedTrace
    parameters: int
    counts_steps: bool


@dataclass(frozen=True, slots=True)
class EagerStep:
    """Traces of an eager step: forward pass, loss, the loss's backward pass, backward pass; and its autograd nodes."""

    forward: TimedTrace
    loss: TimedTrace
    loss_backward: TimedTrace
    backward: TimedTrace
    nodes: int


@dataclass(frozen=True, slots=True)
class CompiledTraces:
    """Traces of the compiled graphs, and the number of tensors that the forward graph saves."""

    forward: TimedTrace
    backward: TimedTrace
    saved: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls of a part of a step.

    Attributes:
        host_us: host time of each call.
        device_us: device time of each call.
        counts: counts of the host time, by the names of STEP_COSTS.
    """

    host_us: Sequence[float]
    device_us: Sequence[float]
    counts: Mapping[str, float] = field(default_factory=dict)


def spread(
    kind: str, known: Sequence[float], device_us: Sequence[float], counts: Mapping[str, float], costs: Costs
) -> Segment:
    """Segment of calls with known host times, over which further costs are spread evenly.

    Args:
        kind: cost that the known times are multiplied by.
        known: host time of each call as in inference; a single call of no kernel if there is none.
        device_us: device time of each call.
        counts: further counts.
        costs: costs of all counts.
    """
    more = sum(amount * costs[name] for name, amount in counts.items())
    if not known:
        return Segment((more,), (0.0,), counts)
    each = more / len(known)
    host = [us * costs[kind] + each for us in known]
    return Segment(host, list(device_us), {**counts, kind: counts.get(kind, 0.0) + sum(known)})


def of_queue(
    kind: str,
    queue: Queue,
    counts: Mapping[str, float],
    costs: Costs,
    after: Mapping[str, float] | None = None,
) -> Segment:
    """Segment of the calls of a queue, its prologue first.

    Args:
        kind: cost that the known times are multiplied by.
        queue: the queue.
        counts: further counts, spread over the calls.
        costs: costs of all counts.
        after: counts of what the host does once everything is launched; None for nothing.
    """
    made = spread(kind, [queue.prologue_us, *queue.host_us], [0.0, *queue.device_us], counts, costs)
    if after is None:
        return made
    last = sum(amount * costs[name] for name, amount in after.items())
    return Segment([*made.host_us, last], [*made.device_us, 0.0], {**made.counts, **after})


def eager_segments(step: EagerStep, optimizer: Optimizer, tables: Tables, costs: Costs = STEP_COSTS) -> list[Segment]:
    """Segments of an eager step."""
    recorded = len(step.forward.trace.kernels) + step.forward.trace.views
    both = (step.loss_backward, step.backward)
    backward_us = [us for part in both for us in part.host_us]
    device = [us for part in both for us in device_times(part, tables["eager_device"])]
    counts = {"node": step.nodes, "accumulate": optimizer.parameters}
    return [
        of_queue("eager", eager_queue(step.forward, tables), {"record": recorded, "start": 1.0}, costs),
        _loss(step.loss, tables, costs),
        spread("backward_dispatch", backward_us, device, counts, costs),
        optimizer_segment(optimizer, tables, costs),
    ]


def _loss(timed: TimedTrace, tables: Tables, costs: Costs) -> Segment:
    """Segment of the loss, which runs eagerly in every mode."""
    device = device_times(timed, tables["eager_device"])
    return spread("eager", timed.host_us, device, {"record": len(timed.host_us) + timed.trace.views}, costs)


def optimizer_segment(optimizer: Optimizer, tables: Tables, costs: Costs = STEP_COSTS) -> Segment:
    """Segment of the optimizer: Python visits each parameter first, then makes each call."""
    calls, parameters = len(optimizer.timed.trace.kernels), optimizer.parameters
    tensors = [len(kernel.graph.values) for kernel in optimizer.timed.trace.kernels]
    first: dict[str, float] = {"optimizer_parameter": parameters}
    first |= {"counted_step": parameters} if optimizer.counts_steps else {}
    before = sum(amount * costs[name] for name, amount in first.items())
    each = [costs["optimizer_call"] + count * costs["optimizer_tensor"] for count in tensors]
    counts = {**first, "optimizer_call": calls, "optimizer_tensor": sum(tensors)}
    device = device_times(optimizer.timed, tables["eager_device"])
    return Segment([before, *each], [0.0, *device], counts)


def compiled_segments(
    step: EagerStep,
    compiled: CompiledTraces,
    optimizer: Optimizer,
    tables: Tables,
    replayed: bool,
    costs: Costs = STEP_COSTS,
) -> list[Segment]:
    """Segments of a step whose module is compiled; loss and optimizer run eagerly.

    Args:
        step: traces of the eager step.
        compiled: traces of the compiled graphs.
        optimizer: its optimizer.
        tables: costs of inference.
        replayed: whether both graphs are replayed as CUDA graphs.
        costs: costs of a step.
    """
    queue, kind = (replay_queue, "replayed") if replayed else (default_queue, "compiled")
    saving: dict[str, float] = {"saved": compiled.saved}
    leaving: dict[str, float] = {"accumulate": optimizer.parameters}
    if replayed:
        saving["replay_tensor"], leaving["replay_tensor"] = compiled.saved, optimizer.parameters
    loss_us, loss_device = step.loss_backward.host_us, device_times(step.loss_backward, tables["eager_device"])
    return [
        of_queue(kind, queue(compiled.forward, tables), {"start": 1.0}, costs, saving),
        _loss(step.loss, tables, costs),
        spread("backward_dispatch", loss_us, loss_device, {}, costs),
        of_queue(kind, queue(compiled.backward, tables), {"backward_start": 1.0}, costs, leaving),
        optimizer_segment(optimizer, tables, costs),
    ]


def timing_of(segments: Sequence[Segment], wall: Costs) -> Timing:
    """Times of a synchronised step."""
    host = [us for segment in segments for us in segment.host_us]
    device = [us for segment in segments for us in segment.device_us]
    return Queue(0.0, host, device).timing(wall)


def counts_of(segments: Sequence[Segment]) -> dict[str, float]:
    """Counts of the host time of a step."""
    counts: dict[str, float] = {}
    for segment in segments:
        for name, amount in segment.counts.items():
            counts[name] = counts.get(name, 0.0) + amount
    return counts
