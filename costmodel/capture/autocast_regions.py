"""Autocast regions of a model's code during a capture, in place of torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from costmodel.capture.autocast import AMP, CPU, CUDA, Regions, refuse_autocast
from costmodel.errors import CaptureError

QUERIES = ("is_autocast_enabled", "get_autocast_dtype", "is_autocast_cache_enabled")
_GPU = (CUDA, "meta")
_INIT, _ENTER, _EXIT = torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__
_REGION = "_costmodel_region"
"""Attribute of a region made during a capture: its dtype, None if it is off, and whether it keeps casts; or None for a
region of another device than the one that the pass is recorded for."""


def make_region(
    regions: Regions,
    region: torch.autocast,
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    """Initialise a `torch.autocast`: one of the device is followed, torch's own state is left alone.

    Raises:
        CaptureError: the region turns on autocast of another device, or of a precision that the device has not.
    """
    if not _is_followed(regions, device_type):
        _INIT(region, "cpu", None, False, cache_enabled)
        setattr(region, _REGION, None)
        return
    if enabled and regions.device != CPU and device_type not in _GPU:
        refuse_autocast(regions.where(), device_type)
    dtype = dtype or (torch.get_autocast_dtype(CPU) if regions.device == CPU else torch.float16)
    if enabled and dtype not in AMP.values():
        kind = "CPU" if regions.device == CPU else "GPU"
        raise CaptureError(
            f"{regions.where()} enters autocast of {dtype}; a {kind} has autocast of float16 and bfloat16"
        )
    _INIT(region, "cpu", None, False, cache_enabled)
    setattr(region, _REGION, (dtype if enabled else None, cache_enabled is not False))
    region.fast_dtype = dtype


def enter_region(regions: Regions, region: torch.autocast) -> Any:
    """Enter a `torch.autocast`, also one that was made before the capture."""
    made = region.fast_dtype if region._enabled else None, region._cache_enabled
    found = getattr(region, _REGION, made if _is_followed(regions, region.device) else None)
    regions.enter(*found or (regions.dtype, True))
    return region


def _is_followed(regions: Regions, device_type: str) -> bool:
    """Whether regions of a device type cast in the recorded pass; regions of others do not on a known device."""
    return regions.device is None or device_type in (_GPU if regions.device == CUDA else (CPU,))


def leave_region(regions: Regions, _region: torch.autocast, *_: object) -> bool:
    """Leave a `torch.autocast`."""
    regions.leave()
    return False


def answer_of(regions: Regions, name: str, query: Callable[..., Any]) -> Callable[..., Any]:
    """Answer to a question about autocast of a GPU, or of the meta device that stands in for it."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        asked = (*args, *kwargs.values())[:1]
        if name == "is_autocast_cache_enabled" or (asked and asked[0] not in _GPU):
            return query(*args, **kwargs)
        if name == "is_autocast_enabled":
            return regions.dtype is not None
        return regions.dtype or torch.float16

    return answer
