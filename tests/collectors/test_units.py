"""Units: graphs of cases, their numerics, the ranges they are drawn from, the dataset made of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from collectors.processes.run_graph import argument_sets, make_tensor, relative_error
from collectors.sweep.unit_timing import estimate_us, measure_case, warm
from collectors.workloads import convolution_space, matmuls
from collectors.workloads.cases import UnitCase, size_bytes
from collectors.workloads.convolution_space import ConvUnit, unit_cases, unit_graph
from collectors.workloads.from_models import harvest
from costmodel.capture.trace import capture
from costmodel.errors import GraphError, MeasurementError
from costmodel.execution.fx_module import build_module
from costmodel.ir import parse

RELU = "graph _ {\n  input %a0: float32[4096]\n  %0 = relu(self=%a0) : float32[4096]\n  return %0\n}"
UNIT = ConvUnit(batch=2, in_channels=8, out_channels=12, size=9, kernel=3, stride=2, padding=1)
UNITS = [
    UNIT,
    replace(UNIT, residual=True),
    replace(UNIT, activation=False),
    replace(UNIT, batch_norm=False, residual=True),
    replace(UNIT, in_channels=8, out_channels=8, groups=8),
    replace(UNIT, dilation=2, padding=2, stride=1),
    replace(UNIT, kernel=1, padding=0, stride=1),
    replace(UNIT, kernel=7, padding=3, stride=1, outline="wide"),
    replace(UNIT, kernel=5, padding=1, outline="tall"),
]


class Layer(nn.Module):
    """The layer that a ConvUnit describes, as a module."""

    def __init__(self, unit: ConvUnit) -> None:
        super().__init__()
        self.conv = nn.Conv2d(
            unit.in_channels,
            unit.out_channels,
            {"square": unit.kernel, "wide": (1, unit.kernel), "tall": (unit.kernel, 1)}[unit.outline],
            unit.stride,
            {"square": unit.padding, "wide": (0, unit.padding), "tall": (unit.padding, 0)}[unit.outline],
            unit.dilation,
            unit.groups,
            bias=not unit.batch_norm,
        )
        self.norm = nn.BatchNorm2d(unit.out_channels) if unit.batch_norm else nn.Identity()
        self.unit = unit

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        result = self.norm(self.conv(x))
        result = result + residual if self.unit.residual else result
        return functional.relu(result) if self.unit.activation else result


def layer_with(unit: ConvUnit, given: dict[str, torch.Tensor]) -> Layer:
    """Layer with the parameters that a graph was given."""
    layer = Layer(unit).eval()
    state = {"conv.weight": given["p0"]}
    if unit.batch_norm:
        names = ("weight", "bias", "running_mean", "running_var")
        state |= {f"norm.{name}": given[f"n{index}"] for index, name in enumerate(names)}
        state["norm.num_batches_tracked"] = torch.tensor(0)
    else:
        state["conv.bias"] = given["p1"]
    layer.load_state_dict(state)
    return layer


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_units_eager_graph_computes_what_the_modules_do(unit: ConvUnit, layout: str):
    torch.manual_seed(0)
    graph = unit_graph(unit, layout, layout)
    arguments = argument_sets(graph, "cpu")[0]
    given = {value.name: tensor for value, tensor in zip(graph.values, arguments, strict=True)}
    with torch.no_grad():
        (got,) = build_module(graph)(*arguments)
        expected = layer_with(unit, given)(given["a0"], given.get("a1", torch.zeros(())))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert tuple(got.shape) == graph.type_of(graph.outputs[0]).shape
    assert got.is_contiguous(memory_format=torch.channels_last) == (layout == "nhwc")


def test_a_folded_unit_computes_what_the_unit_with_batch_norm_does():
    torch.manual_seed(0)
    unit = replace(UNIT, residual=True)
    whole, folded = unit_graph(unit, "nhwc", "nhwc"), unit_graph(replace(unit, batch_norm=False), "nhwc", "nhwc")
    arguments = argument_sets(whole, "cpu")[0]
    given = {value.name: tensor for value, tensor in zip(whole.values, arguments, strict=True)}
    scale = given["n0"] / torch.sqrt(given["n3"] + 1e-5)
    given["p0"], given["p1"] = given["p0"] * scale[:, None, None, None], given["n1"] - given["n2"] * scale
    with torch.no_grad():
        (expected,) = build_module(whole)(*arguments)
        (got,) = build_module(folded)(*(given[value.name] for value in folded.values))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_ways_of_a_unit(unit: ConvUnit):
    cases = list(unit_cases(unit))
    ways = ["eager", "eager_nhwc", "inductor", "folded", *(["cudnn"] if unit.activation else [])]
    assert [case.way for case in cases] == ways
    assert {case.unit for case in cases} == {unit.name}
    for case in cases:
        graph = parse(case.graph)
        assert str(graph) == case.graph
        has_norm = any(op.base == "native_batch_norm" for op in graph.ops)
        assert has_norm == (unit.batch_norm and case.way not in ("folded", "cudnn"))
    if unit.activation:
        (fused,) = parse(cases[-1].graph).ops
        assert fused.op == ("cudnn_convolution_add_relu" if unit.residual else "cudnn_convolution_relu")


def test_keys_and_texts_are_those_that_the_shipped_dataset_was_measured_under():
    """A case is known by its text; a change of it would orphan every measurement that there is."""
    case = next(unit_cases(ConvUnit(1, 3, 8, 16, 3, padding=1)))
    assert case.graph == (
        "graph _ {\n"
        "  input %a0: float32[1,3,16,16]\n"
        "  param %p0: float32[8,3,3,3]\n"
        "  param %n0: float32[8]\n"
        "  param %n1: float32[8]\n"
        "  param %n2: float32[8]\n"
        "  param %n3: float32[8]\n"
        "  %0 = convolution(input=%a0, weight=%p0, bias=None, stride=[1, 1], padding=[1, 1], dilation=[1, 1],"
        " transposed=False, output_padding=[0, 0], groups=1) : float32[1,8,16,16]\n"
        "  %1 = native_batch_norm(input=%0, weight=%n0, bias=%n1, running_mean=%n2, running_var=%n3, training=False,"
        " momentum=0.1, eps=1e-05) : float32[1,8,16,16], float32[0], float32[0]\n"
        "  %2 = relu(self=%1) : float32[1,8,16,16]\n"
        "  return %2\n"
        "}"
    )
    assert case.key == KEY


KEY = "12b43f63edda8c7a63f73d8e"


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=25, deadline=None)
def test_sampled_convolutions_stay_in_the_documented_ranges(seed: int):
    units = convolution_space.sample(8, seed)
    assert units == convolution_space.sample(8, seed)
    for unit in units:
        assert 1 <= unit.kernel <= 11
        assert 1 <= unit.in_channels <= 4096
        assert 1 <= unit.out_channels <= 4096
        assert 1 <= unit.size <= 512
        assert 1 <= unit.batch <= 256
        assert unit.stride in (1, 2, 4)
        assert unit.dilation in (1, 2)
        assert unit.dtype in ("float32", "float16", "bfloat16")
        assert unit.in_channels % unit.groups == 0
        assert unit.out_channels % unit.groups == 0
        assert min(unit.out_shape) >= 1
        assert unit.activation or not unit.residual
        assert unit.work <= 1 << 38


def test_sampled_convolutions_cover_every_kind():
    units = convolution_space.sample(600, 3)
    assert {unit.kernel for unit in units} == {1, 2, 3, 4, 5, 7, 9, 11}
    assert {unit.dtype for unit in units} == {"float32", "float16", "bfloat16"}
    assert any(unit.groups == unit.in_channels > 1 for unit in units)
    assert any(1 < unit.groups < unit.in_channels for unit in units)
    assert any(unit.dilation == 2 for unit in units)
    assert any(unit.residual for unit in units)
    assert {unit.batch for unit in units} >= {1, 32, 256}


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=25, deadline=None)
def test_sampled_matmuls_stay_within_reason(seed: int):
    cases = list(matmuls.sample(8, seed))
    assert len(cases) == 8
    for case in cases:
        graph = parse(case.graph)
        assert str(graph) == case.graph
        assert graph.ops[-1].base in ("mm", "addmm", "bmm")
        assert max(value.type.numel for value in graph.values) <= 1 << 27


def test_some_matmuls_mix_tokens():
    widths = [parse(case.graph).ops[-1].type.shape[-1] for case in matmuls.sample(400, 1)]
    mixed = sum(width in (49, 50, 196, 197) for width in widths)  # four of nine, of 8 in a hundred; seldom by chance
    assert 0.015 < mixed / 400 < 0.06


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_graph_computes_what_the_functional_does(bias: bool):
    graph = matmuls.linear_graph(5, 16, 7, "float32", bias)
    arguments = argument_sets(graph, "cpu")[0]
    (got,) = build_module(graph)(*arguments)
    torch.testing.assert_close(got, functional.linear(*arguments), rtol=1e-4, atol=1e-5)


def test_a_batched_graph_computes_a_batched_product():
    arguments = argument_sets(graph := matmuls.batched_graph(3, 5, 16, 7, "float32"), "cpu")[0]
    (got,) = build_module(graph)(*arguments)
    torch.testing.assert_close(got, arguments[0] @ arguments[1])


class Small(nn.Module):
    """Most kinds of layers: convolution, norm, residual, pooling, concatenation, norm of tokens, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
        self.pool = nn.MaxPool2d(2)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = functional.silu(self.second(x) + x)
        x = torch.cat([self.pool(x), functional.avg_pool2d(x, 2)], 1)
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        return self.head(functional.softmax(tokens, -1).mean(1))


def test_the_harvest_of_a_model_runs_on_the_cpu_kernel_by_kernel():
    graph = capture(Small().eval(), (torch.empty(2, 3, 16, 16, device="meta"),), "small")
    cases = list(harvest(graph, "small", "cpu"))
    assert {case.runner for case in cases} == {"aten", "inductor"}
    assert all(case.source == "small" and 0 <= case.position <= 1 for case in cases if case.position is not None)
    for case in cases:
        graph = parse(case.graph)
        results = build_module(graph)(*(make_tensor(value.type, "cpu") for value in graph.values))
        shapes = [graph.type_of(ref).shape for ref in graph.outputs]
        assert [tuple(result.shape) for result in results] == shapes, case.graph
    called = {op.base for case in cases for op in parse(case.graph).ops}
    assert {"convolution", "native_batch_norm", "addmm", "max_pool2d_with_indices"} <= called


def test_the_harvest_for_a_gpu_calls_cudnns_batch_norm():
    graph = capture(Small().eval(), (torch.empty(2, 3, 16, 16, device="meta"),), "small")
    assert any("cudnn_batch_norm" in case.graph for case in harvest(graph, "small"))
    assert not any("cudnn" in case.graph for case in harvest(graph, "small", "cpu"))


def test_relative_error_is_the_largest_over_the_results():
    expected = (torch.tensor([3.0, 4.0]), torch.tensor([1.0]), torch.tensor([1, 2]))
    got = (torch.tensor([3.0, 4.5]), torch.tensor([1.2]), torch.tensor([7, 7]))
    assert relative_error(got, expected) == pytest.approx(0.2)  # 0.5 / 5 and 0.2 / 1; whole numbers are passed over
    assert relative_error(expected, expected) == 0.0


def test_relative_error_to_zero_is_the_error_itself():
    assert relative_error(torch.tensor([0.5]), torch.tensor([0.0])) == pytest.approx(0.5)


def test_relative_error_of_a_result_that_is_no_number_is_none():
    assert math.isnan(relative_error(torch.tensor([math.nan]), torch.tensor([1.0])))


def test_relative_error_refuses_results_of_other_number():
    with pytest.raises(ValueError, match="zip"):
        relative_error((torch.ones(1),), (torch.ones(1), torch.ones(1)))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_parameters_are_rotated_until_they_are_cold_and_inputs_on_a_cpu(device: str):
    graph = matmuls.linear_graph(1, 1024, 1024, "float32", bias=False)  # 4 MiB of weights, of 64 MiB
    sets = argument_sets(graph, device)
    assert len(sets) == 16
    assert (sets[0][0] is sets[1][0]) == (device != "cpu")
    assert sets[0][1] is not sets[1][1]
    assert sets[0][1].shape == sets[1][1].shape == (1024, 1024)


def test_an_operator_that_torch_does_not_have_is_named():
    with pytest.raises(GraphError, match=r"aten\.no_such"):
        build_module(parse(RELU.replace("relu", "no_such")))


def test_sizes_and_estimates_by_hand():
    graph = parse(RELU)
    assert size_bytes(graph) == 2 * 4096 * 4
    assert estimate_us(graph) == pytest.approx(2.0 + 32768 / 2e6, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "graph _ {\n  input %a0: float32[4]\n  return %a0\n}",
        "graph _ {\n  return\n}",
        "graph _ {\n  input %a0: float32[4]\n  %0 = relu(self=%a0) : float32[4]\n  return\n}",
    ],
)
def test_a_graph_that_computes_nothing_is_refused(text: str):
    with pytest.raises(MeasurementError, match="computes nothing"):
        measure_case(UnitCase(text, "aten"), "cpu")


def test_a_case_is_measured_with_quantiles_in_order():
    status, record = measure_case(UnitCase(RELU, "aten"), "cpu")
    assert status in ("ok", "noisy")
    for name in ("device_us", "host_us"):
        assert len(record[name]) == 5
        assert 0 < record[name][0] <= record[name][2] <= record[name][4]
    assert "relative_error" not in record
    assert (status == "noisy") == ("complaint" in record)


def test_a_case_beyond_the_limit_is_not_begun():
    huge = RELU.replace("4096", str(1 << 40))
    status, record = measure_case(UnitCase(huge, "aten"), "cpu")
    assert (status, record) == ("oom", {"error": "its tensors take more than 3 GiB"})
    warm((UnitCase(huge, "inductor"), "cpu"))
