"""Autocast, checkpointing, TorchScript and operators of their own inside a model."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from three_stages import Small, image
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class MixedInside(Small):
    """Half precision in the stages, float32 in the head."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            x = self.s2(self.s1(x))
            with torch.autocast(x.device.type, enabled=False):
                x = x.float() / 6
            x = self.s3(x)
        return self.head(x.float().mean((2, 3)))


class Checkpointed(Small):
    """Activation checkpointing left on in inference."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = checkpoint(self.s1, x, use_reentrant=False)
        x = checkpoint(self.s2, x, use_reentrant=False)
        return self.head(self.s3(x).mean((2, 3)))


@torch.jit.script
def scripted_mish(x: Tensor) -> Tensor:
    """Mish, as TorchScript."""
    return x * torch.tanh(F.softplus(x))


class Scripted(Small):
    """Calls a scripted function."""

    def between(self, x: Tensor) -> Tensor:
        """Activated."""
        return scripted_mish(x)


class HardClip(torch.autograd.Function):
    """Straight-through clipping."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        """Clipped to [0, 1]."""
        return x.clamp(0, 1)

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        """As if nothing were clipped."""
        return grad


class StraightThrough(Small):
    """Calls an autograd.Function."""

    def between(self, x: Tensor) -> Tensor:
        """Quantised to 16 levels."""
        return torch.round(HardClip.apply(x) * 15) / 15


@torch.library.custom_op("user_models::soft_clip", mutates_args=())
def soft_clip(x: Tensor, limit: float) -> Tensor:
    """Clipped smoothly."""
    return limit * torch.tanh(x / limit)


@soft_clip.register_fake
def _(x: Tensor, _limit: float) -> Tensor:
    return torch.empty_like(x)


class CustomOperator(Small):
    """Calls an operator of its own."""

    def between(self, x: Tensor) -> Tensor:
        """Clipped."""
        return soft_clip(x, 3.0)


def mixed_inside(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Autocast in forward."""
    return MixedInside().eval(), image(batch)


def checkpointed(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Activation checkpointing."""
    return Checkpointed().eval(), image(batch)


def scripted(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A scripted function."""
    return Scripted().eval(), image(batch)


def straight_through(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """An autograd.Function."""
    return StraightThrough().eval(), image(batch)


def custom_operator(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A custom operator."""
    return CustomOperator().eval(), image(batch)
