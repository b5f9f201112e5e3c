"""Alternatives to recomputation: offloading saved activations to the host, and encoding them in fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.memory.saved_tensors import SavedTensors, saved_activations
from costmodel.memory.storages import rounded

LINKS: Mapping[str, float] = {"pcie": 55e3, "nvlink-c2c": 400e3}
"""Bytes per microsecond in one direction, as achieved: PCIe 5.0 x16 (63 GB/s nominal) and NVLink-C2C (450 GB/s)."""

_BACKWARD_OVER_FORWARD = 2.0
"""Time of a backward pass over that of its forward pass: two matmuls for each one."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One alternative, applied to the whole model.

    Attributes:
        name: `offload over pcie`, `relu masks of 1 bit`, ...
        saved_bytes: bytes of saved activations that leave the device between the passes.
        moved_bytes: bytes transferred in both directions; 0 for an encoding.
        busy_us: time of the transfers, or of encoding and decoding.
        added_us: time that the training step takes longer; transfers overlap with computation.
    """

    name: str
    saved_bytes: int
    moved_bytes: int
    busy_us: float
    added_us: float


def alternatives(
    graph: Graph, saved: Sequence[SavedTensors], forward_us: float, bytes_per_us: float
) -> tuple[Alternative, ...]:
    """Evaluate offloading over each link, and each encoding.

    Args:
        graph: captured in training mode.
        saved: tensors that its operators save.
        forward_us: device time of the forward pass; the backward pass is assumed to take twice as long.
        bytes_per_us: memory bandwidth of the device.
    """
    sizes = saved_activations(graph, saved)
    total = sum(sizes.values())
    offloads = [_offload(name, total, rate, forward_us) for name, rate in LINKS.items()]
    encodings = {
        "relu masks of 1 bit": _relu_masks(graph, saved, sizes),
        "pool indices of 1 byte": _indices(graph, sizes),
        "float16 saved activations": _halves(graph, sizes),
    }
    return (*offloads, *(_encoded(name, pairs, bytes_per_us) for name, pairs in encodings.items()))


def _offload(name: str, nbytes: int, rate: float, forward_us: float) -> Alternative:
    """Transfer to the host during the forward pass and back during the backward pass, overlapped with either."""
    one_way = nbytes / rate
    exposed = max(0.0, one_way - forward_us) + max(0.0, one_way - _BACKWARD_OVER_FORWARD * forward_us)
    return Alternative(f"offload over {name}", nbytes, 2 * nbytes, 2 * one_way, exposed)


Encoding = Iterator[tuple[int, int]]
"""Bytes of each encoded activation, before and after."""


def _encoded(name: str, pairs: Encoding, bytes_per_us: float) -> Alternative:
    """Cost of an encoding: activations are read and codes written, later codes read and activations written."""
    sizes = list(pairs)
    busy = 2 * sum(before + after for before, after in sizes) / bytes_per_us
    return Alternative(name, sum(before - after for before, after in sizes), 0, busy, busy)


def _relu_masks(graph: Graph, saved: Sequence[SavedTensors], sizes: Mapping[Ref, int]) -> Encoding:
    """Activations that only the backward pass of a ReLU needs: one bit an element, its sign, is enough."""
    savers: dict[Ref, set[str]] = {}
    for entry in saved:
        for ref in entry.values:
            savers.setdefault(ref, set()).add(graph.ops[entry.op].base)
    for ref, nbytes in sizes.items():
        if savers[ref] == {"relu"}:
            yield nbytes, rounded(-(-graph.type_of(ref).numel // 8))


def _indices(graph: Graph, sizes: Mapping[Ref, int]) -> Encoding:
    """Indices of max pooling: a window has fewer than 256 places, and torch stores 64 bits."""
    windows = {op.name for op in graph.ops if operators.lookup(op).role is Role.WINDOW}
    for ref, nbytes in sizes.items():
        if ref.name in windows and graph.type_of(ref).dtype == "int64":
            yield nbytes, rounded(graph.type_of(ref).numel)


def _halves(graph: Graph, sizes: Mapping[Ref, int]) -> Encoding:
    """Every float32 activation in half the bytes; gradients lose precision."""
    for ref, nbytes in sizes.items():
        if graph.type_of(ref).dtype == "float32":
            yield nbytes, rounded(2 * graph.type_of(ref).numel)
