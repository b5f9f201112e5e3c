"""Training step -> kernels of its passes with their times, eager and compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.capture.step_recording import Phase
from costmodel.capture.training_step import TrainingStep
from costmodel.inductor.compilation import Compilation
from costmodel.inductor.pipeline import schedule
from costmodel.inductor.training import compile_step
from costmodel.ir import Calls, Graph, Op
from costmodel.ir.operators import is_view
from costmodel.kernels.eager_dispatch import as_issued, kernels_of
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.matmul_precision import in_tf32
from costmodel.kernels.optimizers import COUNTS_STEPS, optimizer_graph
from costmodel.predictor.estimate import Estimate
from costmodel.profiles.profile import Profile
from costmodel.timeline.issue_trace import IssueTrace, SectionTrace, footprint_of, origin_of, positions
from costmodel.timeline.timed_trace import TimedTrace
from costmodel.timeline.training_queue import CompiledTraces, EagerStep, Optimizer


@dataclass(frozen=True, slots=True)
class TimedPass:
    """Kernels of one pass of a step.

    Attributes:
        trace: issue trace of the pass.
        estimates: device and host time of each kernel.
        ops: operators of the pass by name, as it was captured.
    """

    trace: IssueTrace
    estimates: Sequence[Estimate]
    ops: Mapping[str, Op]

    @property
    def timed(self) -> TimedTrace:
        """The trace with its times."""
        return TimedTrace.of(self.trace, self.estimates)


@dataclass(frozen=True, slots=True)
class CompiledPasses:
    """Compiled forward and backward pass, with the compilations that they come from."""

    forward: TimedPass
    backward: TimedPass
    compilations: tuple[Compilation, Compilation]
    saved: Mapping[str, int]

    @property
    def traces(self) -> CompiledTraces:
        """Their traces with times."""
        return CompiledTraces(self.forward.timed, self.backward.timed, len(self.saved))


@dataclass(frozen=True, slots=True)
class TimedStep:
    """Every pass of a step with its times.

    Attributes:
        eager: eager passes.
        optimizer: optimizer, which runs eagerly in every mode.
        updates: operators of the optimizer.
        compiled: compiled passes; None where the step cannot be compiled.
        nodes: autograd nodes of the backward pass.
    """

    eager: Mapping[Phase, TimedPass]
    optimizer: TimedPass
    updates: Graph
    compiled: CompiledPasses | None
    nodes: int
    parameters: int
    counts_steps: bool

    @property
    def eager_step(self) -> EagerStep:
        """Traces of the eager passes."""
        forward, loss, loss_backward, backward = (self.eager[phase].timed for phase in Phase)
        return EagerStep(forward, loss, loss_backward, backward, self.nodes)

    @property
    def optimizer_step(self) -> Optimizer:
        """Trace of the optimizer."""
        return Optimizer(self.optimizer.timed, self.parameters, self.counts_steps)


def time_step(step: TrainingStep, optimizer: str, profile: Profile) -> TimedStep:
    """Predict the kernels of a training step.

    Args:
        step: captured step.
        optimizer: one of `costmodel.kernels.optimizers.OPTIMIZERS`.
        profile: profile of the hardware.

    Raises:
        RequestError: there is no rule for the optimizer.
        ProfileError: the profile is damaged or of another version.
    """
    updates = optimizer_graph(step.parameters, optimizer)
    return TimedStep(
        _eager_passes(step.eager, profile),
        _timed(kernels_of(as_issued(updates)), updates, updates.ops, Calls(), profile),
        updates,
        _compiled_passes(step, profile),
        step.nodes,
        len(step.parameters),
        optimizer in COUNTS_STEPS,
    )


def _eager_passes(graph: Graph, profile: Profile) -> dict[Phase, TimedPass]:
    phases = {op.name: Phase(op.section) for op in graph.ops}
    kernels: dict[Phase, list[Kernel]] = {phase: [] for phase in Phase}
    for kernel in kernels_of(as_issued(graph)):
        kernels[phases[origin_of(kernel.ops[0])]].append(kernel)
    found = {}
    for phase in Phase:
        ops = [op for op in graph.ops if op.section == phase]
        calls = graph.calls if phase is Phase.FORWARD else Calls()
        found[phase] = _timed(tuple(kernels[phase]), graph, ops, calls, profile)
    return found


def _timed(
    kernels: tuple[Kernel, ...], graph: Graph, ops: Sequence[Op], calls: Calls, profile: Profile, compiled: bool = False
) -> TimedPass:
    """Estimates of the kernels of a pass whose operators are given."""
    kernels = in_tf32(kernels) if profile.device.tf32 else kernels
    part = replace(graph, ops=tuple(ops), outputs=())
    parameters = sum(value.role == "param" for value in graph.values)
    views = 0 if compiled else sum(map(is_view, ops))
    sections = (SectionTrace(len(kernels), parameters),) if compiled else ()
    trace = IssueTrace(
        kernels, positions(part, kernels), views, calls, parameters, footprint_of(part), sections=sections
    )
    estimates = profile.predictor.predict(trace.kernels, trace.positions)
    return TimedPass(trace, estimates, {op.name: op for op in ops})


def _compiled_passes(step: TrainingStep, profile: Profile) -> CompiledPasses | None:
    graphs = step.compiled
    if graphs is None:
        return None
    both = compile_step(graphs.forward, graphs.backward, graphs.saved, profile.device.multiprocessors)
    forward, backward = (
        _timed(schedule(one), graph, graph.ops, Calls(), profile, compiled=True)
        for one, graph in zip(both, (graphs.forward, graphs.backward), strict=True)
    )
    guarded = replace(forward, trace=replace(forward.trace, checked_modules=step.eager.checked_modules))
    return CompiledPasses(guarded, backward, both, graphs.saved)
