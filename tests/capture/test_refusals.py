"""Calls that a capture refuses, and calls beside them that it makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from costmodel.capture.refusals import (
    refuse_data_dependence,
    refuse_impure,
    refuse_mixed_devices,
    refuse_packed_weights,
    refuse_training,
)
from costmodel.errors import CaptureError, DataDependentError

aten = torch.ops.aten
REAL, META = torch.ones(2), torch.ones(2, device="meta")
FAILED = RuntimeError("devices differ")


def test_values_of_meta_tensors_are_refused_and_of_real_ones_read():
    with pytest.raises(DataDependentError, match=r"^net needs the values of a tensor"):
        refuse_data_dependence("net", aten._local_scalar_dense.default, (META,))
    refuse_data_dependence("net", aten._local_scalar_dense.default, (REAL,))
    refuse_data_dependence("net", aten.relu.default, (META,))


def norm_args(mean: torch.Tensor | None, training: bool) -> tuple[Any, ...]:
    return (META, META, META, mean, META, training, 0.1, 1e-5)


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "in_training", "refused"),
    [
        (aten.native_batch_norm.default, norm_args(META, True), {}, False, True),
        (aten.native_batch_norm.default, norm_args(META, False), {}, True, False),
        (aten.native_batch_norm.default, norm_args(None, True), {}, True, False),  # without statistics to update
        (aten.native_batch_norm.default, norm_args(META, True)[:5], {}, True, False),
        (aten.native_dropout.default, (META, 0.5, True), {}, True, True),
        (aten.native_dropout.default, (META, 0.5, True), {}, False, False),  # the model's own wish
        (aten.bernoulli.default, (META,), {}, True, True),
        (aten.bernoulli_.float, (META, 0.5), {}, True, True),
        (aten.scaled_dot_product_attention.default, (META,) * 3, {"dropout_p": 0.1}, False, True),
        (aten.scaled_dot_product_attention.default, (META,) * 3, {"dropout_p": 0.0}, True, False),
        (aten.scaled_dot_product_attention.default, (META,) * 3, {}, True, False),
        (aten.relu.default, (META,), {}, True, False),
    ],
)
def test_what_only_training_does_is_refused(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], in_training: bool, refused: bool
):
    if not refused:
        refuse_training("net", func, args, kwargs, in_training)
        return
    with pytest.raises(CaptureError, match=r"^net is in training mode; call .eval\(\) on the model$"):
        refuse_training("net", func, args, kwargs, in_training)


def test_packed_weights_are_refused():
    with pytest.raises(CaptureError, match=r"^net calls quantized.linear.default, which takes packed weights"):
        refuse_packed_weights("net", torch.ops.quantized.linear.default)
    refuse_packed_weights("net", aten.linear.default)


def mixed(func: Any, *args: Any) -> None:
    refuse_mixed_devices("net", func, args, {}, FAILED)


def test_a_call_on_two_devices_may_be_repeated_on_the_meta_device():
    mixed(aten.add.Tensor, META, REAL)
    mixed(aten.add_.Tensor, META, REAL)


@pytest.mark.parametrize("args", [(META, META), (REAL, REAL), ()])
def test_another_failure_stays_what_it_is(args: tuple[Any, ...]):
    with pytest.raises(RuntimeError) as caught:
        mixed(aten.add.Tensor, *args)
    assert caught.value is FAILED


def test_a_failed_call_of_unknown_size_lacks_values():
    with pytest.raises(DataDependentError):
        mixed(aten.nonzero.default, META)
    with pytest.raises(RuntimeError) as caught:
        mixed(aten.nonzero.default, REAL)
    assert caught.value is FAILED


def test_a_write_into_a_tensor_elsewhere_is_refused():
    with pytest.raises(CaptureError, match=r"^net writes into a tensor on cpu; make it where the input is"):
        mixed(aten.add_.Tensor, REAL, META)


def test_only_maps_of_tensors_are_run():
    refuse_impure("net", aten.relu.default, (META,), {})
    refuse_impure("net", aten.relu.default, (), {"self": META})
    for func, args in ((aten.relu.default, ()), (aten.relu_.default, (META,))):
        with pytest.raises(CaptureError, match=r"which is not run while a model is captured; call it before$"):
            refuse_impure("net", func, args, {})
