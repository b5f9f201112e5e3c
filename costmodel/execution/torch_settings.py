"""Settings of torch for the length of a block, and calls under autocast: what measures and what runs share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from costmodel.prediction.arithmetic import MATMUL_PRECISIONS, Arithmetic

if TYPE_CHECKING:
    import torch


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set `torch.set_float32_matmul_precision` within the block; it is restored afterwards."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def matmul_precision_of_at_least(precision: str) -> Iterator[None]:
    """Let float32 matmuls round as far as a precision allows; a process that allows more is left as it is."""
    import torch

    before = torch.get_float32_matmul_precision()
    if MATMUL_PRECISIONS.index(before) >= MATMUL_PRECISIONS.index(precision):
        yield
        return
    with matmul_precision(precision):
        yield


@contextmanager
def torch_settings(arithmetic: Arithmetic) -> Iterator[None]:
    """Set the precision of float32 matmuls and cuDNN's search within the block; both are restored afterwards.

    Both are of the whole process. Autocast is of a call: see `under_autocast`.
    """
    import torch

    before = torch.backends.cudnn.benchmark
    with matmul_precision(arithmetic.matmul_precision):
        torch.backends.cudnn.benchmark = arithmetic.cudnn_benchmark
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before


def under_autocast(function: Callable[..., Any], device_type: str, amp: str | torch.dtype | None) -> Callable[..., Any]:
    """The function in an autocast region of its own at each call, which casts each weight once.

    Args:
        function: module, compiled module or other callable.
        device_type: `cuda` or `cpu`.
        amp: precision of the region, by name or as a type; None for the function itself.
    """
    if amp is None:
        return function
    import torch

    dtype = getattr(torch, amp) if isinstance(amp, str) else amp

    def call(*arguments: Any, **keywords: Any) -> Any:
        with torch.autocast(device_type, dtype):
            return function(*arguments, **keywords)

    return call
