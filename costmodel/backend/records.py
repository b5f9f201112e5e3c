"""Reports of compiled graphs, kept with the call of torch.compile that they belong to, and logged."""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from costmodel.backend.graph_report import GraphReport

log = logging.getLogger("costmodel.backend")
MOST_FRAMES = 12
"""Calls between the backend and the object that torch.compile made of its options."""
_UNKNOWN = 0
_INNER = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")
"""Attribute of Dynamo's callbacks that holds the backend, by release of torch."""
_HERE = __name__.rpartition(".")[0]


class Record:
    """Report of a graph, which later events amend.

    Attributes:
        report: the report, once the graph is compiled.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.report = GraphReport(name, 0, "", "not compiled yet")

    def compiled(self, report: GraphReport) -> None:
        """Take the report of the compiled graph, and log it."""
        self.report = report
        log.info("%s", report)

    def note(self, line: str) -> None:
        """Add a line about a later event, once, and log it as a warning."""
        if line not in self.report.notes:
            self.report = replace(self.report, notes=(*self.report.notes, line))
            log.warning("graph %s: %s", self._name, line)


_records: dict[int, list[Record]] = {}
"""Records by the identity of torch.compile's wrapper; a wrapper takes its records along."""


def keep(record: Record, owner: object | None) -> None:
    """Keep the record of a graph for as long as its owner, a wrapper of torch.compile, lives."""
    key = _UNKNOWN if owner is None else id(owner)
    if owner is not None and key not in _records:
        weakref.finalize(owner, _records.pop, key, None)
    _records.setdefault(key, []).append(record)


def records_of(owner: object | None) -> list[Record]:
    """Records of a wrapper; of every one for None."""
    if owner is None:
        return [record for found in _records.values() for record in found]
    return _records.get(id(owner), [])


def calling_wrapper() -> object | None:
    """Wrapper of torch.compile that calls the backend now; None if the backend is called in another way.

    Dynamo passes a backend its graph and nothing that says which call of torch.compile it is for.
    """
    frame = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if isinstance(found := frame.f_locals.get("self"), torch._TorchCompileWrapper):
            return found
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def wrapper_of(compiled: Any) -> object | None:
    """Wrapper within a result of torch.compile, a module or a function; None if there is none."""
    compiled = getattr(compiled, "_compiled_call_impl", None) or compiled  # after `module.compile(...)`
    for found in (getattr(compiled, "dynamo_ctx", None), *_enclosed(compiled)):
        callback: Any = getattr(found, "callback", None)
        while (
            inner := next((getattr(callback, name) for name in _INNER if hasattr(callback, name)), None)
        ) is not None:
            callback = inner
        if isinstance(callback, torch._TorchCompileWrapper) and callback.compiler_fn.__module__.startswith(_HERE):
            return callback
    return None


def _enclosed(function: Any) -> Iterator[object]:
    """Objects that a function refers to."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue
