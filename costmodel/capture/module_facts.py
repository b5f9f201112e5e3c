"""Modules of a model by path, with their classes and parameter counts."""

from __future__ import annotations

import re

from torch import nn

from costmodel.ir import ModuleFacts


def written_path(path: str) -> str:
    """Path of a module as operators name it: white space, which the text form reserves, is replaced."""
    return re.sub(r"\s", "_", path)


def facts_of(root: nn.Module) -> tuple[ModuleFacts, ...]:
    """Facts of a model and its submodules, parents first."""
    seen: set[int] = set()
    found = []
    for path, module in root.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if id(parameter) not in seen]
        seen.update(map(id, own))
        count = sum(parameter.numel() for parameter in own)
        found.append(ModuleFacts(written_path(path), type(module).__name__, count))
    return tuple(found)
