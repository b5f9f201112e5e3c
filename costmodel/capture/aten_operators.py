"""Names of operators and constants in a graph -> ATen overloads and torch objects."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

import torch

from costmodel.errors import GraphError
from costmodel.ir.operators import TABLE

_TORCH_NAME = re.compile(r"torch\.(\w+)")
_ONE_FOR_ALL = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
"""Dispatch keys of implementations for every device, without a gradient of their own."""
_PRIMS = "prims_"
"""Beginning of the names of operators that torch's compiler makes."""
_TORCHVISION = "torchvision_"
"""Beginning of the names of torchvision's operators in a graph."""


def overload(name: str) -> torch._ops.OpOverload:
    """Look up the operator of a name such as `convolution`, `add.Tensor` or `torchvision_nms`.

    Raises:
        GraphError: torch has no such operator, or torchvision has none or cannot be imported.
    """
    base, _, variant = name.partition(".")
    space = torch.ops.aten
    if base.startswith(_PRIMS):
        importlib.import_module("torch._inductor.inductor_prims")  # registers them

        space, base = torch.ops.prims, base.removeprefix(_PRIMS)
    if base.startswith(_TORCHVISION):
        _import_torchvision(name)
        space, base = torch.ops.torchvision, base.removeprefix(_TORCHVISION)
    try:
        return getattr(getattr(space, base), variant or "default")  # type: ignore[no-any-return]
    except AttributeError:
        raise GraphError(f"torch {torch.__version__} has no operator aten.{name}") from None


def parts_of(func: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """Implementation of an operator by others, as of `to.dtype` by `_to_copy`; None if it has a cost of its own.

    Without a row in the operator table, the other operators count: also where torch has one implementation for every
    device, which hides them from autograd only (`_euclidean_dist`).
    """
    if func._schema.name.removeprefix("aten::").removesuffix("_") in TABLE:
        return None
    if func._can_decompose():
        return func.decompose
    name, has = func.name(), torch._C._dispatch_has_kernel_for_dispatch_key
    returns_tensors = all(isinstance(item.type, torch.TensorType) for item in func._schema.returns)
    if func._schema.is_mutable or not func._schema.returns or not returns_tensors or has(name, "CPU"):
        return None
    key = next((key for key in _ONE_FOR_ALL if has(name, key)), None)
    return None if key is None else functools.partial(func._op_dk, getattr(torch._C.DispatchKey, key))


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
