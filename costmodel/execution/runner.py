"""Runner of a plan: one program for each input signature, checked against the module before use."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from costmodel.capture.executable import Exact, capture_exactly
from costmodel.capture.inputs import Arguments
from costmodel.capture.shared_module import Specialized, plain
from costmodel.errors import CostmodelError, PlanError, first_line, text_of
from costmodel.execution.cuda_graph import Replay, is_capturing, quicker, searching
from costmodel.execution.numerics import random_like
from costmodel.execution.out_of_memory import forget_locals, say, shortage_behind
from costmodel.execution.preconditions import device_of, has_substitutes, named_tensors, refuse_hooks
from costmodel.execution.regions import Call, PlannedProgram, prepare
from costmodel.execution.signature import Signature, signature_of
from costmodel.execution.snapshot import Snapshot
from costmodel.execution.torch_settings import matmul_precision_of_at_least
from costmodel.execution.trial import ProgramSource, Trial, fault_of
from costmodel.planning.plan import Plan, Region
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites

RUNNER = "_costmodel_runner"
"""Attribute of an applied module that holds its runner."""
MOST_SIGNATURES = 8
"""Most input signatures with a program, for each CUDA graph holds its inputs and outputs; further ones run eagerly."""


class Runner:
    """Programs of a plan for one module, and a snapshot of the module's state.

    A copied or unpickled runner has the plan and no program.

    Attributes:
        plan: the plan, with the regions that really run.
        replaced: regions that failed the numerical check and run eagerly, with their errors.
        names: names of keyword inputs, in the order that the plan was made with.
        ready: signature of inputs -> captured pass and its program.
        unfit: signatures of inputs that the plan cannot run.
        calls: callables of regions, shared by programs on the same device.
        device: device of the programs; None until there is one.
        lock: held while a program runs, for a CUDA graph has static inputs and outputs.
        strict: whether outputs may be no further from float64's than eager ones are.
        regions_on: type of the device whose autocast regions in the module are part of the plan; None for none.
        fallbacks: reasons in words for which input signatures run eagerly, each once.
    """

    def __init__(
        self,
        plan: Plan,
        names: tuple[str, ...] = (),
        replaced: tuple[tuple[Region, float], ...] = (),
        strict: bool = False,
        regions_on: str | None = None,
    ) -> None:
        self.plan = plan
        self.replaced = replaced
        self.names = names
        self.strict = strict
        self.regions_on = regions_on
        self.fallbacks: tuple[str, ...] = ()
        self.ready: dict[Signature, tuple[Exact, PlannedProgram | Replay]] = {}
        self.unfit: set[Signature] = set()
        self.calls: dict[str, Call] = {}
        self.lock = threading.Lock()
        self.device: torch.device | None = None
        self._snapshot: Snapshot | None = None
        self._owner: weakref.ref[nn.Module] | None = None

    def __reduce__(self) -> tuple[type[Runner], tuple[Any, ...]]:
        return Runner, (self.plan, self.names, self.replaced, self.strict, self.regions_on)

    def of(self, owner: nn.Module) -> Runner:
        """Return this runner, or a new one for a module that got it by a shallow copy."""
        if self._owner is None:
            self._owner = weakref.ref(owner)
        if self._owner() is owner:
            return self
        return Runner(self.plan, self.names, self.replaced, self.strict, self.regions_on).of(owner)

    def share(self, calls: dict[str, Call] | None, device: torch.device) -> None:
        """Use compiled regions of another runner of the same plan on this device."""
        if calls is not None:
            self.calls, self.device = calls, device

    def in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """Sort the keyword inputs of a call into the order that the plan was made with."""
        if not kwargs:
            return Arguments(args)
        known = [name for name in self.names if name in kwargs]
        return Arguments(args, {name: kwargs[name] for name in (*known, *sorted(kwargs.keys() - set(known)))})

    def run_ready(self, inputs: Arguments) -> tuple[Exact, list[torch.Tensor]] | None:
        """Run the program for these inputs; None if there is none, or the module's state has changed.

        The state is compared while a GPU is busy with the program; outputs of an outdated state are dropped.
        """
        signature = signature_of(inputs)
        found = None if signature is None else self.ready.get(signature)
        if found is None:
            return None
        exact, program = found
        outputs = self._outputs(program, inputs)
        return None if self._has_changed() else (exact, outputs)

    def run(self, module: Specialized, inputs: Arguments) -> tuple[Exact, list[torch.Tensor]] | None:
        """Run the plan, with preparation if needed; None if the module has to run eagerly, as it has within a capture.

        Raises:
            PlanError: the plan is for another kind of device than the module's.
        """
        if self._has_changed():
            if has_substitutes(module) or is_capturing():
                return None
            self.forget()
        signature = signature_of(inputs)
        if signature is None or (signature not in self.ready and not self._prepare_for(module, inputs, signature)):
            return None
        exact, program = self.ready[signature]
        return exact, self._outputs(program, inputs)

    def _outputs(self, program: PlannedProgram | Replay, inputs: Arguments) -> list[torch.Tensor]:
        """Outputs of a program. The kernels of a CUDA graph are chosen: their precision needs no setting."""
        with self.lock, torch.no_grad():
            if isinstance(program, Replay):
                return program.run(inputs.tensors())
            with matmul_precision_of_at_least(self.plan.matmul_precision):
                return program.run(inputs.tensors())

    def _has_changed(self) -> bool:
        return self._snapshot is None or self._snapshot.has_changed()

    def accept_state(self, module: Specialized) -> None:
        """Accept the module's present state as the one that programs were made of: eager passes may change it.

        Within a capture of the caller's it may be a new one, of which programs are made later.
        """
        if self._has_changed() and not has_substitutes(module) and not is_capturing():
            self._snapshot = Snapshot(module)

    def forget(self) -> None:
        """Drop all programs; later calls make them again."""
        self.ready.clear()
        self.unfit.clear()
        self._snapshot = None

    def _prepare_for(self, module: Specialized, inputs: Arguments, signature: Signature) -> bool:
        """Try once to make a program for a new signature, outside of captures; whether there is one now."""
        if signature in self.unfit or len(self.ready) + len(self.unfit) >= MOST_SIGNATURES or is_capturing():
            return False
        original = plain(module, without=RUNNER)
        self.refuse_device(device_of(original, inputs))
        try:
            self.make_ready(original, inputs, check=True)
        except CostmodelError as error:
            self._run_eagerly(signature, first_line(text_of(error)))
        self.accept_state(module)
        return signature in self.ready

    def _run_eagerly(self, signature: Signature, why: str) -> None:
        """Note that inputs of a signature run eagerly."""
        self.unfit.add(signature)
        if why not in self.fallbacks:
            self.fallbacks += (why,)

    def refuse_device(self, device: torch.device) -> None:
        """Refuse a module on the CPU for a plan that needs a GPU."""
        if device.type == "cpu" and any(region.backend == "cudnn" for region in self.plan.regions):
            raise PlanError(
                f"the plan is for {self.plan.hardware}, a GPU, and the module is on the CPU; make a plan for the CPU"
            )

    def make_ready(
        self, module: nn.Module, inputs: Arguments, check: bool, same: bool = False, captured: Exact | None = None
    ) -> None:
        """Make the program for inputs of one signature; if memory is short, they run eagerly, and the log says so.

        Args:
            module: under its original class.
            inputs: only shapes, dtypes and strides of tensors are used.
            check: whether to compare outputs with the module's on random inputs.
            same: whether the plan was made for these inputs.
            captured: captured pass on these inputs, if there is one already.

        Raises:
            PlanError: the plan does not fit, or computes other outputs than the module.
        """
        drawn_on = [device] if (device := device_of(module, inputs)).type == "cuda" else []
        # In inference mode, static inputs would be tensors that no later call outside it may write.
        with torch.inference_mode(False), torch.random.fork_rng(devices=drawn_on):
            self._make_ready(module, inputs, check, same, captured)

    def _make_ready(
        self, module: nn.Module, inputs: Arguments, check: bool, same: bool, captured: Exact | None
    ) -> None:
        device = device_of(module, inputs)
        example = inputs.like(lambda tensor: random_like(tensor, device))
        signature = signature_of(example)  # on the module's device; `inputs` may be meta tensors
        if signature is None:
            raise PlanError(
                "an input that is not a tensor has no hash, so calls with it cannot be distinguished; leave it out"
            )
        refuse_hooks(module)
        exact = captured or capture_exactly(module, inputs, self.plan.model, self.plan.amp, self.regions_on)
        if same:
            self.plan.check(exact.graph)
        if device != self.device:
            self.calls.clear()
            self.device = device
        try:
            self.ready[signature] = exact, self._program(module, exact, example, device, check)
        except (RuntimeError, PlanError) as error:
            if shortage_behind(error) is None:
                raise
            forget_locals(error)
        if signature not in self.ready:
            torch.cuda.empty_cache()
            short = f"{self.plan.model} runs eagerly: out of memory while its plan was made ready"
            self._run_eagerly(signature, say(short))

    def _program(
        self, module: nn.Module, exact: Exact, example: Arguments, device: torch.device, check: bool
    ) -> PlannedProgram | Replay:
        """Make the program for a captured pass, in a CUDA graph if the plan is launched as one."""
        hoisted = hoist_constants(apply_rewrites(exact.graph, self.plan.rewrites))
        self.plan.check_regions(hoisted.main)
        params = prepare(hoisted, exact, named_tensors(module), device)
        source = ProgramSource(hoisted.main, params, self.calls, example.tensors())
        on_graph = self.plan.launch == "graph" and device.type == "cuda"
        alone = torch.autocast(device.type, enabled=False)  # casts are operators of the graph
        with torch.no_grad(), alone, matmul_precision_of_at_least(self.plan.matmul_precision):
            trial = Trial.of(module, example, device.type, self.plan.amp, self.strict) if check else None
            with searching(self.plan.search and on_graph):
                program = source.program(self.plan.regions)
                if trial is not None:
                    program = self._checked(program, source, trial)
                return self._captured(program, source, trial, device) if on_graph else program

    def _captured(
        self, program: PlannedProgram, source: ProgramSource, trial: Trial | None, device: torch.device
    ) -> Replay:
        """Capture the program in one CUDA graph; on one stream if several fail, give wrong outputs or take longer.

        A host that is busy, or slow to launch, may take longer to launch a graph with branches than they gain.

        Raises:
            OutOfMemoryError: there is not enough memory for the graph.
            PlanError: the graph on one stream fails too, or computes other outputs than the module.
        """
        try:
            replay = Replay(program, source.tensors, device)
            if trial is None or trial.is_passed_by(replay, source.tensors):
                return self._on_fewer_streams(replay, source, device) if program.streams > 1 else replay
            fault = f"computes other outputs than {self.plan.model}"
        except RuntimeError as error:
            if shortage := shortage_behind(error):
                raise shortage from None
            fault = f"of {self.plan.model} cannot be captured or replayed: {first_line(text_of(error))}"
        if program.streams > 1:
            self.plan = self.plan.on_one_stream()
            return self._captured(source.program(self.plan.regions), source, trial, device)
        raise PlanError(f"the CUDA graph {fault}; make the plan again, and report this")

    def _on_fewer_streams(self, forked: Replay, source: ProgramSource, device: torch.device) -> Replay:
        """The capture of a program on several streams, or one on one stream if that is quicker on this machine."""
        plan = self.plan.on_one_stream()
        try:
            single = Replay(source.program(plan.regions), source.tensors, device)
        except RuntimeError:  # such as memory too short for a second graph
            return forked
        if quicker(forked, single, source.tensors) is forked:
            return forked
        self.plan = plan
        return single

    def _checked(self, program: PlannedProgram, source: ProgramSource, trial: Trial) -> PlannedProgram:
        """Replace faulty regions of a program by eager ones.

        Raises:
            PlanError: the program is wrong even so.
        """
        if not fault_of(program, source.tensors, trial):
            return program
        self.replaced = program.faulty(source.tensors)
        why = {
            region.ops: "its outputs were wrong" if error < math.inf else "it failed" for region, error in self.replaced
        }
        regions = tuple(
            replace(region, backend="eager", why=why[region.ops]) if region.ops in why else region
            for region in self.plan.regions
        )
        self.plan = replace(self.plan, regions=regions)
        program = source.program(regions)
        if fault := fault_of(program, source.tensors, trial):
            raise PlanError(f"the plan {fault} {self.plan.model}; make it again, and report this")
        return program
