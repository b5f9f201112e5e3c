"""Training mode of a module, where it makes a difference to a forward pass."""

from __future__ import annotations

import types
from collections.abc import Iterator

from torch import nn

AS_INFERENCE = "predicted as inference, after .eval()"
"""Consequence for a model that is put into evaluation mode."""
AS_IT_IS = "predicted as it is; call .eval() for inference"
"""Consequence for a model that is left in training mode."""


def training_warning(module: nn.Module, consequence: str) -> str:
    """One line if a forward pass may differ because the module, or a part of it, is in training mode; else empty."""
    affected = [name for name, child in module.named_modules() if child.training and _reads_mode(child)]
    if not affected:
        return ""
    whole = all(child.training for child in module.modules())
    more = f" and {len(affected) - 1} more modules are" if len(affected) > 1 else " is"
    return f"{'the model is' if whole else f'{affected[0]}{more}'} in training mode; {consequence}"


def _reads_mode(module: nn.Module) -> bool:
    """Whether the code of a module's class, or of its hooks, reads an attribute `training`."""
    classes = [*type(module).__mro__, *map(type, module._forward_pre_hooks.values())]
    return any("training" in code.co_names for kind in classes if kind is not nn.Module for code in _codes(kind))


def _codes(kind: type) -> Iterator[types.CodeType]:
    return (value.__code__ for value in vars(kind).values() if isinstance(value, types.FunctionType))
