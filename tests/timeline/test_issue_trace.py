"""Launches issued by the host: counts, footprints, positions and classes of calls, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from collectors.workloads.convolution_space import ConvUnit, unit_graph
from collectors.workloads.matmuls import linear_graph
from costmodel.capture.trace import capture
from costmodel.device import Device
from costmodel.ir import Calls, Graph, Op, Partition, Ref, TensorType, Value, parse
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import (
    compiled_trace,
    dispatch_class,
    distinct_fused,
    eager_trace,
    issue_traces,
    origin_of,
)

UNIT = ConvUnit(2, 8, 12, 10, kernel=3, padding=1)


@pytest.fixture(scope="module")
def small() -> Graph:
    """Convolution, batch norm, ReLU, flatten, linear."""
    layers = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    return capture(layers.eval(), [torch.empty(2, 3, 6, 6)], "small")


def test_eager_issues_every_operator_that_is_no_view(small: Graph):
    trace = eager_trace(small)
    assert [kernel.kind for kernel in trace.kernels] == ["conv2d", "batch_norm", "relu", "linear"]
    assert trace.calls.modules == 6  # five layers and what holds them
    assert trace.views >= 1
    assert trace.positions[0] == 0.0
    assert trace.positions[-1] == 1.0
    assert list(trace.positions) == sorted(trace.positions)


def test_parameters_and_footprint_by_hand(small: Graph):
    trace = eager_trace(small)
    weights = 4 * 27 + 4 * 4 + 5 * 64 + 5  # convolution, four of batch norm, linear
    assert trace.parameters == 7
    values = 2 * 3 * 36 + weights
    largest = 2 * 4 * 16  # the convolution's result, as of batch norm and ReLU
    assert trace.footprint == 4 * (values + 2 * largest)


def test_compiled_issues_fewer_calls_and_neither_views_nor_modules(small: Graph):
    trace = compiled_trace(small)
    assert len([k for k in trace.kernels if k.graph.ops[-1].base != "clone"]) == 3
    assert (trace.views, trace.calls) == (0, Calls())
    assert trace.checked_modules == 1  # the chain of layers
    assert len(trace.positions) == len(trace.kernels)


@pytest.mark.parametrize(("name", "origin"), [("12", "12"), ("12.3", "12"), ("12.0.nhwc", "12")])
def test_an_operator_of_a_rewrite_comes_from_its_origin(name: str, origin: str):
    assert origin_of(name) == origin


def joined(parts: int) -> Kernel:
    """A concatenation of so many inputs."""
    inputs = "".join(f"  input %a{part}: float32[1,4]\n" for part in range(parts))
    names = ", ".join(f"%a{part}" for part in range(parts))
    text = f"graph _ {{\n{inputs}  %0 = cat(tensors=[{names}], dim=1) : float32[1,{4 * parts}]\n  return %0\n}}"
    return Kernel("aten", parse(text), ())


def normalised(name: str) -> Graph:
    """A batch norm by ATen's name for it."""
    x = TensorType("float32", (2, 4, 6))
    return Graph("_", (Value("a0", x),), (Op("0", name, (("input", Ref("a0")),), (x,)),), (Ref("0"),))


def convolution(unit: ConvUnit, layout: str = "nchw") -> Kernel:
    return eager_kernels(unit_graph(unit, layout, layout))[0]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        # 8 channels are 2^3; 2400 results of 72 products each lie between 4^8 and 4^9
        (convolution(UNIT), "conv.nchw.spatial.32.c3.m8"),
        (convolution(UNIT, "nhwc"), "conv.nhwc.spatial.32.c3.m8"),
        (convolution(replace(UNIT, batch_norm=False)), "conv.nchw.spatial+bias.32.c3.m8"),
        (convolution(replace(UNIT, kernel=1, padding=0, dtype="float16")), "conv.nchw.pointwise.16.c3.m7"),
        (convolution(replace(UNIT, kernel=1, padding=0, size=1)), "conv.nchw.one_pixel.32.c3.m3"),
        (convolution(replace(UNIT, out_channels=8, groups=8)), "conv.nchw.depthwise.32.c0.m6"),
        (convolution(replace(UNIT, out_channels=16, groups=8)), "conv.nchw.multiplied.32.c0.m7"),
        (convolution(replace(UNIT, out_channels=16, groups=2, dtype="bfloat16")), "conv.nchw.even.16.c2.m8"),
        (convolution(replace(UNIT, out_channels=12, groups=2)), "conv.nchw.uneven.32.c2.m8"),
        (Kernel("aten", linear_graph(4, 8, 8, "float32", bias=True), ()), "linear.32"),
        (joined(3), "cat.32.3"),
        (joined(11), "cat.32.8"),
        (Kernel("aten", normalised("native_batch_norm"), ()), "batch_norm.32.native"),
        (Kernel("aten", normalised("cudnn_batch_norm"), ()), "batch_norm.32"),
        (Kernel("triton", unit_graph(UNIT, "nchw", "nchw"), ()), "triton"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_decides_the_host_time_of_a_call(kernel: Kernel, name: str):
    assert dispatch_class(kernel) == name


def test_views_that_lead_to_several_kernels_count_once():
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            turned = x.transpose(0, 1)
            left, right = turned.chunk(2)
            return left.relu() + left.sigmoid() * right  # two views lead to three kernels

    trace = eager_trace(capture(Halves(), (torch.empty(4, 6),)))
    made = [sum(op.base in ("transpose", "split", "chunk") for op in kernel.graph.ops) for kernel in trace.kernels]
    assert sum(made) == 6
    turning = sum(op.base == "permute" for kernel in trace.kernels for op in kernel.graph.ops)
    assert turning == 3  # what relu, sigmoid and the product leave lies transposed, and is read through a view alone
    assert trace.views_again == 6 + 3 - 2
    assert eager_trace(capture(nn.ReLU(), (torch.empty(4, 6),))).views_again == 0


def test_equal_fused_kernels_are_one_and_those_of_libraries_none():
    relu, sigmoid = (
        f"graph _ {{\n  input %a0: float32[8]\n  %0 = {name}(self=%a0) : float32[8]\n  return %0\n}}"
        for name in ("relu", "sigmoid")
    )
    fused = [Kernel("triton", parse(text), (str(place),)) for place, text in enumerate((relu, sigmoid, relu, relu))]
    assert distinct_fused([]) == 0
    assert distinct_fused(fused) == 2
    assert distinct_fused([*fused[:1], Kernel("aten", parse(sigmoid), ("4",))]) == 1


def in_sections(graph: Graph, sections: tuple[int | None, ...], ops: list[int]) -> Graph:
    """The graph with its operators, in order, in the sections of these indices."""
    placed = tuple(replace(op, section=index) for op, index in zip(graph.ops, ops, strict=True))
    return replace(graph, ops=placed, partition=Partition(sections, len({0, *sections} - {None})))


def test_sections_are_compiled_or_run_eagerly(small: Graph):
    """Convolution and batch norm compiled, ReLU run eagerly, the rest compiled: nothing is fused across sections."""
    assert [op.base for op in small.ops] == ["convolution", "native_batch_norm", "relu", "view", "t", "addmm"]
    trace = compiled_trace(in_sections(small, (0, None, 1), [0, 0, 1, 2, 2, 2]))
    assert [item.is_compiled for item in trace.sections] == [True, False, True]
    assert not any(item.alone for item in trace.sections)
    assert [item.parameters for item in trace.sections] == [5, 0, 2]
    assert sum(item.kernels for item in trace.sections) == len(trace.kernels)
    assert trace.sections[1].kernels == 1
    assert trace.kernels[trace.sections[0].kernels].kind == "relu"
    assert trace.subgraphs == 2


def test_a_pass_that_dynamo_gives_up_is_issued_as_in_eager_execution(small: Graph):
    trace = compiled_trace(in_sections(small, (None,), [0] * 6))
    assert trace.kernels == eager_trace(small).kernels
    assert trace.subgraphs == 0


def test_a_pass_that_was_not_checked_is_one_graph(small: Graph):
    whole = in_sections(small, (0,), [0] * 6)
    assert compiled_trace(small) == compiled_trace(whole)
    assert compiled_trace(small).subgraphs == 1


class RowSums(nn.Module):
    """Sums of rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)


@pytest.mark.parametrize(("multiprocessors", "launches"), [(132, 2), (2, 1)])
def test_reductions_are_split_by_the_devices_multiprocessors(multiprocessors: int, launches: int):
    """Four sums of 65,536 elements: too few blocks for 132 multiprocessors, which split them, but not for 2."""
    graph = capture(RowSums().eval(), (torch.empty(4, 1 << 16),), "sums")
    eager, compiled = issue_traces(graph, Device("NVIDIA", multiprocessors))
    assert eager == eager_trace(graph)
    assert sum(kernel.launches for kernel in compiled.kernels) == launches


def test_traces_on_a_cpu_are_in_one_launch_a_kernel(small: Graph):
    eager, compiled = issue_traces(small, Device("cpu", 4))
    assert (eager, compiled) == (eager_trace(small, on_cpu=True), compiled_trace(small, on_cpu=True))
