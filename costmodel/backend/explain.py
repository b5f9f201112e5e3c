"""Explanation of a compiled module: what runs each of its graphs, and why."""

from __future__ import annotations

from typing import Any

from costmodel.backend.graph_report import BackendReport
from costmodel.backend.records import records_of, wrapper_of
from costmodel.checks import shown
from costmodel.errors import RequestError


def explain_backend(compiled: Any = None) -> BackendReport:
    """Report, for each graph of a compiled module or function, what runs it and why.

    Args:
        compiled: result of `torch.compile(..., backend="costmodel")`, or a module after `module.compile(...)`; None for
            all graphs of this process.

    Raises:
        RequestError: it was not compiled by this backend.
    """
    owner = None if compiled is None else wrapper_of(compiled)
    if compiled is not None and owner is None:
        raise RequestError(
            f'{shown(compiled)} is no result of torch.compile(..., backend="costmodel"); give the compiled module'
        )
    return BackendReport(tuple(record.report for record in records_of(owner)))
