"""Functions of torch replaced for a while, and put back wherever Dynamo reads them.

Dynamo keeps tables of torch's functions. It fills some as it is imported and others at its first trace, and a
replacement found then would stay in them for the life of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_DYNAMO = "torch._dynamo"


@dataclass(frozen=True, slots=True, eq=False)
class _Patch:
    """Function of a module or class, and its replacement."""

    owner: Any
    name: str
    original: Any
    instead: Callable[..., Any]


_standing: list[_Patch] = []
"""Replacements in force, in the order in which they were made."""


@contextmanager
def replaced(owner: object, name: str, instead: Callable[..., Any]) -> Iterator[None]:
    """Replace a function that a module or class defines."""
    patch = _Patch(owner, name, vars(owner)[name], instead)
    with _watched_import():
        setattr(owner, name, instead)
        _standing.append(patch)
        try:
            yield
        finally:
            _standing.remove(patch)
            setattr(owner, name, patch.original)


@contextmanager
def originals() -> Iterator[None]:
    """Put back every function that is replaced now."""
    lifted = list(_standing)
    for patch in reversed(lifted):
        setattr(patch.owner, patch.name, patch.original)
    try:
        yield
    finally:
        for patch in lifted:
            setattr(patch.owner, patch.name, patch.instead)


@contextmanager
def _watched_import() -> Iterator[None]:
    """Import Dynamo, if anything does so within this context, with the original functions."""
    if _standing or _DYNAMO in sys.modules:
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finder of Dynamo's package, whose code then runs with the original functions."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _DYNAMO:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Original(spec.loader)
        return spec


class _Original(Loader):
    """Loader of a module whose code runs with the original functions."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        with originals():
            self._loader.exec_module(module)
