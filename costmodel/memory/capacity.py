"""Memory of a profile's device, and the warning for a request that needs more."""

from __future__ import annotations

from costmodel.errors import ProfileError
from costmodel.ir import Graph
from costmodel.memory.peaks import inference_peak
from costmodel.memory.storages import allocated
from costmodel.profiles.profile import Profile

MEMORY_BYTES = {"NVIDIA H200": 143_771 << 20}
"""Device name -> memory as `nvidia-smi` reports it, for profiles without a recorded `memory_bytes`."""


def device_bytes(profile: Profile) -> int | None:
    """Memory of a profile's device, bytes; None if it is unknown.

    Raises:
        ProfileError: the profile summary has an impossible number.
    """
    recorded = profile.environment.get("memory_bytes")
    if recorded is None:
        return MEMORY_BYTES.get(str(profile.environment.get("device")))
    if not str(recorded).isdecimal() or len(str(recorded)) > 18:
        raise ProfileError(f"{profile.path / 'card.json'}: impossible memory_bytes; train the profile again")
    return int(str(recorded))


def eager_bytes(graph: Graph) -> int:
    """Lower bound on the memory of an eager forward pass: parameters, inputs and results, without workspaces."""
    return inference_peak(graph, sum(allocated(value.type) for value in graph.values)).nbytes


def shortage(needed: int | None, available: int | None) -> str:
    """Warning for a request that needs more memory than there is; empty if it fits or a size is unknown."""
    if needed is None or available is None or needed <= available:
        return ""
    return f"does not fit in memory: needs about {gigabytes(needed)} GB, the device has {gigabytes(available)} GB"


def gigabytes(nbytes: int) -> str:
    """Bytes in units of 10^9."""
    return f"{nbytes / 1e9:,.1f}"
