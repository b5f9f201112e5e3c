"""Requests that need more memory than a device has."""

from __future__ import annotations

from costmodel.ir import Graph
from costmodel.memory.peaks import inference_peak
from costmodel.memory.storages import allocated


def eager_bytes(graph: Graph) -> int:
    """The least that an eager forward pass needs: parameters, inputs and results; workspaces are left out."""
    return inference_peak(graph, sum(allocated(value.type) for value in graph.values)).nbytes


def shortage(needed: int | None, available: int | None) -> str:
    """The words for a request that needs more memory than there is; empty where it fits, or nothing is known."""
    if needed is None or available is None or needed <= available:
        return ""
    return f"does not fit in memory: needs about {gigabytes(needed)} GB, the device has {gigabytes(available)} GB"


def gigabytes(nbytes: int) -> str:
    """Bytes in units of 10^9."""
    return f"{nbytes / 1e9:,.1f}"
