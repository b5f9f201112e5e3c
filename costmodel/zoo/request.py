"""Request for a model: batch size, image size, precision and layout, with its errors."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from costmodel.errors import RequestError

Inputs = tuple[Any, ...] | dict[str, Any]
"""Positional or keyword inputs of a forward pass."""

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
DEFAULT_SIZE = 224
"""Height and width of an image for a model without a default."""

MAX_BATCH = 1 << 20
MAX_SIZE = 1 << 15
"""Largest accepted sizes; a larger input would not fit any GPU."""


@dataclass(frozen=True, slots=True)
class Request:
    """Requested input sizes, precision and layout; None for the model's default.

    Attributes:
        batch_size: images in one forward pass; None means 1, or the batch size of an exported program.
        img_size: height and width in pixels; None means the model's default.
        precision: dtype of parameters and floating-point inputs, a key of PRECISIONS; None means as built.
        channels_last: whether parameters and inputs are in channels_last.
    """

    batch_size: int | None = None
    img_size: int | None = None
    precision: str | None = None
    channels_last: bool = False

    def check(self) -> Request:
        """Check the request and return it.

        Raises:
            RequestError: a size out of range, or an unknown precision.
        """
        _check_range("batch size", self.batch_size, MAX_BATCH)
        _check_range("image size", self.img_size, MAX_SIZE)
        if self.precision is not None and self.precision not in PRECISIONS:
            raise RequestError(f"unknown precision {self.precision!r}; choose one of {', '.join(PRECISIONS)}")
        return self

    @property
    def dtype(self) -> torch.dtype | None:
        """Precision as a dtype; None if none is requested."""
        return None if self.precision is None else PRECISIONS[self.precision]

    def image(self, size: int = DEFAULT_SIZE, channels: int = 3, frames: int | None = None) -> torch.Tensor:
        """Make a meta tensor [batch, channels, size, size], or with `frames` [batch, channels, frames, size, size]."""
        side = self.img_size or size
        clip = () if frames is None else (frames,)
        return torch.empty(self.batch_size or 1, channels, *clip, side, side, device="meta")

    def taken_by(self, function: Callable[..., Any]) -> dict[str, int]:
        """Arguments `batch_size` and `img_size` for a function that has them: as requested, or usual where it must."""
        try:
            known = inspect.signature(function).parameters
        except (TypeError, ValueError):  # of compiled code
            return {}
        found: dict[str, int] = {}
        for name, size, usual in (("batch_size", self.batch_size, 1), ("img_size", self.img_size, DEFAULT_SIZE)):
            if name in known and (size is not None or known[name].default is inspect.Parameter.empty):
                found[name] = usual if size is None else size
        return found

    def fixed_inputs(self, what: str, taken: Iterable[str] = ()) -> None:
        """Check that no size is requested for a model that brings its own inputs, other than those that it has taken.

        Raises:
            RequestError: a batch or image size was given.
        """
        asked = (("batch_size", self.batch_size), ("img_size", self.img_size))
        if any(size is not None and name not in taken for name, size in asked):
            raise RequestError(
                f"{what} brings its own inputs; leave out the batch size and the image size, or have its function take "
                "batch_size and img_size"
            )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggestion `; did you mean a, b?` of similar names; empty without any."""
    near = difflib.get_close_matches(name, list(names), n=3)
    return f"; did you mean {', '.join(near)}?" if near else ""


def _check_range(what: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise RequestError(f"impossible {what} {value}; it must be from 1 to {most}")
