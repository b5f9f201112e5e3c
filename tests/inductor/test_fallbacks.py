"""Which operators compiled code leaves to ATen, compared with torch's own tables and with what torch compiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from collectors.workloads.single_operators import Apply
from costmodel.capture.trace import capture
from costmodel.inductor.fallbacks import falls_back
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import operators
from costmodel.ir.op_table import Role


def only(function: Callable[..., Tensor] | nn.Module, *inputs: Tensor) -> tuple[bool, str]:
    """Whether the last operator of a function falls back on a GPU, and its name."""
    module = function if isinstance(function, nn.Module) else Apply(function)
    graph = capture(module, inputs)
    return falls_back(graph, graph.ops[-1], on_cpu=False), graph.ops[-1].base


IMAGE = torch.empty(1, 8, 40, 40, device="meta")


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        pytest.param(nn.MaxPool2d(5, 1, 2), False, id="25-elements"),
        pytest.param(nn.MaxPool2d(9, 1, 4), True, id="81-elements"),
        pytest.param(nn.MaxPool2d((3, 9), 1), True, id="27-elements"),
        pytest.param(nn.AvgPool2d(8), False, id="mean-of-windows-side-by-side"),
        pytest.param(nn.AvgPool2d(8, 4), True, id="mean-of-large-windows-that-overlap"),
        pytest.param(nn.AvgPool2d(3, 1), False, id="mean-of-small-windows"),
        pytest.param(nn.AdaptiveAvgPool2d(4), False, id="divides-the-size"),
        pytest.param(nn.AdaptiveAvgPool2d(7), True, id="does-not-divide"),
        pytest.param(nn.AdaptiveAvgPool2d(39), False, id="small-windows"),
        pytest.param(nn.AdaptiveMaxPool2d(1), False, id="maximum-of-all"),
        pytest.param(nn.AdaptiveMaxPool2d(2), True, id="maximum-of-quarters"),
        pytest.param(nn.AdaptiveMaxPool2d(10), False, id="maximum-of-16"),
    ],
)
def test_pools_of_large_windows(module: nn.Module, expected: bool) -> None:
    assert only(module, IMAGE)[0] is expected


@pytest.mark.parametrize(("length", "expected"), [(512, False), (513, True)])
def test_sorts_of_long_rows(length: int, expected: bool) -> None:
    assert only(lambda x: x.sort(-1)[0], torch.empty(4, length, device="meta")) == (expected, "sort")


@pytest.mark.parametrize(("way", "expected"), [("sum", False), ("amax", True), ("prod", True)])
def test_scatters_that_do_not_add(way: str, expected: bool) -> None:
    index = torch.zeros(4, 6, dtype=torch.int64, device="meta")
    x = torch.empty(4, 6, device="meta")
    assert only(lambda x, i: torch.zeros_like(x).scatter_reduce(1, i, x, way), x, index)[0] is expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda x: x * x, True, id="product"),
        pytest.param(lambda x: x.abs(), True, id="length"),
        pytest.param(lambda x: x + x, False, id="sum-by-parts"),
        pytest.param(lambda x: x.angle(), False, id="angle-by-parts"),
        pytest.param(torch.view_as_real, False, id="view"),
    ],
)
def test_complex_numbers(function: Callable[..., Tensor], expected: bool) -> None:
    assert only(function, torch.empty(3, 4, dtype=torch.complex64, device="meta"))[0] is expected


def test_rules_agree_with_torch() -> None:
    """No row is a library call that torch lowers, or fused where torch has only a fallback.

    Rows whose role depends on shapes or on the device, and those that torch decomposes, are left out.
    """
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.lowering import fallbacks, lowerings

    decomposed = select_decomp_table()
    lowered_by_shape = {"topk", "kthvalue", "median", "mode", "convolution", "mm", "addmm", "bmm", "baddbmm"}
    scans = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}
    wrong = []
    for name, row in operators.TABLE.items():
        packet = getattr(torch.ops.aten, name, None)
        if packet is None or not row.rare or name in lowered_by_shape | scans:
            continue
        overloads = [getattr(packet, one) for one in packet.overloads()]
        fused = any(one in lowerings and one not in fallbacks for one in overloads)
        if (row.role is Role.EXTERN and fused) or (
            row.role is not Role.EXTERN
            and not fused
            and not any(one in decomposed for one in overloads)
            and not name.startswith("upsample_")  # decomposed for autograd, before Inductor
        ):
            wrong.append(name)
    assert wrong == []


def test_a_transform_cuts_a_fused_kernel_in_two() -> None:
    graph = capture(Apply(lambda x: torch.fft.irfft2(torch.fft.rfft2(x.relu() * 2)).relu()), (IMAGE,))
    kinds = [(kernel.backend, kernel.kind) for kernel in compiled_kernels(graph)]
    assert kinds == [("triton", "mul"), ("aten", "fft_r2c"), ("aten", "fft_c2r"), ("triton", "relu")]


def test_a_scatter_is_two_launches_that_nothing_joins() -> None:
    index = torch.zeros(64, 16, dtype=torch.int64, device="meta")
    rows = torch.empty(64, 16, device="meta")
    graph = capture(Apply(lambda x, i: x.new_zeros(128, 16).scatter_add(0, i, x.relu()).sigmoid()), (rows, index))
    kernels = compiled_kernels(graph)
    assert [(kernel.backend, kernel.launches) for kernel in kernels] == [("triton", 2), ("triton", 1)]
    assert kernels[-1].anchor.base == "sigmoid"
