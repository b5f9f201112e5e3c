"""Building a module without its weights: on the meta device, with parameter initialisation skipped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import nn

from costmodel.torch_patches import replaced
from costmodel.zoo.gpu_stand_in import META, GpuStandIn, cuda_answers

CPU = torch.device("cpu")
T = TypeVar("T")


@contextmanager
def skipped_initialisation() -> Iterator[None]:
    """Skip initialisation: calls of `torch.nn.init` on this thread leave their tensor unchanged."""
    originals = {
        name: function
        for name, function in vars(nn.init).items()
        if name.endswith("_") and not name.startswith("_") and callable(function)
    }
    with ExitStack() as patches:
        for name, function in originals.items():
            patches.enter_context(replaced(nn.init, name, _unless_skipped(function)))
        token = _SKIPPED.set(True)
        try:
            yield
        finally:
            _SKIPPED.reset(token)


def _unless_skipped(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def chosen(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        return tensor if _SKIPPED.get() else function(tensor, *args, **options)

    return chosen


def build(factory: Callable[[], T]) -> T:
    """Call `factory` on the meta device or, if that fails, on the CPU.

    Some constructors read a tensor's values (torchvision's regnet), which a meta tensor does not have. An error of the
    second attempt passes through. What the factory makes on a GPU is made on the same device as the rest. Within
    `real_weights`, the factory runs unchanged.
    """
    if _REAL.get():
        return factory()
    with skipped_initialisation():
        try:
            with GpuStandIn(META), META:
                return factory()
        except Exception:  # noqa: BLE001 - any failure may be due to the meta device; the CPU build decides
            with GpuStandIn(CPU):
                return factory()


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Run code that may ask for a GPU, with the CPU in its place; within `real_weights`, run it unchanged."""
    if _REAL.get():
        yield
        return
    with cuda_answers(), GpuStandIn(CPU):
        yield


@contextmanager
def real_weights() -> Iterator[None]:
    """Build models with initialised weights and computed constants, so that they can be run."""
    token = _REAL.set(True)
    try:
        yield
    finally:
        _REAL.reset(token)


_REAL: ContextVar[bool] = ContextVar("real weights", default=False)
_SKIPPED: ContextVar[bool] = ContextVar("initialisation skipped", default=False)
