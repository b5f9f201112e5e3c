"""Other ways to keep fewer feature maps on the device, priced beside recomputation: offloading and encoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.memory.saved_tensors import SavedTensors, saved_activations
from costmodel.memory.storages import rounded

BUSES: Mapping[str, float] = {"pcie": 55e3, "nvlink-c2c": 400e3}
"""Bytes a microsecond in one direction: PCIe 5.0 x16 in practice (63 GB/s on paper), and NVLink-C2C (450)."""

_BACKWARD_OVER_FORWARD = 2.0
"""A backward pass computes two products where the forward pass computes one."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way, over the whole model.

    Attributes:
        name: `offload over pcie`, `relu masks of 1 bit`, ...
        saved_bytes: of feature maps that no longer lie on the device between the passes.
        moved_bytes: over the bus in both directions; 0 for an encoding.
        busy_us: time of the transfers, or of encoding and decoding.
        added_us: what of it the step takes longer; transfers hide behind computation where that takes longer.
    """

    name: str
    saved_bytes: int
    moved_bytes: int
    busy_us: float
    added_us: float


def alternatives(
    graph: Graph, saved: Sequence[SavedTensors], forward_us: float, bytes_per_us: float
) -> tuple[Alternative, ...]:
    """Offloading over each bus, and each encoding.

    Args:
        graph: captured in training mode.
        saved: what its operators save.
        forward_us: device time of the forward pass; the backward pass is taken to last twice as long.
        bytes_per_us: the device's memory bandwidth.
    """
    sizes = saved_activations(graph, saved)
    total = sum(sizes.values())
    offloads = [_offload(name, total, rate, forward_us) for name, rate in BUSES.items()]
    encodings = {
        "relu masks of 1 bit": _relu_masks(graph, saved, sizes),
        "pool indices of 1 byte": _indices(graph, sizes),
        "float16 saved_tensors": _halves(graph, sizes),
    }
    return (*offloads, *(_encoded(name, pairs, bytes_per_us) for name, pairs in encodings.items()))


def _offload(name: str, nbytes: int, rate: float, forward_us: float) -> Alternative:
    """Out during the forward pass and back during the backward pass; each way hides what its pass computes."""
    one_way = nbytes / rate
    exposed = max(0.0, one_way - forward_us) + max(0.0, one_way - _BACKWARD_OVER_FORWARD * forward_us)
    return Alternative(f"offload over {name}", nbytes, 2 * nbytes, 2 * one_way, exposed)


Encoding = Iterator[tuple[int, int]]
"""Bytes of each feature map that is encoded, before and after."""


def _encoded(name: str, pairs: Encoding, bytes_per_us: float) -> Alternative:
    """Each feature map is read and its code written, later the code read and the feature map written."""
    sizes = list(pairs)
    busy = 2 * sum(before + after for before, after in sizes) / bytes_per_us
    return Alternative(name, sum(before - after for before, after in sizes), 0, busy, busy)


def _relu_masks(graph: Graph, saved: Sequence[SavedTensors], sizes: Mapping[Ref, int]) -> Encoding:
    """What only a ReLU's backward pass needs: whether each element was positive."""
    savers: dict[Ref, set[str]] = {}
    for entry in saved:
        for ref in entry.values:
            savers.setdefault(ref, set()).add(graph.ops[entry.op].base)
    for ref, nbytes in sizes.items():
        if savers[ref] == {"relu"}:
            yield nbytes, rounded(-(-graph.type_of(ref).numel // 8))


def _indices(graph: Graph, sizes: Mapping[Ref, int]) -> Encoding:
    """A pooling window has fewer than 256 places, torch writes where the largest was in 64 bits."""
    windows = {op.name for op in graph.ops if operators.lookup(op).role is Role.WINDOW}
    for ref, nbytes in sizes.items():
        if ref.name in windows and graph.type_of(ref).dtype == "int64":
            yield nbytes, rounded(graph.type_of(ref).numel)


def _halves(graph: Graph, sizes: Mapping[Ref, int]) -> Encoding:
    """Every float32 feature map in half the bytes; gradients lose precision by it."""
    for ref, nbytes in sizes.items():
        if graph.type_of(ref).dtype == "float32":
            yield nbytes, rounded(2 * graph.type_of(ref).numel)
