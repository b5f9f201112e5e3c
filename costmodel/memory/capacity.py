"""Requests that need more memory than a device has."""

from __future__ import annotations

from costmodel.ir import Graph
from costmodel.memory.peaks import inference_peak
from costmodel.memory.storages import allocated
from costmodel.report.figures import gibibytes


def eager_bytes(graph: Graph) -> int:
    """Lower bound on the memory of an eager forward pass: parameters, inputs and results, without workspaces."""
    return inference_peak(graph, sum(allocated(value.type) for value in graph.values)).nbytes


def shortage(needed: int | None, available: int | None) -> str:
    """Warning for a request that needs more memory than there is; empty if it fits or a size is unknown."""
    if needed is None or available is None or needed <= available:
        return ""
    return f"does not fit in memory: needs about {gibibytes(needed)} GiB, the device has {gibibytes(available)} GiB"
