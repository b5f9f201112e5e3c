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
        known_us: part of the host time that the costs of inference explain.
        counts: counts of the other part, by the names of STEP_COSTS.
    """

    host_us: Sequence[float]
    device_us: Sequence[float]
    known_us: float
    counts: Mapping[str, float] = field(default_factory=dict)


def spread(known: Sequence[float], device_us: Sequence[float], counts: Mapping[str, float], costs: Costs) -> Segment:
    """Segment of calls whose further costs are spread over them evenly; a call of no kernel if there is none."""
    more = sum(amount * costs[name] for name, amount in counts.items())
    if not known:
        return Segment((more,), (0.0,), 0.0, counts)
    each = more / len(known)
    return Segment([us + each for us in known], list(device_us), sum(known), counts)


def of_queue(queue: Queue, counts: Mapping[str, float], costs: Costs) -> Segment:
    """Segment of the calls of a queue, its prologue first."""
    made = spread([queue.prologue_us, *queue.host_us], [0.0, *queue.device_us], {}, costs)
    more = sum(amount * costs[name] for name, amount in counts.items()) / max(1, len(made.host_us))
    return Segment([us + more for us in made.host_us], made.device_us, made.known_us, counts)


def eager_segments(step: EagerStep, optimizer: Optimizer, tables: Tables, costs: Costs = STEP_COSTS) -> list[Segment]:
    """Segments of an eager step."""
    forward = eager_queue(step.forward, tables)
    recorded = len(step.forward.trace.kernels) + step.forward.trace.views
    backward_us = [us for part in (step.loss_backward, step.backward) for us in part.host_us]
    device = [us for part in (step.loss_backward, step.backward) for us in device_times(part, tables["eager_device"])]
    counts = {"node": step.nodes, "accumulate": optimizer.parameters, "backward_dispatch": sum(backward_us)}
    share = costs["backward_dispatch"]
    more = (step.nodes * costs["node"] + optimizer.parameters * costs["accumulate"]) / max(1, len(backward_us))
    return [
        of_queue(forward, {"record": recorded, "start": 1.0}, costs),
        _loss(step.loss, tables, costs),
        Segment([us * share + more for us in backward_us], device, 0.0, counts),
        optimizer_segment(optimizer, tables, costs),
    ]


def _loss(timed: TimedTrace, tables: Tables, costs: Costs) -> Segment:
    """Segment of the loss, which runs eagerly in every mode."""
    device = device_times(timed, tables["eager_device"])
    return spread(timed.host_us, device, {"record": len(timed.host_us) + timed.trace.views}, costs)


def optimizer_segment(optimizer: Optimizer, tables: Tables, costs: Costs = STEP_COSTS) -> Segment:
    """Segment of the optimizer: Python visits each parameter first, then makes each call."""
    calls, parameters = len(optimizer.timed.trace.kernels), optimizer.parameters
    tensors = [sum(1 for _ in kernel.graph.values) for kernel in optimizer.timed.trace.kernels]
    first: dict[str, float] = {"optimizer_parameter": parameters}
    first |= {"counted_step": parameters} if optimizer.counts_steps else {}
    before = sum(amount * costs[name] for name, amount in first.items())
    each = [costs["optimizer_call"] + count * costs["optimizer_tensor"] for count in tensors]
    counts = {**first, "optimizer_call": calls, "optimizer_tensor": sum(tensors)}
    device = device_times(optimizer.timed, tables["eager_device"])
    return Segment([before, *each], [0.0, *device], 0.0, counts)


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
    """  # fmt: skip
    queue = replay_queue if replayed else default_queue
    forward, backward = queue(compiled.forward, tables), queue(compiled.backward, tables)
    gradients = optimizer.parameters
    saving: dict[str, float] = {"saved": compiled.saved, "start": 1.0}
    leaving: dict[str, float] = {"backward_start": 1.0, "accumulate": gradients}
    if replayed:
        saving["replay_tensor"], leaving["replay_tensor"] = compiled.saved, gradients
    loss_device = device_times(step.loss_backward, tables["eager_device"])
    share = costs["backward_dispatch"]
    dispatched = [us * share for us in step.loss_backward.host_us]
    loss_counts = {"backward_dispatch": sum(step.loss_backward.host_us)}
    return [
        of_queue(forward, saving, costs),
        _loss(step.loss, tables, costs),
        Segment(dispatched or (0.0,), loss_device or (0.0,), 0.0, loss_counts),
        of_queue(backward, leaving, costs),
        optimizer_segment(optimizer, tables, costs),
    ]


def timing_of(segments: Sequence[Segment], wall: Costs) -> Timing:
    """Times of a synchronised step."""
    host = [us for segment in segments for us in segment.host_us]
    device = [us for segment in segments for us in segment.device_us]
    return Queue(0.0, host, device).timing(wall)


def counts_of(segments: Sequence[Segment]) -> tuple[float, dict[str, float]]:
    """Host time that the costs of inference explain, and the counts of the rest."""
    counts: dict[str, float] = {}
    for segment in segments:
        for name, amount in segment.counts.items():
            counts[name] = counts.get(name, 0.0) + amount
    return sum(segment.known_us for segment in segments), counts
