"""Errors of a plan's outputs, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from costmodel.capture.inputs import Arguments
from costmodel.execution.numerics import (
    FACTOR,
    FLOOR_FLOAT32,
    allowed_error,
    passes,
    random_like,
    reference,
    relative_error,
    strictly_allowed_error,
    surely_pass,
    worst_error,
)

ONE, TWO = torch.ones(4), 2 * torch.ones(4)


def test_the_worst_output_counts_and_none_is_no_error():
    assert worst_error([], []) == 0.0
    assert worst_error([ONE, ONE], [ONE, TWO]) == 0.5
    assert worst_error([TWO, ONE], [ONE, ONE]) == 1.0
    with pytest.raises(ValueError, match="zip"):
        worst_error([ONE], [ONE, ONE])


def test_an_error_is_relative_unless_the_truth_is_zero():
    assert relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)  # 0.5 of 5
    assert relative_error(torch.tensor([0.3, 0.4]), torch.zeros(2)) == pytest.approx(0.5)
    assert relative_error(torch.tensor([math.inf]), torch.ones(1)) == math.inf


@pytest.mark.parametrize("mask", [math.inf, -math.inf, math.nan, torch.finfo(torch.float32).min])
def test_masked_elements_must_be_the_same_and_the_error_is_that_of_the_others(mask):
    expected = torch.tensor([3.0, mask, 4.0])
    assert relative_error(expected, expected) == 0.0
    assert relative_error(torch.tensor([3.0, mask, 4.5]), expected) == pytest.approx(0.1)  # 0.5 of 5
    assert relative_error(torch.tensor([3.0, 1.0, 4.0]), expected) == math.inf
    assert relative_error(torch.tensor([math.nan, mask, 4.0]), expected) == math.inf


@pytest.mark.parametrize(
    ("dtypes", "floor"),
    [
        ([], 0.0),
        ([torch.float32], 1e-4),
        ([torch.float16], 2e-3),
        ([torch.bfloat16], 1.6e-2),
        ([torch.float32, torch.bfloat16, torch.float16], 1.6e-2),
    ],
)
def test_the_coarsest_output_decides_what_is_allowed_at_least(dtypes: list[torch.dtype], floor: float):
    outputs = [torch.ones(2, dtype=dtype) for dtype in dtypes]
    assert allowed_error(outputs, 0.0) == floor
    assert allowed_error(outputs, 1.0) == FACTOR == 4.0


def test_a_plan_may_be_as_wrong_as_the_floor_allows():
    assert FLOOR_FLOAT32 == 1e-4
    assert passes(lambda: [ONE * (1 + 0.9e-4)], [ONE], None)
    assert not passes(lambda: [ONE * (1 + 1.1e-4)], [ONE], None)


def test_random_tensors_have_the_strides_and_type_of_their_model():
    turned = torch.zeros(3, 4).t()
    fresh = random_like(turned, torch.device("cpu"))
    assert (fresh.shape, fresh.stride(), fresh.dtype) == ((4, 3), (1, 4), torch.float32)
    assert fresh.std() > 0
    numbers = torch.tensor([[5, 6]])
    assert random_like(numbers, torch.device("cpu")).tolist() == [[5, 6]]
    assert random_like(numbers.to("meta"), torch.device("cpu")).tolist() == [[0, 0]]


def test_a_reference_is_computed_in_float64_and_the_module_kept():
    module, x = nn.Linear(4, 2), torch.randn(3, 4)
    (found,) = reference(module, Arguments.of((x,)))
    assert found.dtype is torch.float64
    assert relative_error(module(x), found) < 1e-6
    assert module.weight.dtype is torch.float32


class NamesFloat32(nn.Module):
    """Adds a third of a float32 tensor and a third of a tensor of the default type."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        third = torch.ones(4, 2, dtype=torch.float32) / 3
        return (x.float() @ third + torch.ones(2) / 3).to(torch.float16)


def test_code_that_names_a_dtype_has_a_reference_in_float64():
    """4 times a third and one more, exactly where nothing was rounded to float32 or to float16."""
    x = torch.ones(3, 4)
    (found,) = reference(NamesFloat32(), Arguments.of((x,)))
    assert found.dtype is torch.float64
    assert (found - 5 / 3).abs().max() < 1e-15
    assert (NamesFloat32()(x).double() - 5 / 3).abs().max() > 1e-4


def test_code_that_reads_the_bits_of_numbers_has_no_reference():
    class Bits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(torch.int32)

    assert reference(Bits(), Arguments.of((torch.ones(3, 4),))) is None


def test_outputs_near_eager_ones_pass_whatever_the_truth_is():
    """The floor of float32 is 1e-4 on a CPU: half of it is 5e-5. A truth at any distance then allows the outputs."""
    near, far = [ONE * (1 + 4e-5)], [ONE * (1 + 6e-5)]
    assert surely_pass(near, [ONE])
    assert not surely_pass(far, [ONE])
    assert not surely_pass([ONE * math.nan], [ONE])
    assert not surely_pass([torch.ones(3)], [ONE])
    for error in (0.0, 1e-6, 3e-5, 5e-5, 8e-5, 1e-4, 1e-3, 0.1):
        for sign in (1, -1):
            assert passes(lambda: near, [ONE], [ONE.double() * (1 + sign * error)])


@pytest.mark.parametrize("truth", [3.0, 1.2, -math.inf, math.nan])
def test_a_truth_far_from_eager_outputs_allows_nothing_more_than_the_floor(truth):
    """1 is off by 0.17 from 1.2, and four times that would allow zeros."""
    far = [ONE.double() * truth]
    assert not passes(lambda: [ONE * 0.0], [ONE], far)
    assert not passes(lambda: [ONE * (1 + 2e-4)], [ONE], far)
    assert passes(lambda: [ONE * (1 + 9e-5)], [ONE], far)
    assert not passes(lambda: [ONE * (1 + 9e-5)], [ONE], far, strict=True)


def test_masked_outputs_do_not_let_others_pass():
    eager = [torch.tensor([1.0, -math.inf])]
    truth = [torch.tensor([1.0, -math.inf], dtype=torch.float64)]
    for exact in (truth, None):
        assert not passes(lambda: [torch.tensor([0.0, -math.inf])], eager, exact)
        assert not passes(lambda: [torch.tensor([1.0, 0.0])], eager, exact)
        assert passes(lambda: [torch.tensor([1.00001, -math.inf])], eager, exact)


def test_strictly_the_error_is_that_of_eager_execution_and_half_as_much_again():
    """Eager execution is off by 2e-6: 3e-6 is allowed. Without an error, one rounding is: 2^-24 for float32."""
    assert strictly_allowed_error([ONE], 2e-6) == pytest.approx(3e-6)
    assert strictly_allowed_error([ONE], 0.0) == 2**-24
    assert strictly_allowed_error([ONE.half()], 0.0) == 2**-11
    assert strictly_allowed_error([ONE.long()], 0.0) == 0.0
    truth = [ONE.double()]
    eager, better, worse = [ONE * (1 + 2e-6)], [ONE * (1 + 1e-6)], [ONE * (1 + 5e-6)]
    assert passes(lambda: better, eager, truth, strict=True)
    assert not passes(lambda: worse, eager, truth, strict=True)
    assert passes(lambda: worse, eager, truth)
    assert passes(lambda: eager, eager, None, strict=True)
    assert not passes(lambda: better, eager, None, strict=True)
