"""Backend whose compilers are replaced by eager execution, so that tests of its choices compile nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

import costmodel.backend
from costmodel.backend import compile_graph
from costmodel.backend.graph_call import without_metadata
from costmodel.backend.graph_report import CHOICES, BackendReport
from costmodel.backend.planning_step import Planning
from costmodel.execution import regions

CPU = {"hardware": "amd-epyc-2-threads"}
"""Options by which predictions decide on this machine."""


@contextmanager
def uncompiled(choice: str = "plan") -> Iterator[None]:
    """Context in which one way of CHOICES is taken first, and neither Inductor nor its regions compile anything."""
    order = (choice, *(way for way in CHOICES if way != choice))
    with ExitStack() as around:
        cache = around.enter_context(tempfile.TemporaryDirectory())
        for patched in (
            patch.object(regions, "compile_module", lambda module, arguments, templates=False: module),
            patch.object(compile_graph, "by_inductor", lambda gm, arguments: without_metadata(gm)),
            patch.object(Planning, "order", lambda self, calls: order),
            patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": cache}),
        ):
            around.enter_context(patched)
        torch._dynamo.reset()
        try:
            yield
        finally:
            torch._dynamo.reset()


def compiled(function: Any, **options: Any) -> Any:
    """Compile a module or function by the backend, with predictions that decide."""
    return torch.compile(function, backend=costmodel.backend.NAME, options=CPU | options)


def explained(function: Any) -> BackendReport:
    """Report of a compiled module or function."""
    return costmodel.explain_backend(function)
