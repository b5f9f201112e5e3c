"""Programs of a plan made ready for one kind of inputs after another, each checked against the module before use."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten

from costmodel.capture.executable import Exact, capture_exactly
from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.shared_module import FORWARD_HOOKS, Specialized, plain
from costmodel.capture.trace import tensors_in
from costmodel.errors import CostmodelError, PlanError, first_line, text_of
from costmodel.execution import numerics
from costmodel.execution.cuda_graph import Replay, searching
from costmodel.execution.numerics import random_like
from costmodel.execution.regions import Call, Program, prepare
from costmodel.execution.snapshot import Snapshot
from costmodel.ir import Graph
from costmodel.planning.plan import Plan, Region
from costmodel.rewrites.hoist_constants import freeze
from costmodel.rewrites.registry import rewrite

RUNNER = "_costmodel_runner"
"""Attribute of an applied module that holds its runner."""
MOST_SIGNATURES = 4
"""Kinds of input that are made ready; a CUDA graph of each holds memory. Inputs of further kinds run eagerly."""
Signature = tuple[TreeSpec | None, tuple[Hashable, ...]]
"""How inputs are nested, None where they are tensors in a row; and of each tensor shape, strides, type and device, of
anything else its type and itself."""


class Runner:
    """The programs of a plan for one module, and the state of the module that they were made of.

    A copy of a runner, pickled or not, has the plan and no program.

    Attributes:
        plan: the plan, its regions as they really run.
        replaced: regions that failed the check and run eagerly, with their errors.
        names: keyword inputs, in the order that the plan knows.
        ready: for each kind of inputs the captured pass and its program.
        unfit: kinds of inputs that the plan cannot run.
        calls: regions made ready, for modules on the same device.
        lock: held while a program runs, for a CUDA graph has inputs and outputs of its own.
    """

    def __init__(
        self, plan: Plan, names: tuple[str, ...] = (), replaced: tuple[tuple[Region, float], ...] = ()
    ) -> None:
        self.plan = plan
        self.replaced = replaced
        self.names = names
        self.ready: dict[Signature, tuple[Exact, Program | Replay]] = {}
        self.unfit: set[Signature] = set()
        self.calls: dict[str, Call] = {}
        self.lock = threading.Lock()
        self._device: torch.device | None = None
        self._snapshot: Snapshot | None = None
        self._owner: weakref.ref[nn.Module] | None = None

    def __reduce__(self) -> tuple[type[Runner], tuple[Any, ...]]:
        return Runner, (self.plan, self.names, self.replaced)

    def of(self, owner: nn.Module) -> Runner:
        """This runner, or for a module that got it by a shallow copy of another a new one."""
        if self._owner is None:
            self._owner = weakref.ref(owner)
        return self if self._owner() is owner else Runner(self.plan, self.names, self.replaced).of(owner)

    def in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """A call whose keyword inputs are in the order in which they were when the plan was made."""
        if not kwargs:
            return Arguments(args)
        known = [name for name in self.names if name in kwargs]
        return Arguments(args, {name: kwargs[name] for name in (*known, *sorted(kwargs.keys() - set(known)))})

    def run_ready(self, inputs: Arguments) -> tuple[Exact, list[torch.Tensor]] | None:
        """The outputs of a program that is ready; None where there is none, or the module's state is another now.

        The state is compared after the program was started, while a GPU is busy with it: outputs of a former state
        are dropped.
        """
        signature = signature_of(inputs)
        found = None if signature is None else self.ready.get(signature)
        if found is None:
            return None
        exact, program = found
        with self.lock, torch.no_grad():
            outputs = program.run(inputs.tensors())
        return None if self._has_changed() else (exact, outputs)

    def run(self, module: Specialized, inputs: Arguments) -> tuple[Exact, list[torch.Tensor]] | None:
        """The outputs of the plan, made ready if need be; None where the module has to run eagerly.

        Raises:
            PlanError: the plan is for another kind of device than the module lies on.
        """
        if self._has_changed():
            if _has_substitutes(module):
                return None
            self.forget()
        signature = signature_of(inputs)
        if signature is None or (signature not in self.ready and not self._take_on(module, inputs, signature)):
            return None
        exact, program = self.ready[signature]
        with self.lock, torch.no_grad():
            return exact, program.run(inputs.tensors())

    def _has_changed(self) -> bool:
        return self._snapshot is None or self._snapshot.has_changed()

    def settle(self, module: Specialized) -> None:
        """Takes the module's state as it is now for the one that programs are made of: its own passes may change it."""
        if self._has_changed() and not _has_substitutes(module):
            self._snapshot = Snapshot(module)

    def forget(self) -> None:
        """Drops every program; what is needed is made anew."""
        self.ready.clear()
        self.unfit.clear()
        self._snapshot = None

    def _take_on(self, module: Specialized, inputs: Arguments, signature: Signature) -> bool:
        """Whether the plan could be made ready for inputs of another kind; each kind is tried once."""
        if signature in self.unfit or len(self.ready) + len(self.unfit) >= MOST_SIGNATURES:
            return False
        original = plain(module, without=RUNNER)
        self.refuse_device(device_of(original, inputs))
        try:
            self.make_ready(original, inputs, check=True)
        except CostmodelError:
            self.unfit.add(signature)
        self.settle(module)
        return signature in self.ready

    def refuse_device(self, device: torch.device) -> None:
        """Refuses a module on the CPU for a plan that needs a GPU."""
        if device.type == "cpu" and any(region.backend == "cudnn" for region in self.plan.regions):
            raise PlanError(
                f"the plan is for {self.plan.hardware}, a GPU, and the module lies on the CPU; plan for the CPU"
            )

    def make_ready(
        self, module: nn.Module, inputs: Arguments, check: bool, same: bool = False, captured: Exact | None = None
    ) -> None:
        """Prepares to run inputs of one kind, with `same` of the kind that the plan was made for.

        Args:
            module: under its original class.
            inputs: of tensors only shapes, types and strides are used.
            check: whether to compare outputs with the module's on random inputs.
            same: whether the plan was made for these inputs.
            captured: the module's pass on these inputs, if there is one already.

        Raises:
            PlanError: the plan does not fit, or computes something else than the module.
        """
        device = device_of(module, inputs)
        example = inputs.like(lambda tensor: random_like(tensor, device))
        signature = signature_of(example)  # on the device, where calls are; the inputs may be meta tensors
        if signature is None:
            raise PlanError("an input that is no tensor cannot be told from another (it has no hash); leave it out")
        _refuse_hooks(module)
        exact = captured or capture_exactly(module, inputs, self.plan.model)
        if same:
            self.plan.check(exact.graph)
        if device != self._device:
            self.calls.clear()
            self._device = device
        self.ready[signature] = exact, self._program(module, exact, example, device, check)

    def _program(
        self, module: nn.Module, exact: Exact, example: Arguments, device: torch.device, check: bool
    ) -> Program | Replay:
        """The program for a captured pass, in a CUDA graph if the plan says so."""
        frozen = freeze(rewrite(exact.graph, self.plan.moves))
        self.plan.check_regions(frozen.main)
        params = prepare(frozen, exact, state_of(module), device)
        build = _Build(frozen.main, params, self.calls, example.tensors())
        on_graph = self.plan.launch == "graph" and device.type == "cuda"
        with torch.no_grad():
            trial = Trial.of(module, example) if check else None
        with torch.no_grad(), searching(self.plan.search and on_graph):
            program = build.program(self.plan.regions)
            if trial is not None:
                program = self._checked(program, build, trial)
            return self._captured(program, build, trial) if on_graph else program

    def _captured(self, program: Program, build: _Build, trial: Trial | None) -> Replay:
        """The program as one CUDA graph, its lanes side by side; in a row, if that fails or comes out wrong.

        Raises:
            PlanError: the graph fails, or computes something else than the module, even so.
        """
        try:
            replay = Replay(program, build.tensors)
            if trial is None or trial.is_passed_by(replay, build.tensors):
                return replay
            fault = f"computes something else than {self.plan.model}"
        except RuntimeError as error:
            fault = f"of {self.plan.model} cannot be captured or replayed: {first_line(text_of(error))}"
        if program.lanes > 1:
            self.plan = self.plan.in_a_row()
            return self._captured(build.program(self.plan.regions), build, trial)
        raise PlanError(f"the CUDA graph {fault}; make the plan anew, report this")

    def _checked(self, program: Program, build: _Build, trial: Trial) -> Program:
        """The program, its faulty regions replaced by eager ones.

        Raises:
            PlanError: no region is to blame for what is wrong.
        """
        if not _fault(program, build.tensors, trial):
            return program
        self.replaced = program.faulty(build.tensors)
        why = {
            region.ops: "its outputs were wrong" if error < math.inf else "it failed" for region, error in self.replaced
        }
        regions = tuple(
            replace(region, backend="eager", why=why[region.ops]) if region.ops in why else region
            for region in self.plan.regions
        )
        self.plan = replace(self.plan, regions=regions)
        program = build.program(regions)
        if fault := _fault(program, build.tensors, trial):
            raise PlanError(f"the plan {fault} {self.plan.model}; make it anew, and report this")
        return program


@dataclass(frozen=True, slots=True)
class _Build:
    """Everything that programs for one kind of inputs are made of, beside a plan's regions."""

    main: Graph
    params: Mapping[str, torch.Tensor]
    calls: dict[str, Call]
    tensors: Sequence[torch.Tensor]

    def program(self, regions: Sequence[Region]) -> Program:
        return Program(self.main, regions, self.params, self.calls)


@dataclass(frozen=True, slots=True)
class Trial:
    """Outputs to compare a program's with: eager execution's, and float64's where the module runs in that."""

    eager: list[torch.Tensor]
    exact: list[torch.Tensor] | None = field(default=None)

    @classmethod
    def of(cls, module: nn.Module, example: Arguments) -> Trial:
        """The outputs of a module on random inputs."""
        return cls(list(tensors_in(example.passed_to(module))), numerics.reference(module, example))

    def is_passed_by(self, program: Program | Replay, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether a program's outputs are as good as eager execution's."""
        return numerics.passes(lambda: program.run(tensors), self.eager, self.exact)


def _fault(program: Program, tensors: Sequence[torch.Tensor], trial: Trial) -> str:
    """What is wrong with a program; empty where its outputs may be used."""
    try:
        return "" if trial.is_passed_by(program, tensors) else "computes something else than"
    except Exception as error:  # noqa: BLE001 - a compiler may fail in any way; which region did is found out next
        return f"fails ({first_line(text_of(error))}) for"


def device_of(module: nn.Module, inputs: Inputs) -> torch.device:
    """Where a module lies: its parameters, or if it has none its inputs.

    Raises:
        PlanError: it lies on several devices, or on none that can run it.
    """
    held = [*module.parameters(), *module.buffers()]
    devices = {tensor.device for tensor in held or Arguments.of(inputs).tensors()}
    if len(devices) != 1 or torch.device("meta") in devices:
        found = ", ".join(sorted(map(str, devices))) or "no device"
        raise PlanError(f"the module's parameters must lie on one device to run there; they lie on {found}")
    return devices.pop()


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by every name that they have."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def _has_substitutes(module: nn.Module) -> bool:
    """Whether tensors stand in for parameters, as they do for the one call that `functional_call` makes."""
    return any(not isinstance(tensor, nn.Parameter) for tensor in module.parameters())


def _refuse_hooks(module: nn.Module) -> None:
    """Refuses forward hooks that are no part of the model: a plan calls no submodule, so they would not run.

    Those of torch (`weight_norm`, `prune`) and those that are methods of the model's modules are a part of it.
    """
    own = set(map(id, module.modules()))
    for name, child in module.named_modules():
        for hook in (hook for kind in FORWARD_HOOKS for hook in getattr(child, kind).values()):
            if not _is_of_the_model(hook, own):
                raise PlanError(f"{name or 'the module'} has a forward hook, which a plan would not run; remove it")


def _is_of_the_model(hook: Any, modules: set[int]) -> bool:
    while isinstance(hook, functools.partial):
        hook = hook.func
    origin = getattr(hook, "__module__", None) or ""
    return id(getattr(hook, "__self__", None)) in modules or origin.partition(".")[0] == "torch"


def signature_of(inputs: Arguments) -> Signature | None:
    """What must be equal for inputs to run on what was made ready; None where one cannot be told from another."""
    if inputs.are_tensors():
        return None, tuple(map(_identity, inputs.args))
    leaves, spec = tree_flatten((inputs.args, inputs.kwargs))
    signature = spec, tuple(map(_identity, leaves))
    try:
        hash(signature)
    except TypeError:
        return None
    return signature


def _identity(leaf: Any) -> tuple[Any, ...]:
    """What makes a leaf of inputs different from others."""
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
    return type(leaf), leaf
