"""Settings of torch for the length of a block, and calls under autocast: what measures and what runs share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from costmodel.prediction.arithmetic import HIGHEST, MATMUL_PRECISIONS, Arithmetic

if TYPE_CHECKING:
    import torch


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set `torch.set_float32_matmul_precision` within the block; it is restored afterwards.

    So is `fp32_precision` of a backend, by which newer programs choose the precision: the setting changes it too.
    """
    import torch

    before = present_matmul_precision()
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    newer = [getattr(backend, "fp32_precision", None) for backend in backends]
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for backend, value in zip(backends, newer, strict=True):
            if value is not None:  # torch has the attribute
                backend.fp32_precision = value


def present_matmul_precision() -> str:
    """Precision of float32 matmuls on a GPU that the process allows, also where `fp32_precision` was set."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses the question then
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else HIGHEST


@contextmanager
def matmul_precision_of_at_least(precision: str) -> Iterator[None]:
    """Let float32 matmuls round as far as a precision allows; a process that allows more is left as it is."""
    order = MATMUL_PRECISIONS.index
    with nullcontext() if order(present_matmul_precision()) >= order(precision) else matmul_precision(precision):
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


@contextmanager
def without_autocast() -> Iterator[None]:
    """Turn autocast of all devices off within the block, for code that makes its casts itself."""
    active = active_autocasts()
    _set_autocasts(active, on=False)
    try:
        yield
    finally:
        _set_autocasts(active, on=True)


def active_autocasts() -> list[str]:
    """Types of devices whose autocast is on."""
    import torch

    return [device_type for device_type in ("cuda", "cpu") if torch.is_autocast_enabled(device_type)]


def _set_autocasts(device_types: Iterable[str], on: bool) -> None:
    import torch

    for device_type in device_types:
        torch.set_autocast_enabled(device_type, on)


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
