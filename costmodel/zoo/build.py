"""Building a module without its weights: on the meta device, with parameter initialisation skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import nn

T = TypeVar("T")


@contextmanager
def skipped_initialisation() -> Iterator[None]:
    """Within it, the functions of `torch.nn.init` leave their tensor as it is: what a weight holds costs no time."""
    originals = {
        name: function
        for name, function in vars(nn.init).items()
        if name.endswith("_") and not name.startswith("_") and callable(function)
    }
    for name in originals:
        setattr(nn.init, name, _leave)
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(nn.init, name, function)


def build(factory: Callable[[], T]) -> T:
    """What `factory` returns, built on the meta device or, if it fails there, on the CPU.

    Some constructors read a tensor's values (torchvision's regnet does), which a meta tensor does not have. An error
    of the second attempt is the factory's own and passes through. Within `real_weights`, it is built on the CPU as its
    code says.
    """
    if _REAL.get():
        return factory()
    with skipped_initialisation():
        try:
            with torch.device("meta"):
                return factory()
        except Exception:  # noqa: BLE001 - any failure may be the meta device's; the CPU build tells
            return factory()


@contextmanager
def real_weights() -> Iterator[None]:
    """Within it, models are built to be run: initialised, and with the tables that a constructor computes."""
    token = _REAL.set(True)
    try:
        yield
    finally:
        _REAL.reset(token)


_REAL: ContextVar[bool] = ContextVar("real weights", default=False)


def _leave(tensor: torch.Tensor, *_args: Any, **_options: Any) -> torch.Tensor:
    return tensor
