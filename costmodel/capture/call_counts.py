"""Counts of Python calls in a forward pass, by whether they computed anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from costmodel import ir
from costmodel.capture.meta_tensors import tensors_of


class CallCounts:
    """Counter of calls that compute nothing.

    Attributes:
        calls: counts so far.
    """

    def __init__(self) -> None:
        self.calls = ir.Calls()
        self._dispatched = self._computing = 0

    def count(self, kind: str, more: int = 1) -> None:
        """Add to the count of `modules`, `views`, `idle`, `queries` or `writes`."""
        self.calls = replace(self.calls, **{kind: getattr(self.calls, kind) + more})

    def dispatched(self, is_view: bool) -> None:
        """Note that an operator was dispatched."""
        self._dispatched += 1
        self._computing += not is_view

    def calling(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of torch for Python, and count the call if it computes nothing."""
        dispatched, computing = self._dispatched, self._computing
        result = function(*args, **kwargs)
        if computing == self._computing:
            views = dispatched < self._dispatched
            self.count("views" if views else "idle" if tensors_of(result) else "queries")
        return result
