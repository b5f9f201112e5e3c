"""Shortage of device memory: found behind other errors, and reported to the user's log."""

from __future__ import annotations

import logging
import traceback

import torch

log = logging.getLogger("costmodel.execution")


def shortage_behind(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """Find the out-of-memory error behind an error: ending a failed capture raises another one on top of it."""
    seen: set[int] = set()
    while error is not None and not isinstance(error, torch.OutOfMemoryError) and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return error if isinstance(error, torch.OutOfMemoryError) else None


def forget_locals(error: BaseException) -> None:
    """Free what the functions that an error ended still refer to: tensors for which memory was short among them."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        traceback.clear_frames(found.__traceback__)
        found = found.__cause__ or found.__context__


def say(message: str) -> str:
    """Log a fallback as a warning, which Python shows by default; returns the message."""
    log.warning(message)
    return message
