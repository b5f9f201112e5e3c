"""Settings of torch: made within a block, and restored whatever happens in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from costmodel.execution.torch_settings import (
    matmul_precision,
    matmul_precision_of_at_least,
    present_matmul_precision,
    torch_settings,
    under_autocast,
)
from costmodel.prediction.arithmetic import DEFAULT, MATMUL_PRECISIONS, Arithmetic
from tests.support.operator_counts import counted

X = torch.ones(2, 4)


def present() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = present()
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.benchmark = before[1]


@pytest.mark.parametrize("process", [("highest", False), ("medium", True)])
@pytest.mark.parametrize("wanted", [DEFAULT, Arithmetic(None, "high", True), Arithmetic("float16", "medium")])
def test_settings_are_exactly_those_and_restored(process: tuple[str, bool], wanted: Arithmetic) -> None:
    torch.set_float32_matmul_precision(process[0])
    torch.backends.cudnn.benchmark = process[1]
    with torch_settings(wanted):
        assert present() == (wanted.matmul_precision, wanted.cudnn_benchmark)
        assert not torch.is_autocast_enabled("cuda")  # that is of a call
    assert present() == process
    with pytest.raises(ZeroDivisionError), torch_settings(wanted):
        _ = 1 / 0
    assert present() == process


@pytest.mark.parametrize("process", MATMUL_PRECISIONS)
@pytest.mark.parametrize("wanted", MATMUL_PRECISIONS)
def test_at_least_a_precision_never_takes_away(process: str, wanted: str) -> None:
    order = {"highest": 0, "high": 1, "medium": 2}
    with matmul_precision(process):
        with matmul_precision_of_at_least(wanted):
            assert torch.get_float32_matmul_precision() == max(process, wanted, key=order.__getitem__)
        assert torch.get_float32_matmul_precision() == process
        with pytest.raises(ZeroDivisionError), matmul_precision_of_at_least(wanted):
            _ = 1 / 0
        assert torch.get_float32_matmul_precision() == process


@pytest.mark.parametrize("value", ["tf32", "ieee"])
def test_a_process_that_chose_by_the_newer_setting(value: str) -> None:
    """`fp32_precision` of the GPU's backend, after which torch may refuse to name the older setting."""
    backend = torch.backends.cuda.matmul
    before = backend.fp32_precision
    try:
        backend.fp32_precision = value
        assert present_matmul_precision() == {"tf32": "high", "ieee": "highest"}[value]
        with matmul_precision("medium"):
            assert torch.get_float32_matmul_precision() == "medium"
        assert backend.fp32_precision == value
        with matmul_precision_of_at_least("high"):
            assert backend.fp32_precision == "tf32"
        assert backend.fp32_precision == value
    finally:
        torch.set_float32_matmul_precision("highest")
        backend.fp32_precision = before


def test_each_weight_is_cast_once_a_call() -> None:
    """Two uses of a weight and a bias: one cast each, one of the input and none of the half result, at every call."""
    linear = nn.Linear(4, 4).eval()
    call = under_autocast(lambda x: linear(linear(x)), "cpu", "bfloat16")
    with torch.no_grad():
        for _ in range(2):
            with counted() as counts:
                assert call(X).dtype is torch.bfloat16
            assert counts["_to_copy"] == 3


def test_a_region_is_left_after_an_error() -> None:
    def fails() -> None:
        assert torch.is_autocast_enabled("cpu")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        under_autocast(fails, "cpu", torch.bfloat16)()
    assert not torch.is_autocast_enabled("cpu")


def test_no_precision_leaves_the_function_as_it_is() -> None:
    assert under_autocast(present, "cuda", None) is present
