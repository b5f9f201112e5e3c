"""Dynamo's caches around a check for graph breaks: a process that compiles models must not notice that one was traced.

A traced function keeps an entry in a cache of its code object and counts against the limit of recompilations, and its
input sizes decide what is compiled with dynamic shapes later.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import CodeType
from typing import Any
from unittest.mock import patch

ROOMY = 256
"""Dynamo's limit of graphs for one function where the process has compiled models before, which count too."""


@contextmanager
def unchanged_caches() -> Iterator[None]:
    """Leave Dynamo's caches as they were: empty if the process has compiled nothing, else without new entries."""
    import torch._dynamo as dynamo

    before = {id(code) for code in _codes("output_codes")}
    known = {id(code) for code in _codes("input_codes") if _entries(code)}
    if not before:
        try:
            yield
        finally:
            dynamo.reset()
        return
    with ExitStack() as restored:
        if not apart():
            restored.enter_context(dynamo.config.patch({"cache_size_limit": ROOMY}))
        with suppress(ImportError, AttributeError):  # private to torch
            from torch._dynamo import pgo

            restored.enter_context(patch.object(pgo, "_CODE_STATE", copy.deepcopy(pgo._CODE_STATE)))
        try:
            yield
        finally:
            _forget(known, before)


def apart() -> dict[str, bool]:
    """Arguments by which Dynamo keeps cache entries apart from others of the same function, in releases that can."""
    import torch

    name = "isolate_recompiles"
    return {name: True} if name in inspect.signature(torch.compile).parameters else {}


def _codes(tracker: str) -> list[CodeType]:
    """Code objects that Dynamo has traced (`input_codes`) or made (`output_codes`)."""
    from torch._dynamo import convert_frame

    found = (ref() for ref in getattr(getattr(convert_frame, tracker, None), "seen", ()))
    return [code for code in found if code is not None]


def _entries(code: CodeType) -> list[Any]:
    """Cache entries of a code object."""
    from torch._C._dynamo import eval_frame

    return list(eval_frame._debug_get_cache_entry_list(code))


def _forget(known: set[int], made: set[int]) -> None:
    """Remove cache entries except those of known code objects that were made before."""
    from torch._C._dynamo import eval_frame

    for code in _codes("input_codes"):
        if id(code) not in known:
            eval_frame.reset_code(code)
            continue
        for entry in _entries(code):
            if id(entry.code) not in made:
                _invalidate(entry)


def _invalidate(entry: Any) -> None:
    """Remove an entry as Dynamo does when an object that it checks is gone."""
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    manager = entry.guard_manager
    with suppress(AttributeError, TypeError):  # private to torch
        manager.extra_state.invalidate(entry, DeletedGuardManagerWrapper("the model was only traced"))
