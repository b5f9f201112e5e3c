"""Module and plan -> nn.Module that runs the plan and otherwise behaves as the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from costmodel import checks
from costmodel.capture.executable import Exact
from costmodel.capture.inputs import Arguments, Inputs, inputs_fault, module_fault
from costmodel.capture.shared_module import FORWARD_HOOKS, Specialized, is_transformed, plain, shared_copy, specialize
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import PlanError
from costmodel.execution.cuda_graph import Replay, searching
from costmodel.execution.preconditions import device_of
from costmodel.execution.regions import Call
from costmodel.execution.runner import RUNNER, Runner
from costmodel.execution.signature import signature_of
from costmodel.execution.torch_settings import matmul_precision_of_at_least, under_autocast
from costmodel.planning.plan import Plan, Region

_NAMES = ("plan", "replaced", "fallbacks", "refresh", "region_times")
_NO_GRADIENTS = "a plan computes no gradients; call it under torch.no_grad(), or train the original module"
_PLAIN = (torch.Tensor, nn.Parameter)


@takes_turns
@checked(
    PlanError,
    module=module_fault,
    plan=checks.instance_of(Plan, "a Plan, as costmodel.plan makes it"),
    inputs=inputs_fault,
    check=checks.flag,
    captured=checks.optional(checks.instance_of(Exact, "a captured pass, as capture_exactly returns it")),
)
def apply(
    module: nn.Module, plan: Plan, inputs: Inputs, *, check: bool = True, captured: Exact | None = None
) -> Planned:
    """Return a module that computes the outputs of `module` by a plan.

    The result has the class, attributes, methods and submodules of `module`, and shares its parameters and buffers.
    New weights, in either module, take effect at the next call. Calls that a plan cannot serve run eagerly: further
    input shapes, other parameters for one call, autocast, and tracing or transforming of operators.

    A plan for calls under autocast (`amp`) makes the casts itself. Its module takes the inputs that the original takes,
    outside of any region or within one of the same precision, and what it runs eagerly is under autocast too.

    A plan for matmuls in TF32 (`matmul_precision`) runs its regions so, whatever the setting of the process, which is
    raised while the plan is prepared and restored. That costs a call nothing, as a CUDA graph keeps its kernels. A
    process that allows more than the plan was made for is left as it is; calls that run eagerly follow the process.

    Args:
        module: in evaluation mode, with its parameters on the device to run on; it is not changed.
        plan: made for this module and inputs of these shapes.
        inputs: positional inputs, or a mapping of keyword inputs; only shapes, dtypes and strides of tensors are used.
        check: whether to compare outputs on random inputs with those of the module, and in float64, before use.
        captured: result of `capture_exactly` for these inputs, if there is one; None to capture now.

    Raises:
        PlanError: the plan is for another module, shape or kind of device; or its outputs are wrong though no single
            region fails; or the module has forward hooks, or attributes that an applied module uses itself.
        CaptureError: the module cannot be captured.
    """
    if module.training:
        raise PlanError(f"{type(module).__name__} is in training mode; call .eval() on it")
    return make_planned(module, plan, Arguments.of(inputs), check=check, captured=captured)


def make_planned(
    module: nn.Module,
    plan: Plan,
    call: Arguments,
    *,
    check: bool = True,
    captured: Exact | None = None,
    strict: bool = False,
    calls: dict[str, Call] | None = None,
    regions_on: str | None = None,
) -> Planned:
    """Return a module that runs a plan, as `apply` does, from checked arguments.

    Args:
        module: in evaluation mode.
        plan: made for this module and inputs of these shapes.
        call: inputs.
        check: whether to compare outputs with those of the module before use.
        captured: captured pass, if there is one.
        strict: whether outputs may be no further from float64's than eager ones are.
        calls: compiled regions of another module with this plan, which are shared; None for none.
        regions_on: type of the device whose autocast regions in the module are part of the plan; None for none.
    """
    original = plain(module, without=RUNNER) if isinstance(module, Planned) else module
    _refuse_names(original)
    runner = Runner(plan, tuple(call.kwargs), strict=strict, regions_on=regions_on)
    runner.share(calls, device_of(original, call))
    runner.refuse_device(device_of(original, call))
    runner.make_ready(original, call, check, same=True, captured=captured)
    planned = specialize(shared_copy(original), Planned)
    vars(planned)[RUNNER] = runner.of(planned)
    runner.accept_state(planned)
    return planned


def _refuse_names(module: nn.Module) -> None:
    """Refuse a module with an attribute that an applied module uses itself, or with hooks around its forward pass."""
    if taken := [name for name in _NAMES if hasattr(module, name)]:
        raise PlanError(
            f"{type(module).__name__} has an attribute {taken[0]!r}, which an applied module needs itself; rename it"
        )
    if any(getattr(module, kind, None) for kind in FORWARD_HOOKS):
        raise PlanError(f"{type(module).__name__} has a forward hook; remove it, and register it on the applied module")


class Planned(Specialized):
    """Mixin of a module that is run as a plan says. Inference only."""

    @property
    def plan(self) -> Plan:
        """The plan, with the regions that really run."""
        return self._runner().plan

    @property
    def replaced(self) -> tuple[tuple[Region, float], ...]:
        """Regions that failed the numerical check and run eagerly, with their errors."""
        return self._runner().replaced

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Reasons for which inputs of some shapes run eagerly, such as too little memory to capture a CUDA graph."""
        return self._runner().fallbacks

    def refresh(self) -> None:
        """Adopt changes that a call does not notice: through `tensor.data`, or inside a list or dict of a module."""
        self._runner().forget()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plan; outputs are those of the original, in fresh memory."""
        if RUNNER not in self.__dict__:  # as in a slice of a Sequential
            return self._eager_forward(*args, **kwargs)
        if torch.compiler.is_compiling():
            return self._as_planned_for(*args, **kwargs)
        if self.training:
            raise PlanError("a plan is for inference; call .eval()")
        runner = self._runner()
        call = runner.in_order(args, kwargs)
        tensors = call.tensors()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise PlanError(_NO_GRADIENTS)
        if runner.plan.amp is not None and _is_in_region(self._device_type(), runner.plan.amp):
            with torch.autocast(self._device_type(), enabled=False):
                return self.forward(*args, **kwargs)
        if _needs_operators((*call.args, *call.kwargs.values()), tensors):
            return self._as_planned_for(*args, **kwargs)
        found = None if _has_global_hooks() else runner.run_ready(call)
        return self._run(call) if found is None else self._nested(*found)

    @takes_turns
    def _run(self, call: Arguments) -> Any:
        """Run a call that needs preparation; one thread at a time, for another may capture this module."""
        runner = self._runner()
        found = None if _has_global_hooks() else runner.run(self, call)
        if found is not None:
            return self._nested(*found)
        result = call.passed_to(self._as_planned_for)
        runner.accept_state(self)
        return result

    def _as_planned_for(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original's forward pass, under autocast if the plan is for that and the caller is in no region."""
        amp = None if _is_autocast() else self.plan.amp
        return under_autocast(self._eager_forward, self._device_type(), amp)(*args, **kwargs)

    def _device_type(self) -> str:
        """Type of the device that holds the module, or its programs' for one without tensors, or the best there is."""
        held = next(chain(self.parameters(), self.buffers()), None)
        device = self._runner().device if held is None else held.device
        if device is None:
            return "cuda" if torch.cuda.is_available() else "cpu"
        return device.type

    def _nested(self, exact: Exact, outputs: list[torch.Tensor]) -> Any:
        return exact.nest(self._without_gradients(outputs))

    def _without_gradients(self, outputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Make outputs require a gradient where the original's would; the backward pass raises."""
        if not torch.is_grad_enabled() or not any(parameter.requires_grad for parameter in self.parameters()):
            return outputs
        return _RefusedGradients.apply(torch.empty(0, requires_grad=True), outputs)  # type: ignore[no-any-return, no-untyped-call]

    def _runner(self) -> Runner:
        found: Runner = self.__dict__[RUNNER]
        runner = found.of(self)
        if runner is not found:
            self.__dict__[RUNNER] = runner
        return runner

    def region_times(
        self, inputs: Inputs, measure: Callable[[Callable[[], object], Region], float | None]
    ) -> tuple[float | None, ...]:
        """Measure each region of the plan alone; see `PlannedProgram.region_times`.

        Args:
            inputs: inputs of shapes that the module has run with.
            measure: measures a call that runs a region; microseconds.
        """
        call, runner = Arguments.of(inputs), self._runner()
        signature = signature_of(call)
        if signature not in runner.ready:
            raise PlanError(f"no program is ready for these inputs; call {self.plan.model} with them first")
        _, ready = runner.ready[signature]
        program = ready.program if isinstance(ready, Replay) else ready
        precision = matmul_precision_of_at_least(self.plan.matmul_precision)
        with torch.no_grad(), precision, searching(self.plan.search and isinstance(ready, Replay)):
            return program.region_times(call.tensors(), measure)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Planned:
        """Refuse casts and device moves before anything changes; allow what keeps dtypes and devices."""
        for dtype, device in {(tensor.dtype, tensor.device) for tensor in (*self.parameters(), *self.buffers())}:
            made = fn(torch.empty(0, dtype=dtype, device=device))
            if (made.dtype, made.device) != (dtype, device):
                raise PlanError(
                    f"a plan is for weights in {dtype} on {device}; convert the original "
                    "module, make a plan for it and apply that"
                )
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise PlanError("a plan runs on one device; apply one on each, or give DataParallel the original module")


class _RefusedGradients(torch.autograd.Function):
    """Identity whose backward pass raises."""

    @staticmethod
    def forward(_context: Any, _anchor: torch.Tensor, outputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(output.detach() for output in outputs)

    @staticmethod
    def backward(_context: Any, *_gradients: Any) -> NoReturn:
        raise PlanError(_NO_GRADIENTS)


def _needs_operators(arguments: Iterable[Any], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether code around this call observes or transforms its operators.

    A tracer would record the plan's operators, a transform cannot reach into a CUDA graph, and autocast casts operator
    by operator.
    """
    return (
        is_transformed(arguments)
        or torch._C._len_torch_dispatch_stack() > 0
        or _is_autocast()
        or any(type(tensor) not in _PLAIN for tensor in tensors)
    )


def _is_autocast() -> bool:
    """Whether autocast of any device is on."""
    return any(map(torch.is_autocast_enabled, ("cuda", "cpu")))


def _is_in_region(device_type: str, amp: str) -> bool:
    """Whether the only autocast that is on is a device's, in this precision."""
    others = {"cuda", "cpu"} - {device_type}
    is_own = torch.is_autocast_enabled(device_type) and torch.get_autocast_dtype(device_type) is getattr(torch, amp)
    return is_own and not any(map(torch.is_autocast_enabled, others))


def _has_global_hooks() -> bool:
    """Whether global module hooks are registered, by a user or by a capture in another thread."""
    return bool(torch_module._has_any_global_hook())
