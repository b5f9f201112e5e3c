"""Signatures of inputs: equal where one program runs both, and different elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from costmodel.capture.inputs import Arguments
from costmodel.execution.signature import Signature, signature_of

X = torch.ones(2, 3)


def signature(*args: Any, **kwargs: Any) -> Signature | None:
    return signature_of(Arguments(args, kwargs))


def test_positional_tensors_alone_have_no_nesting():
    spec, (first, second) = signature(X, X.to(torch.int64)) or (0, (0, 0))
    assert spec is None
    assert first == ((2, 3), (3, 1), torch.float32, torch.device("cpu"))
    assert second == ((2, 3), (3, 1), torch.int64, torch.device("cpu"))


@pytest.mark.parametrize(
    "other",
    [torch.ones(3, 2), torch.ones(3, 2).t(), X.double(), X.to("meta")],
    ids=("shape", "strides", "dtype", "device"),
)
def test_shape_strides_dtype_and_device_tell_tensors_apart(other: torch.Tensor):
    assert signature(X) == signature(torch.zeros(2, 3))
    assert signature(X) != signature(other)
    assert signature(x=X) == signature(x=torch.zeros(2, 3))
    assert signature(x=X) != signature(x=other)
    assert signature([X]) != signature([other])


def test_nesting_names_and_other_leaves_tell_calls_apart():
    calls = [
        signature(X),
        signature(x=X),
        signature(y=X),
        signature([X]),
        signature((X,)),
        signature(X, X),
        signature(X, 1),
        signature(X, 2),
        signature(X, True),
        signature(X, 1.0),
        signature(X, None),
        signature(X, scale=1),
    ]
    assert len(set(calls)) == len(calls)
    assert signature(X, flag=True) == signature(torch.zeros(2, 3), flag=True)


def test_a_value_without_a_hash_has_no_signature():
    assert signature(X, bytearray(b"x")) is None
