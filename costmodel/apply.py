"""Model and plan -> an nn.Module that runs the plan, checked against the model before it is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten

from costmodel import checks, gate
from costmodel.arguments import Arguments, Inputs, inputs_fault, module_fault
from costmodel.capture import tensors_in
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import CostmodelError, PlanError, first_line
from costmodel.exact import Exact, capture_exactly
from costmodel.execute import Call, Program, Replay, prepare, searching
from costmodel.freeze import freeze
from costmodel.gate import random_like
from costmodel.ir import Graph
from costmodel.moves import rewrite
from costmodel.plan import Plan, Region

MOST_SIGNATURES = 4
"""Kinds of input that are made ready; a CUDA graph of each holds memory. Inputs of further kinds run eagerly."""
Signature = tuple[TreeSpec | None, tuple[Hashable, ...]]
"""How inputs are nested, None where they are tensors in a row; and of each tensor shape, strides, type and device, of
anything else its type and itself."""


@takes_turns
@checked(
    PlanError,
    module=module_fault,
    plan=checks.instance_of(Plan, "a Plan, as costmodel.plan makes it"),
    inputs=inputs_fault,
    check=checks.flag,
    captured=checks.optional(checks.instance_of(Exact, "a pass, as capture_exactly returns it")),
)
def apply(
    module: nn.Module, plan: Plan, inputs: Inputs, *, check: bool = True, captured: Exact | None = None
) -> Planned:
    """A module that computes what `module` does, as the plan says.

    Args:
        module: in evaluation mode, its parameters where it is to run; it is not changed.
        plan: made for this module and inputs of these shapes.
        inputs: positional inputs, or a mapping of keyword inputs; of tensors only shapes, types and strides are used.
        check: whether to compare outputs with the module's, and with float64's, on random inputs, before use.
        captured: the module's pass on these inputs, if `capture_exactly` has been called already; None to capture now.

    Raises:
        PlanError: the plan is for another module, shape or kind of device; or its outputs are wrong and no region
            is to blame.
        CaptureError: the module cannot be captured.
    """
    if module.training:
        raise PlanError(f"{type(module).__name__} is in training mode; call .eval() on it")
    call = Arguments.of(inputs)
    planned = Planned(module, plan, device_of(module, call), tuple(call.kwargs))
    planned.make_ready(call, check, same=True, captured=captured)
    return planned


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


class Planned(nn.Module):
    """A module run as a plan says. Inference only.

    Attributes:
        plan: the plan, its regions as they really run.
        replaced: regions that failed the check and run eagerly, with their errors.
    """

    def __init__(self, module: nn.Module, plan: Plan, device: torch.device, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.plan = plan
        self.replaced: tuple[tuple[Region, float], ...] = ()
        self._original = (module,)  # in a tuple, or it would be registered as a submodule and moved with this one
        self._device = device
        self._names = names  # of keyword inputs, in the order that the plan knows
        self._ready: dict[Signature, tuple[Exact, Program | Replay]] = {}
        self._unfit: set[Signature] = set()
        self._calls: dict[str, Call] = {}
        self.eval()
        if device.type == "cpu" and any(region.backend == "cudnn" for region in plan.regions):
            raise PlanError(f"the plan is for {plan.hardware}, a GPU, and the module lies on the CPU; plan for the CPU")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original returns, in memory of its own."""
        if self.training:
            raise PlanError("a plan is for inference; call .eval()")
        call = self._in_order(args, kwargs)
        tensors = call.tensors()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise PlanError("a plan computes no gradients; call it under torch.no_grad(), or train the original module")
        with torch.no_grad():
            signature = signature_of(call)
            if signature is None or (signature not in self._ready and not self._take_on(call, signature)):
                return call.passed_to(self._original[0])
            exact, program = self._ready[signature]
            return exact.nest(program.run(tensors))

    def _in_order(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """A call whose keyword inputs are in the order in which they were when the plan was made."""
        if not kwargs:
            return Arguments(args)
        known = [name for name in self._names if name in kwargs]
        return Arguments(args, {name: kwargs[name] for name in (*known, *sorted(kwargs.keys() - set(known)))})

    def region_times(
        self, inputs: Inputs, measure: Callable[[Callable[[], object], Region], float | None]
    ) -> tuple[float | None, ...]:
        """What `measure` says of each region of the plan, given a call that runs it alone; see `Program.region_times`.

        Args:
            inputs: of a kind that was made ready.
            measure: microseconds of a call that runs a region.
        """
        call = Arguments.of(inputs)
        signature = signature_of(call)
        if signature not in self._ready:
            raise PlanError(f"nothing is ready for these inputs; {self.plan.model} has to be called with them first")
        _, ready = self._ready[signature]
        program = ready.program if isinstance(ready, Replay) else ready
        with torch.no_grad(), searching(self.plan.search and isinstance(ready, Replay)):
            return program.region_times(call.tensors(), measure)

    def refresh(self) -> None:
        """Takes over parameters that the original has been given since; what is ready is made anew when needed."""
        self._ready.clear()
        self._unfit.clear()

    @takes_turns
    def make_ready(self, inputs: Arguments, check: bool, same: bool = False, captured: Exact | None = None) -> None:
        """Prepares to run inputs of one kind, with `same` of the kind that the plan was made for.

        Raises:
            PlanError: the plan does not fit, or computes something else than the module.
        """
        module = self._original[0]
        example = inputs.like(lambda tensor: random_like(tensor, self._device))
        signature = signature_of(example)  # on the device, where calls are; the inputs may be meta tensors
        if signature is None:
            raise PlanError("an input that is no tensor cannot be told from another (it has no hash); leave it out")
        exact = captured or capture_exactly(module, inputs, self.plan.model)
        if same:
            self.plan.check(exact.graph)
        frozen = freeze(rewrite(exact.graph, self.plan.moves))
        self.plan.check_regions(frozen.main)
        params = prepare(frozen, exact, state_of(module), self._device)
        tensors = example.tensors()
        on_graph = self.plan.launch == "graph" and self._device.type == "cuda"
        program = Program(frozen.main, self.plan.regions, params, self._calls)
        with torch.no_grad():
            expected = (list(tensors_in(example.passed_to(module))), gate.reference(module, example)) if check else None
        with torch.no_grad(), searching(self.plan.search and on_graph):
            if expected is not None:
                program = self._checked(program, frozen.main, params, tensors, *expected)
            ready = self._captured(program, frozen.main, params, tensors, expected) if on_graph else program
            self._ready[signature] = (exact, ready)

    def _captured(
        self,
        program: Program,
        main: Graph,
        params: Mapping[str, torch.Tensor],
        tensors: Sequence[torch.Tensor],
        expected: tuple[list[torch.Tensor], list[torch.Tensor] | None] | None,
    ) -> Replay:
        """The program as one CUDA graph, its lanes side by side; in a row, if that fails or comes out wrong.

        Raises:
            PlanError: the graph fails, or computes something else than the module, even so.
        """
        try:
            replay = Replay(program, tensors)
            if expected is None or gate.passes(lambda: replay.run(tensors), *expected):
                return replay
            fault = f"computes something else than {self.plan.model}"
        except RuntimeError as error:
            fault = f"of {self.plan.model} cannot be captured or replayed: {first_line(str(error))}"
        if program.lanes > 1:
            self.plan = self.plan.in_a_row()
            program = Program(main, self.plan.regions, params, self._calls)
            return self._captured(program, main, params, tensors, expected)
        raise PlanError(f"the CUDA graph {fault}; make the plan anew, report this")

    def _checked(
        self,
        program: Program,
        main: Graph,
        params: Mapping[str, torch.Tensor],
        tensors: Sequence[torch.Tensor],
        eager: Sequence[torch.Tensor],
        exact: Sequence[torch.Tensor] | None,
    ) -> Program:
        """The program, its faulty regions replaced by eager ones.

        Raises:
            PlanError: no region is to blame for what is wrong.
        """
        if not _fault(program, tensors, eager, exact):
            return program
        self.replaced = program.faulty(tensors)
        why = {
            region.ops: "its outputs were wrong" if error < math.inf else "it failed" for region, error in self.replaced
        }
        regions = tuple(
            replace(region, backend="eager", why=why[region.ops]) if region.ops in why else region
            for region in self.plan.regions
        )
        self.plan = replace(self.plan, regions=regions)
        program = Program(main, regions, params, self._calls)
        if fault := _fault(program, tensors, eager, exact):
            raise PlanError(f"the plan {fault} {self.plan.model}; make it anew, and report this")
        return program

    def _take_on(self, inputs: Arguments, signature: Signature) -> bool:
        """Whether the plan could be made ready for inputs of another kind; each kind is tried once."""
        if signature in self._unfit or len(self._ready) + len(self._unfit) >= MOST_SIGNATURES:
            return False
        try:
            self.make_ready(inputs, check=True)
        except CostmodelError:
            self._unfit.add(signature)
            return False
        return True


def _fault(
    program: Program,
    tensors: Sequence[torch.Tensor],
    eager: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None,
) -> str:
    """What is wrong with a program; empty where its outputs may be used."""
    try:
        return "" if gate.passes(lambda: program.run(tensors), eager, exact) else "computes something else than"
    except Exception as error:  # noqa: BLE001 - a compiler may fail in any way; which region did is found out next
        return f"fails ({first_line(str(error))}) for"


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by every name that they have."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def signature_of(inputs: Arguments) -> Signature | None:
    """What must be equal for inputs to run on what was made ready; None where one cannot be told from another."""
    if inputs.are_tensors():
        return None, tuple(map(_told, inputs.args))
    leaves, spec = tree_flatten((inputs.args, inputs.kwargs))
    signature = spec, tuple(map(_told, leaves))
    try:
        hash(signature)
    except TypeError:
        return None
    return signature


def _told(leaf: Any) -> tuple[Any, ...]:
    """What tells a leaf of inputs from others."""
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
    return type(leaf), leaf
