"""A whole model in training: each call is a step of forward pass, loss, backward pass and optimizer."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collectors.whole_models.built_model import BuiltModel, Call, build
from collectors.whole_models.records import Record
from collectors.workloads.model_cases import WholeModelCase
from costmodel.errors import RequestError
from costmodel.kernels.optimizers import DECAY, MOMENTUM, OPTIMIZERS

if TYPE_CHECKING:
    import torch
    from torch import nn

RATE = 1e-9
"""Learning rate of the measured steps, so small that no weight leaves the range of usual values."""


@dataclass(frozen=True, slots=True)
class TrainingModel(BuiltModel):
    """A module in training mode on a device, with its inputs and its optimizer.

    Attributes:
        optimizer: optimizer of its parameters.
    """

    optimizer: torch.optim.Optimizer | None = None

    def call(self, function: Callable[..., Any]) -> Call:
        """Training step with a function in place of the module's forward pass."""
        import torch

        from costmodel.capture.step_recording import usual_loss

        optimizer = self.optimizer
        assert optimizer is not None  # by `build_training`

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.enable_grad():
                around = torch.autocast(*self.autocast) if self.autocast else nullcontext()
                with around:
                    result = function(*self.arguments, **self.keywords)
                    loss = usual_loss(result)
                loss.backward()
            optimizer.step()

        return step

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
    built = build(case, device)
    module = built.module.train().requires_grad_(True)
    optimizer = optimizer_of(module, case.get("optimizer", "sgd"))
    return TrainingModel(module, built.arguments, built.keywords, built.autocast, optimizer)


def optimizer_of(module: nn.Module, name: str) -> torch.optim.Optimizer:
    """Torch's optimizer of a name in OPTIMIZERS, in its default implementation.

    Raises:
        RequestError: the name is unknown.
    """
    import torch

    parameters = list(module.parameters())
    made: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=RATE),
        "momentum": lambda: torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM),
        "adam": lambda: torch.optim.Adam(parameters, lr=RATE),
        "adamw": lambda: torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY),
    }
    if name not in made:
        raise RequestError(f"unknown optimizer {name!r}; choose one of {', '.join(OPTIMIZERS)}")
    return made[name]()


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
