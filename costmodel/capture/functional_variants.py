"""The operators that make new values, for those that write: `add.Tensor` for `add_.Tensor` and for `add.out`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._ops import OpOverload


def functional(target: OpOverload) -> OpOverload:
    """The operator that computes the same and writes nothing; where torch has none, the operator itself."""
    if not target._schema.is_mutable:
        return target
    wanted = _arguments(target)
    return next((found for found in _overloads(target) if _arguments(found) == wanted), target)


def writes_first(target: OpOverload) -> bool:
    """Whether it writes its first argument, as those do whose names end in an underscore."""
    base = target._schema.name
    return target._schema.is_mutable and base.endswith("_") and not base.endswith("__")


def _overloads(target: OpOverload) -> Iterator[OpOverload]:
    """The functional operators of its name without the underscore, first the one of its overload's name."""
    namespace, _, base = target._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base.removesuffix("_") if writes_first(target) else base, None)
    names = packet.overloads() if packet is not None else []
    for name in sorted(names, key=lambda name: name != target._overloadname):
        found = getattr(packet, name)
        if not found._schema.is_mutable:
            yield found


def _arguments(target: OpOverload) -> list[tuple[str, str]]:
    """Names and types of what it computes from."""
    return [(argument.name, str(argument.type)) for argument in target._schema.arguments if not argument.is_out]
