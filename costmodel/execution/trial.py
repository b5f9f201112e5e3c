"""Trial of a program: its outputs on random inputs beside those of the module."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from costmodel.capture.inputs import Arguments
from costmodel.capture.trace import tensors_in
from costmodel.errors import first_line, text_of
from costmodel.execution import numerics
from costmodel.execution.cuda_graph import Replay
from costmodel.execution.regions import Call, PlannedProgram
from costmodel.execution.torch_settings import under_autocast
from costmodel.ir import Graph
from costmodel.planning.plan import Region


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """Graph, parameters and example inputs for programs of one input signature."""

    main: Graph
    params: Mapping[str, torch.Tensor]
    calls: dict[str, Call]
    tensors: Sequence[torch.Tensor]

    def program(self, regions: Sequence[Region]) -> PlannedProgram:
        """Make the program of some regions."""
        return PlannedProgram(self.main, regions, self.params, self.calls)


@dataclass(frozen=True, slots=True)
class Trial:
    """Reference outputs of a module: eager, and in float64 if they are needed and the module can run in it.

    Attributes:
        eager: outputs of eager execution, under autocast if the plan is for calls under it.
        exact: computes outputs in float64, once; None if the module cannot run in it.
        computed_in: precision of autocast, if any.
        strict: whether outputs may be no further from float64's than eager ones are.
    """

    eager: list[torch.Tensor]
    exact: Callable[[], list[torch.Tensor] | None]
    computed_in: tuple[torch.dtype, ...] = ()
    strict: bool = False

    @classmethod
    def of(
        cls,
        module: nn.Module,
        example: Arguments,
        device_type: str = "cpu",
        amp: str | None = None,
        strict: bool = False,
    ) -> Trial:
        """Run a module on example inputs, under autocast of the device in a precision, if any."""

        @functools.cache
        def exact() -> list[torch.Tensor] | None:
            return numerics.reference(module, example)

        torch.clear_autocast_cache()  # of a region around this call, which lasts: it may hold casts of earlier weights
        eager = list(tensors_in(example.passed_to(under_autocast(module, device_type, amp))))
        torch.clear_autocast_cache()
        return cls(eager, exact, (getattr(torch, amp),) if amp else (), strict)

    def is_passed_by(self, program: PlannedProgram | Replay, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether a program's outputs pass the numerical check."""
        found = program.run(tensors)
        if not self.strict and numerics.surely_pass(found, self.eager, self.computed_in):
            return True
        return numerics.passes(lambda: found, self.eager, self.exact(), self.computed_in, self.strict)


def fault_of(program: PlannedProgram, tensors: Sequence[torch.Tensor], trial: Trial) -> str:
    """Fault of a program in words; empty if its outputs may be used."""
    try:
        return "" if trial.is_passed_by(program, tensors) else "computes other outputs than"
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything; the faulty region is searched next
        return f"fails ({first_line(text_of(error))}) for"
