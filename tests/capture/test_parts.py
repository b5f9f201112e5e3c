"""Operators that torch implements by others for every device: the others are recorded, and nothing is unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from collectors.workloads.single_operators import Apply
from costmodel.capture.aten_operators import parts_of
from costmodel.capture.trace import capture
from costmodel.ir import operators

FAR = torch.empty(2, 30, 3, device="meta"), torch.empty(2, 40, 3, device="meta")
ROWS = torch.empty(4, 6, device="meta"), torch.empty(4, 6, device="meta")


@pytest.mark.parametrize(
    ("function", "inputs", "anchor"),
    [
        pytest.param(torch.cdist, FAR, "bmm", id="distances-by-a-product"),
        pytest.param(nn.Bilinear(6, 6, 5), ROWS, "bmm", id="bilinear"),
        pytest.param(torch.dist, ROWS, "norm", id="distance"),
        pytest.param(torch.block_diag, ROWS, "copy", id="blocks"),
    ],
)
def test_parts_are_recorded(
    function: Callable[..., Tensor] | nn.Module, inputs: tuple[Tensor, ...], anchor: str
) -> None:
    module = function if isinstance(function, nn.Module) else Apply(function)
    graph = capture(module.eval(), inputs).verify()
    assert [op.base for op in graph.ops if not operators.lookup(op).supported] == []
    assert anchor in {op.base for op in graph.ops}


@pytest.mark.parametrize(
    "name",
    ["convolution.default", "relu.default", "relu_.default", "native_layer_norm.default", "special_bessel_j0.default"],
)
def test_operators_with_a_cost_or_kernels_of_their_own_have_no_parts(name: str) -> None:
    base, _, overload = name.partition(".")
    assert parts_of(getattr(getattr(torch.ops.aten, base), overload)) is None
