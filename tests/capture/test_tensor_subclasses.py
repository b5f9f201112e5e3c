"""Tensors of other classes: those that wrap others cost what they wrap, those that hide it are refused by name."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import costmodel
from costmodel import ir
from costmodel.capture.trace import capture
from costmodel.errors import CaptureError, PlanError, RequestError
from tests.support.wrapped_tensors import Hidden, Packed, Scaled

HERE = "nvidia-h200"


def quantised(*widths: int) -> nn.Sequential:
    """Linear layers whose weights are Scaled."""
    layers = [nn.Linear(given, made) for given, made in itertools.pairwise(widths)]
    for layer in layers:
        layer.weight = nn.Parameter(Scaled.of(torch.ones(layer.weight.shape)), requires_grad=False)
    return nn.Sequential(*layers).eval()


def params(graph: ir.Graph) -> dict[str, str]:
    return {value.name: str(value.type) for value in graph.values if value.role == "param"}


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4))
def test_what_a_weight_wraps_is_read_and_computed_with(widths: list[int]) -> None:
    graph = capture(quantised(*widths), (torch.empty(5, widths[0]),))
    held = {
        f"{index}.weight.held": f"int8[{made},{given}]"
        for index, (given, made) in enumerate(itertools.pairwise(widths))
    }
    assert held.items() <= params(graph).items()
    weights = [value.type.nbytes for value in graph.values if value.name.endswith("held")]
    assert weights == [given * made for given, made in itertools.pairwise(widths)]  # a byte a number
    bases = [op.base for op in graph.ops if op.base not in ("t", "view")]
    assert bases == ["_to_copy", "mul", "addmm"] * (len(widths) - 1)


def test_the_operators_are_those_of_the_same_computation_by_hand() -> None:
    class ByHand(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.ones(6, 4, dtype=torch.int8))
            self.register_buffer("scale", torch.ones(6, 1))
            self.bias = nn.Parameter(torch.zeros(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.held.to(torch.float32) * self.scale, self.bias)  # type: ignore[operator]

    x = (torch.empty(3, 4),)
    wrapped, by_hand = (
        costmodel.predict(module.eval(), x, hardware=HERE).modes for module in (quantised(4, 6), ByHand())
    )
    assert wrapped["default"].device_ms == pytest.approx(by_hand["default"].device_ms, rel=0.01)
    assert wrapped["eager"].device_ms == pytest.approx(by_hand["eager"].device_ms, rel=0.01)


def test_memory_counts_what_a_weight_wraps() -> None:
    report = costmodel.analyze_memory(
        quantised(1024, 512), (torch.empty(1, 1024),), hardware=HERE, passes=("inference",)
    )
    # a byte a number, and in float32 a scale a row and the bias: all multiples of the allocator's 512 bytes
    assert report.parameter_bytes == 1024 * 512 + 4 * 512 + 4 * 512


def test_an_input_that_wraps_others_is_an_input_for_each() -> None:
    graph = capture(nn.ReLU(), (Scaled.of(torch.ones(2, 3)),))
    assert {value.name: str(value.type) for value in graph.values} == {
        "x.held": "int8[2,3]",
        "x.scale": "float32[2,1]",
    }


def test_a_module_is_left_as_it_was() -> None:
    module = quantised(4, 6)
    before = module[0].weight
    costmodel.predict(module, (torch.empty(1, 4),), hardware=HERE)
    assert module[0].weight is before
    assert before.held.device.type == "cpu"


def test_a_plan_names_what_it_cannot_hold() -> None:
    with pytest.raises(PlanError, match=r"Sequential has 0\.weight, a Scaled tensor, which a plan does not support"):
        costmodel.plan(quantised(4, 6), (torch.empty(1, 4),), hardware=HERE)


@pytest.mark.parametrize("ask", [costmodel.predict, costmodel.analyze_memory])
def test_a_class_that_hides_its_operators_is_refused_by_name(ask: object) -> None:
    module = nn.Linear(4, 4)
    module.weight = nn.Parameter(Hidden(torch.ones(4, 4)), requires_grad=False)
    with pytest.raises(RequestError, match="module has weight, a Hidden tensor, which is not captured"):
        ask(module, (torch.empty(1, 4),), hardware=HERE)  # type: ignore[operator]


def test_attributes_of_a_parameter_can_be_read() -> None:
    class Reads(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert isinstance(self.weight, Packed)
            return x * self.weight.factor

    module = Reads(4, 4)
    module.weight = Packed(torch.ones(4, 4))
    module.weight.factor = 3.0
    (op,) = capture(module, (torch.empty(1, 4),)).ops
    assert dict(op.args)["other"] == 3.0


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_modules_of_torch_ao_are_named() -> None:
    from torch.ao.nn.quantized import dynamic

    module = nn.Sequential(nn.ReLU(), dynamic.Linear(4, 4)).eval()
    with pytest.raises(CaptureError, match=r"1 calls quantized\.linear_dynamic.*runs on CPUs only"):
        costmodel.predict(module, (torch.empty(1, 4),), hardware=HERE)
