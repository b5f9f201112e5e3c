"""Operators that write, and the ones that compute the same without."""

import pytest
import torch

from costmodel.capture.functional_variants import functional, writes_first

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("writing", "made"),
    [
        (aten.relu_.default, aten.relu.default),
        (aten.add_.Tensor, aten.add.Tensor),
        (aten.transpose_.default, aten.transpose.int),  # overloads are not always named alike
        (aten.pow_.Scalar, aten.pow.Tensor_Scalar),  # pow.Scalar is a number to the power of a tensor
        (aten.add.out, aten.add.Tensor),
        (aten.max.dim_max, aten.max.dim),
        (aten._foreach_add_.Scalar, aten._foreach_add.Scalar),
    ],
)
def test_what_writes_has_an_operator_that_does_not(writing, made):
    assert functional(writing) is made


@pytest.mark.parametrize("target", [aten.add.Tensor, aten.normal_.default, aten._native_batch_norm_legit.default])
def test_others_stay(target):
    assert functional(target) is target


def test_the_first_argument_is_written_if_the_name_says_so():
    assert writes_first(aten.relu_.default)
    assert not writes_first(aten.add.out)
    assert not writes_first(aten.relu.default)
