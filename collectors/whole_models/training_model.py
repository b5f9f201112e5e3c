"""A whole model in training: each call is a step of forward pass, loss, backward pass and optimizer."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collectors.whole_models.built_model import BuiltModel, Call, build
from collectors.whole_models.records import Record
from collectors.workloads.model_cases import WholeModelCase

if TYPE_CHECKING:
    import torch

    from costmodel.measurement.training_steps import RunningStep


@dataclass(frozen=True, slots=True)
class TrainingModel(BuiltModel):
    """A module in training mode on a device, with its inputs and the rest of its step.

    Attributes:
        step: optimizer, inputs and loss.
    """

    step: RunningStep | None = None

    @property
    def is_capturable(self) -> bool:
        """Whether a CUDA graph can hold a call: no step, whose optimizer and gradients are made on another stream."""
        return False

    def call(self, function: Callable[..., Any]) -> Call:
        """Training step with a function in place of the module's forward pass."""
        assert self.step is not None  # by `build_training`
        return self.step.of(function)

    def outputs(self, function: Callable[..., Any]) -> list[torch.Tensor]:
        """Copies of all tensors that a forward pass with gradients returns, with the same random numbers each time."""
        import torch
        from torch.utils._pytree import tree_leaves

        torch.manual_seed(0)
        with torch.enable_grad():
            found = tree_leaves(self._around(function)(*self.arguments, **self.keywords))
        return [leaf.detach().clone() for leaf in found if isinstance(leaf, torch.Tensor)]


def build_training(case: WholeModelCase, device: str) -> TrainingModel:
    """Build a model in training mode, with the optimizer that the case names.

    Raises:
        RequestError: as for `build`; or the optimizer is unknown.
    """
    from costmodel.measurement.training_steps import RunningStep, optimizer_of

    built = build(case, device)
    module = built.module.train().requires_grad_(True)
    optimizer = optimizer_of(module, case.get("optimizer", "sgd"))
    step = RunningStep(optimizer, built.arguments, built.keywords, built.autocast)
    return TrainingModel(module, built.arguments, built.keywords, built.autocast, step)


def allocated_bytes(device: str) -> int:
    """Bytes of a GPU's memory that tensors of this process hold; 0 on a CPU."""
    import torch

    return int(torch.cuda.memory_allocated()) if device.startswith("cuda") else 0


def note_peak(record: Record, mode: str, call: Call, before: int, device: str) -> None:
    """Note the peak memory of a step beyond what the process held before the model was built, in bytes; on CUDA alone.

    The first calls, in which libraries allocate workspaces and the optimizer its state, do not count.

    Args:
        record: record of the case.
        mode: mode of the step.
        call: the step.
        before: bytes that the process held before the model was built.
        device: `cpu` or `cuda`.
    """
    import torch

    if not device.startswith("cuda"):
        return
    for _ in range(2):
        call()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    record["peak_bytes"][mode] = int(torch.cuda.max_memory_allocated()) - before
