"""Model and plan -> an nn.Module that runs the plan, and is in all else the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from costmodel.execution.runner import RUNNER, Runner, device_of, signature_of
from costmodel.planning.plan import Plan, Region

__all__ = ["Planned", "apply", "device_of"]

_NAMES = ("plan", "replaced", "refresh", "region_times")
_NO_GRADIENTS = "a plan computes no gradients; call it under torch.no_grad(), or train the original module"
_PLAIN = (torch.Tensor, nn.Parameter)


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

    It is of the class of `module`, has its attributes, methods and submodules, and shares its parameters and buffers.
    New weights, in either module, take effect at the next call. Calls that a plan cannot serve run eagerly: inputs of
    too many kinds, other parameters for one call, autocast, and whatever traces or transforms operators.

    Args:
        module: in evaluation mode, its parameters where it is to run; it is not changed.
        plan: made for this module and inputs of these shapes.
        inputs: positional inputs, or a mapping of keyword inputs; of tensors only shapes, types and strides are used.
        check: whether to compare outputs with the module's, and with float64's, on random inputs, before use.
        captured: the module's pass on these inputs, if `capture_exactly` has been called already; None to capture now.

    Raises:
        PlanError: the plan is for another module, shape or kind of device; or its outputs are wrong and no region
            is to blame; or the module has forward hooks or names that an applied module cannot have.
        CaptureError: the module cannot be captured.
    """
    if module.training:
        raise PlanError(f"{type(module).__name__} is in training mode; call .eval() on it")
    call = Arguments.of(inputs)
    original = plain(module, without=RUNNER) if isinstance(module, Planned) else module
    _refuse_names(original)
    runner = Runner(plan, tuple(call.kwargs))
    runner.refuse_device(device_of(original, call))
    runner.make_ready(original, call, check, same=True, captured=captured)
    planned = specialize(shared_copy(original), Planned)
    vars(planned)[RUNNER] = runner.of(planned)
    runner.settle(planned)
    return planned


def _refuse_names(module: nn.Module) -> None:
    """Refuses a module with an attribute that an applied one has for itself, or with hooks around its whole pass."""
    if taken := [name for name in _NAMES if hasattr(module, name)]:
        raise PlanError(f"{type(module).__name__} has an attribute {taken[0]!r}, as an applied module has; rename it")
    if any(getattr(module, kind, None) for kind in FORWARD_HOOKS):
        raise PlanError(f"{type(module).__name__} has a forward hook; remove it, and register it on the applied module")


class Planned(Specialized):
    """Mixin of a module that is run as a plan says. Inference only."""

    @property
    def plan(self) -> Plan:
        """The plan, its regions as they really run."""
        return self._runner().plan

    @property
    def replaced(self) -> tuple[tuple[Region, float], ...]:
        """Regions that failed the check and run eagerly, with their errors."""
        return self._runner().replaced

    def refresh(self) -> None:
        """Takes over changes that a call does not see: through `tensor.data`, or inside a list or dict of a module."""
        self._runner().forget()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original returns, in memory of its own."""
        if torch.compiler.is_compiling() or RUNNER not in self.__dict__:  # as in a slice of a Sequential
            return self._eager_forward(*args, **kwargs)
        if self.training:
            raise PlanError("a plan is for inference; call .eval()")
        call = self._runner().in_order(args, kwargs)
        tensors = call.tensors()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise PlanError(_NO_GRADIENTS)
        if _needs_operators((*call.args, *call.kwargs.values()), tensors):
            return self._eager_forward(*args, **kwargs)
        found = None if _has_global_hooks() else self._runner().run_ready(call)
        return self._run(call) if found is None else self._nested(*found)

    @takes_turns
    def _run(self, call: Arguments) -> Any:
        """The result where nothing is ready for the call, or might not be: another thread may capture this module."""
        runner = self._runner()
        found = None if _has_global_hooks() else runner.run(self, call)
        if found is not None:
            return self._nested(*found)
        result = call.passed_to(self._eager_forward)
        runner.settle(self)
        return result

    def _nested(self, exact: Exact, outputs: list[torch.Tensor]) -> Any:
        return exact.nest(self._without_gradients(outputs))

    def _without_gradients(self, outputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Outputs that need a gradient where the original's would, and refuse to give it."""
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
        """What `measure` says of each region of the plan, given a call that runs it alone; see `Program.region_times`.

        Args:
            inputs: of a kind that was made ready.
            measure: microseconds of a call that runs a region.
        """
        call, runner = Arguments.of(inputs), self._runner()
        signature = signature_of(call)
        if signature not in runner.ready:
            raise PlanError(f"nothing is ready for these inputs; {self.plan.model} has to be called with them first")
        _, ready = runner.ready[signature]
        program = ready.program if isinstance(ready, Replay) else ready
        with torch.no_grad(), searching(self.plan.search and isinstance(ready, Replay)):
            return program.region_times(call.tensors(), measure)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Planned:
        """Casts and moves are refused before anything changes; what keeps types and devices is let through."""
        for dtype, device in {(tensor.dtype, tensor.device) for tensor in (*self.parameters(), *self.buffers())}:
            made = fn(torch.empty(0, dtype=dtype, device=device))
            if (made.dtype, made.device) != (dtype, device):
                raise PlanError(
                    f"a plan is for weights as they are, {dtype} on {device}; convert the original "
                    "module, make a plan for it and apply that"
                )
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise PlanError("a plan runs on one device; apply one on each, or give DataParallel the original module")


class _RefusedGradients(torch.autograd.Function):
    """Outputs as they are, in a graph whose backward pass is refused."""

    @staticmethod
    def forward(_context: Any, _anchor: torch.Tensor, outputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(output.detach() for output in outputs)

    @staticmethod
    def backward(_context: Any, *_gradients: Any) -> NoReturn:
        raise PlanError(_NO_GRADIENTS)


def _needs_operators(arguments: Iterable[Any], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether something outside looks at the operators of this call, or transforms them.

    A tracer would record what a plan was made of, a transform cannot reach into a CUDA graph, and autocast decides on
    each operator anew.
    """
    return (
        is_transformed(arguments)
        or torch._C._len_torch_dispatch_stack() > 0
        or any(map(torch.is_autocast_enabled, ("cuda", "cpu")))
        or any(type(tensor) not in _PLAIN for tensor in tensors)
    )


def _has_global_hooks() -> bool:
    """Whether hooks are registered for all modules, by anyone or by a capture in another thread."""
    return bool(torch_module._has_any_global_hook())
