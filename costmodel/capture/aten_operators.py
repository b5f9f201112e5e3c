"""Names of operators and constants in a graph -> ATen overloads and torch objects."""

from __future__ import annotations

import re
from typing import Any

import torch

from costmodel.errors import GraphError
from costmodel.ir.operators import TABLE

_TORCH_NAME = re.compile(r"torch\.(\w+)")
_TORCHVISION = "torchvision_"
"""Beginning of the names of torchvision's operators in a graph."""


def overload(name: str) -> torch._ops.OpOverload:
    """Look up the operator of a name such as `convolution`, `add.Tensor` or `torchvision_nms`.

    Raises:
        GraphError: torch has no such operator, or torchvision has none or cannot be imported.
    """
    base, _, variant = name.partition(".")
    space = torch.ops.aten
    if base.startswith(_TORCHVISION):
        _import_torchvision(name)
        space, base = torch.ops.torchvision, base.removeprefix(_TORCHVISION)
    try:
        return getattr(getattr(space, base), variant or "default")  # type: ignore[no-any-return]
    except AttributeError:
        raise GraphError(f"torch {torch.__version__} has no operator aten.{name}") from None


def is_composite(func: torch._ops.OpOverload) -> bool:
    """Whether torch implements an operator by others, as `to.dtype` by `_to_copy`, and it has no cost of its own."""
    return func._schema.name.removeprefix("aten::") not in TABLE and func._can_decompose()


def _import_torchvision(name: str) -> None:
    """Import torchvision, which registers its operators."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:
        raise GraphError(f"the operator {name} needs torchvision, which cannot be imported: {error}") from None


def constant(value: object) -> Any:
    """Convert an argument that is no reference: `torch.float16`, as text, becomes the dtype; others stay."""
    named = _TORCH_NAME.fullmatch(value) if isinstance(value, str) else None
    return value if named is None else getattr(torch, named[1])
