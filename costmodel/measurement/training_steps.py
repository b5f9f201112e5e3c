"""Training steps that run: forward pass, loss, backward pass and optimizer, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from costmodel.capture.step_recording import Loss, usual_loss
from costmodel.errors import RequestError
from costmodel.kernels.optimizers import DECAY, MOMENTUM, OPTIMIZERS

RATE = 1e-9
"""Learning rate of measured steps, so small that no weight leaves the range of usual values."""


@dataclass(frozen=True, slots=True)
class RunningStep:
    """Everything that a step needs beside the function that makes its forward pass.

    Attributes:
        optimizer: optimizer of the module's parameters.
        arguments: positional inputs of the module.
        keywords: keyword inputs.
        autocast: device type and dtype of the autocast region around forward pass and loss; None for none.
        loss: function from the module's result to a scalar.
    """

    optimizer: torch.optim.Optimizer
    arguments: Sequence[Any] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    autocast: tuple[str, torch.dtype] | None = None
    loss: Loss = usual_loss

    def of(self, function: Callable[..., Any]) -> Callable[[], torch.Tensor]:
        """Step with a function, such as the compiled module, in place of the module; returns the loss."""

        def step() -> torch.Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            with torch.enable_grad():
                with torch.autocast(*self.autocast) if self.autocast else nullcontext():
                    loss = self.loss(function(*self.arguments, **self.keywords))
                loss.backward()
            self.optimizer.step()
            return loss.detach()

        return step


def optimizer_of(module: nn.Module, name: str) -> torch.optim.Optimizer:
    """Torch's optimizer of a name in OPTIMIZERS, in its default implementation, for parameters that train.

    Raises:
        RequestError: the name is unknown.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    made: Mapping[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=RATE),
        "momentum": lambda: torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM),
        "adam": lambda: torch.optim.Adam(parameters, lr=RATE),
        "adamw": lambda: torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY),
    }
    if name not in made:
        raise RequestError(f"unknown optimizer {name!r}; choose one of {', '.join(OPTIMIZERS)}")
    return made[name]()
