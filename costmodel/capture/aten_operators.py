"""Names of operators and constants in a graph -> ATen overloads and torch objects."""

from __future__ import annotations

import re
from typing import Any

import torch

from costmodel.errors import GraphError

_TORCH_NAME = re.compile(r"torch\.(\w+)")


def overload(name: str) -> torch._ops.OpOverload:
    """Look up the ATen operator of a name such as `convolution` or `add.Tensor`.

    Raises:
        GraphError: torch has no such operator.
    """
    base, _, variant = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, base), variant or "default")  # type: ignore[no-any-return]
    except AttributeError:
        raise GraphError(f"torch {torch.__version__} has no operator aten.{name}") from None


def constant(value: object) -> Any:
    """Convert an argument that is no reference: `torch.float16`, as text, becomes the dtype; others stay."""
    named = _TORCH_NAME.fullmatch(value) if isinstance(value, str) else None
    return value if named is None else getattr(torch, named[1])
