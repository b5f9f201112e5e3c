"""Functional variants of operators that write: `add.Tensor` for `add_.Tensor` and for `add.out`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload


def functional(target: OpOverload) -> OpOverload:
    """Functional operator that computes the same value; the operator itself if torch has none."""
    if not target._schema.is_mutable:
        return target
    wanted = _arguments(target)
    return next((found for found in _overloads(target) if _arguments(found) == wanted), target)


def writes_first(target: OpOverload) -> bool:
    """Whether an operator writes its first argument, by the underscore at the end of its name."""
    base = target._schema.name
    return target._schema.is_mutable and base.endswith("_") and not base.endswith("__")


def _overloads(target: OpOverload) -> Iterator[OpOverload]:
    """Yield functional operators of the same name without the underscore, the same overload first."""
    namespace, _, base = target._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base.removesuffix("_") if writes_first(target) else base, None)
    names = packet.overloads() if packet is not None else []
    for name in sorted(names, key=lambda name: name != target._overloadname):
        found = getattr(packet, name)
        if not found._schema.is_mutable:
            yield found


def _arguments(target: OpOverload) -> list[tuple[str, str]]:
    """Names and types of an operator's inputs."""
    return [(argument.name, str(argument.type)) for argument in target._schema.arguments if not argument.is_out]
