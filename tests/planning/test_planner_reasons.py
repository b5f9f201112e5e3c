"""Reasons that a plan gives for each backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from costmodel.planning.blocks import Block
from costmodel.planning.planner import _region, _why


class Costs:
    """Every operator takes 10 us by Inductor and 3 by another backend."""

    def us(self, backend: str, ops: Sequence[str]) -> float:
        return len(ops) * (10.0 if backend == "inductor" else 3.0)


COSTS: Any = Costs()
RUN = (Block(("a", "b"), True), Block(("c",), False))


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("cudnn", "one kernel for convolution, bias and ReLU; Inductor would take 20.0 us"),  # of its one block
        ("eager", "library kernels; Inductor would take 30.0 us"),
        ("inductor", "fused by Inductor"),
    ],
)
def test_a_reason_compares_with_inductor(backend: str, why: str):
    assert _why(backend, RUN, COSTS) == why


def test_a_region_lists_its_operators_and_each_layer_once():
    region = _region("eager", 1, RUN, {"a": "conv", "b": "", "c": "conv"}, COSTS)
    assert (region.ops, region.layers, region.us) == (("a", "b", "c"), ("conv",), 9.0)
    assert region.stream == 1
    assert region.why.startswith("library kernels")
