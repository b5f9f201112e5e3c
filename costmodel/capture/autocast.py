"""Autocast during a capture: a region that disables it has no effect, any other is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from costmodel.capture.recorder import Recorder
from costmodel.errors import CaptureError

_AUTOCAST = torch.autocast.__init__
AUTOCAST_QUERIES = ("is_autocast_enabled", "get_autocast_dtype")


def asked_of_gpu(query: Callable[..., Any]) -> Callable[..., Any]:
    """Question about autocast that takes the meta device for a GPU; torch knows no autocast for meta."""
    return lambda *args, **kwargs: query(*("cuda" if arg == "meta" else arg for arg in args), **kwargs)


def enter_autocast(
    recorder: Recorder,
    region: torch.autocast,
    device_type: str,  # noqa: ARG001 - a name of torch
    dtype: torch.dtype | None = None,  # noqa: ARG001
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    """Enter a region that disables autocast; torch refuses even that on meta tensors.

    Raises:
        CaptureError: the region turns autocast on.
    """
    if enabled:
        refuse_autocast(recorder.where)
    _AUTOCAST(region, "cpu", None, False, cache_enabled)


def refuse_autocast(where: str) -> NoReturn:
    """Raise the error that autocast cannot be captured, with the alternative."""
    raise CaptureError(
        f"{where} runs under autocast, whose casts are not captured; "
        "convert the model and its inputs instead, as --precision float16 does"
    )
