"""Runs on meta tensors that are not repeated, and those that must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from costmodel.capture.meta_runs import MetaRuns


def meta(*shape: int, **options: Any) -> torch.Tensor:
    return torch.empty(shape, device="meta", **options)


class Counted:
    """A function that counts its calls and adds an operator to a list for each."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.runs = MetaRuns()
        self.calls = 0

    def __call__(self, *args: Any) -> tuple[Any, list[str]]:
        ops: list[str] = []

        def run() -> Any:
            self.calls += 1
            ops.append("op")
            return self.function(*args)

        return self.runs.result(0, args, ops, run), ops


def test_the_same_shapes_run_once_and_give_new_tensors():
    add = Counted(lambda x: (x.permute(1, 0) + 1, None))
    (first, _), _ = add(meta(2, 3))
    (second, nothing), ops = add(meta(2, 3))
    assert add.calls == 1
    assert ops == ["op"]
    assert nothing is None
    assert (second.shape, second.stride(), second.dtype) == (first.shape, first.stride(), first.dtype)
    assert second.is_meta
    assert second.untyped_storage()._cdata != first.untyped_storage()._cdata


@pytest.mark.parametrize(
    "other",
    [
        (meta(3, 2), 1),
        (meta(3, 2).t(), 1),
        (meta(2, 3, dtype=torch.float16), 1),
        (meta(3, 3)[1:], 1),
        (meta(2, 3, requires_grad=True), 1),
        (meta(2, 3), 2),
        (meta(2, 3), True),
        (meta(2, 3), 1.0),
    ],
    ids=["shape", "strides", "dtype", "offset", "gradient", "value", "bool", "float"],
)
def test_other_arguments_run_anew(other: tuple[Any, ...]):
    function = Counted(lambda x, _: x.detach() + 1)
    function(meta(2, 3), 1)
    function(*other)
    assert function.calls == 2


def unsqueezed(x: torch.Tensor) -> torch.Tensor:
    x.unsqueeze_(0)
    return x + 1


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (torch.relu, lambda: torch.ones(2, 3)),
        (unsqueezed, lambda: meta(2, 3)),
        (torch.relu_, lambda: meta(2, 3)),
        (lambda x: x.view(6), lambda: meta(2, 3)),
        (lambda x: (x + 1).split(1), lambda: meta(2, 3)),
        (lambda x: x * 2, lambda: meta(2, 3, requires_grad=True)),
        (lambda x: x.set_(meta(2, 3).untyped_storage(), 0, (2, 3), (3, 1)) + 1, lambda: meta(2, 3)),
    ],
    ids=["values", "shape of argument", "in place", "view", "shared memory", "gradient", "memory of argument"],
)
def test_runs_that_are_always_repeated(function: Callable[..., Any], make: Callable[[], torch.Tensor]):
    counted = Counted(function)
    counted(make())
    counted(make())
    assert counted.calls == 2


def test_a_result_that_was_reshaped_since_is_given_as_it_was():
    relu = Counted(torch.relu)
    first, _ = relu(meta(2, 3))
    first.unsqueeze_(0)
    second, _ = relu(meta(2, 3))
    second.unsqueeze_(0)
    third, _ = relu(meta(2, 3))
    assert relu.calls == 1
    assert third.shape == (2, 3)
