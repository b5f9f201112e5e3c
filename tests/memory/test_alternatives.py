"""Transfers and encodings of saved activations, by hand."""

from __future__ import annotations

import pytest

from costmodel.ir import Ref, parse
from costmodel.memory.alternatives import LINKS, Alternative, alternatives
from costmodel.memory.saved_tensors import SavedTensors

GRAPH = parse("""graph g {
  input %x: float32[1,2,32,32]
  %0 = relu(self=%x) : float32[1,2,32,32]
  %1 = max_pool2d_with_indices(self=%0, kernel_size=[2, 2]) : float32[1,2,16,16], int64[1,2,16,16]
  %2 = _to_copy(self=%1) : float16[1,2,16,16]
  %3 = relu(self=%2) : float16[1,2,16,16]
  return %3
}""")
"""Bytes: relu 8192, pooled 2048, indices 4096, half 1024, and its relu 1024."""


def saved(*entries: tuple[int, tuple[Ref, ...]]) -> tuple[SavedTensors, ...]:
    return tuple(SavedTensors(op, values, 0) for op, values in entries)


def found(
    *entries: tuple[int, tuple[Ref, ...]], forward_us: float = 1.0, bytes_per_us: float = 1e3
) -> dict[str, Alternative]:
    return {one.name: one for one in alternatives(GRAPH, saved(*entries), forward_us, bytes_per_us)}


@pytest.mark.parametrize(
    ("forward_us", "share"),
    [
        (0.0, 2.0),  # nothing to hide behind
        (0.25, 1.25),  # a quarter of the way hides in the forward pass, and half of the way back
        (0.5, 0.5),
        (1.0, 0.0),
        (9.0, 0.0),
    ],
)
def test_a_transfer_hides_behind_each_pass_and_the_backward_pass_takes_twice_as_long(forward_us: float, share: float):
    for link, rate in LINKS.items():
        one_way = 8192 / rate
        some = found((0, (Ref("0"),)), forward_us=forward_us * one_way)[f"offload over {link}"]
        assert (some.saved_bytes, some.moved_bytes) == (8192, 16384)
        assert some.busy_us == pytest.approx(2 * one_way)
        assert some.added_us == pytest.approx(share * one_way)


def test_links_are_as_fast_as_they_were_achieved_to_be():
    assert LINKS == {"pcie": 55_000.0, "nvlink-c2c": 400_000.0}


def test_a_mask_has_a_bit_an_element_of_what_only_relu_saves():
    only = found((0, (Ref("0"),)))["relu masks of 1 bit"]
    assert only.saved_bytes == 8192 - 512  # 2,048 bits are 256 bytes, in a block
    assert only.busy_us == only.added_us == pytest.approx(2 * (8192 + 512) / 1e3)
    assert only.moved_bytes == 0
    assert found((0, (Ref("0"),)), (1, (Ref("0"),)))["relu masks of 1 bit"].saved_bytes == 0
    assert found((1, (Ref("0"),)))["relu masks of 1 bit"].saved_bytes == 0


def test_indices_of_pooling_take_a_byte_each():
    some = found((1, (Ref("1"), Ref("1", 1))))["pool indices of 1 byte"]
    assert some.saved_bytes == 4096 - 512  # 512 indices
    assert some.busy_us == pytest.approx(2 * (4096 + 512) / 1e3)


def test_only_float32_is_halved():
    some = found((0, (Ref("0"),)), (1, (Ref("1", 1),)), (3, (Ref("3"),)))["float16 saved activations"]
    assert some.saved_bytes == 4096
    assert some.added_us == pytest.approx(2 * (8192 + 4096) / 1e3)


def test_nothing_saved_is_nothing_gained():
    for one in found().values():
        assert (one.saved_bytes, one.moved_bytes, one.busy_us, one.added_us) == (0, 0, 0.0, 0.0)
