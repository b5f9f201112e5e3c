"""Odd functions and random modules through the backend: never an error where backend="eager" works, and its results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves

from tests.support.random_modules import Program, made, programs
from tests.support.uncompiled import CPU, explained, uncompiled

X = torch.arange(24.0).reshape(2, 3, 4) / 7
Tensors = tuple[torch.Tensor, ...]


def _written(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.sum() + x


def _written_view(x: torch.Tensor) -> torch.Tensor:
    x[0].add_(1)
    return torch.relu(x) + 1


def _two_views(x: torch.Tensor) -> Tensors:
    y = torch.relu(x) + 1
    return y, y.view(-1)


def _with_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return torch.relu(x) + 1


ODD: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "input": (lambda x: x, (X,)),
    "view of input": (lambda x: x.view(-1)[2:], (X,)),
    "input among results": (lambda x: (torch.relu(x) + 1, x), (X,)),
    "input by way of dropout": (lambda x: nn.functional.dropout(x, 0.5, False), (X,)),
    "input by way of contiguous": (lambda x: (x.contiguous(), torch.relu(x) + 1), (X,)),
    "two views of one result": (_two_views, (X,)),
    "parts of one result": (lambda x: (torch.relu(x) + 1).chunk(2, 2), (X,)),
    "a result twice": (lambda x: (torch.relu(x) + 1,) * 2, (X,)),
    "None and numbers": (lambda x: (torch.relu(x) + 1, None, 3, "a"), (X,)),
    "a dict": (lambda x: {"a": torch.relu(x) + 1, "b": [x * 2]}, (X,)),
    "nothing": (lambda x: None, (X,)),
    "no tensor": (lambda x: x.shape[0] + 1, (X,)),
    "no input": (lambda: torch.ones(3) + torch.arange(3), ()),
    "the same input twice": (lambda x, y: torch.relu(x) + y * 2, (X, X)),
    "overlapping inputs": (lambda x, y: torch.relu(x) + y * 2, (X[0], X[0].view(3, 4))),
    "a written input": (_written, (X,)),
    "a written view of an input": (_written_view, (X,)),
    "an empty input": (lambda x: torch.relu(x) + 1, (X[:0],)),
    "an empty result": (lambda x: torch.relu(x[:, :0]) + 1, (X,)),
    "a scalar tensor": (lambda x: torch.relu(x) + 1, (torch.tensor(2.0),)),
    "a number": (lambda x, n: torch.relu(x) * n, (X, 3)),
    "a float": (lambda x, n: torch.relu(x) * n, (X, 0.5)),
    "a flag": (lambda x, n: torch.relu(x) if n else x - 1, (X, True)),
    "complex numbers": (lambda x: torch.fft.rfft(x).abs() + 1, (X,)),
    "complex input": (lambda x: (x * 2 + 1).real, (torch.complex(X, X),)),
    "integers": (lambda x: (x + 1) * 2, (torch.arange(6),)),
    "truth values": (lambda x, y: (x & y) | ~x, (X > 1, X > 2)),
    "bytes": (lambda x: (x >> 1) + 1, (torch.arange(6, dtype=torch.uint8),)),
    "double precision": (lambda x: torch.relu(x) + 1, (X.double(),)),
    "half precision": (lambda x: torch.relu(x) + 1, (X.half(),)),
    "expanded input": (lambda x: torch.relu(x) + 1, (X[:, :1].expand(2, 3, 4),)),
    "transposed input": (lambda x: torch.relu(x) + 1, (X.transpose(0, 2),)),
    "NaN and infinity": (lambda x: torch.relu(x / x) + 1, (torch.tensor([0.0, 1.0, float("inf")]),)),
    "a size that depends on values": (lambda x: torch.relu(x[x > 1]) + 1, (X,)),
    "a branch on values": (lambda x: torch.relu(x) + 1 if x.sum() > 0 else x - 1, (X,)),
    "a value": (lambda x: torch.relu(x) * x.max().item(), (X,)),
    "a sparse tensor": (lambda x, y: torch.mm(x, y) + 1, (torch.eye(3).to_sparse(), X[0])),
    "attention": (lambda q: nn.functional.scaled_dot_product_attention(q, q + 1, q) * 2, (X[None],)),
    "sorted, with places": (lambda x: torch.sort(torch.relu(x) + 1), (X,)),
    "an explicit gradient mode": (_with_gradients, (X,)),
}


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...], backend: str) -> tuple[Any, Any, Any]:
    """Results of two calls by a backend, the arguments afterwards, and the compiled function."""
    torch._dynamo.reset()
    options = CPU if backend == "costmodel" else None
    compiled = torch.compile(function, backend=backend, options=options)
    given = copy.deepcopy(arguments)
    with torch.no_grad():
        found = copy.deepcopy(compiled(*given)), compiled(*given)
    return found, given, compiled


def assert_same(got: Any, expected: Any) -> None:
    leaves, structure = tree_flatten(got)
    wanted, as_wanted = tree_flatten(expected)
    assert structure == as_wanted
    for one, other in zip(leaves, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert one == other


@pytest.mark.filterwarnings("ignore:.*omplex")
@pytest.mark.parametrize("name", ODD)
def test_results_are_those_of_eager_execution(name):
    function, arguments = ODD[name]
    with uncompiled():
        expected, written, _ = outcome(function, arguments, "eager")
        got, given_to, compiled = outcome(function, arguments, "costmodel")
        assert_same(got, expected)
        assert_same(given_to, written)
        assert all(str(graph) for graph in explained(compiled).graphs)


@pytest.mark.parametrize("name", [name for name in ODD if "input" in name or "views" in name or "parts" in name])
def test_results_share_memory_as_in_eager_execution(name):
    """Each pair of tensors among inputs and results shares memory by both backends, or by neither."""
    function, arguments = ODD[name]

    def sharing(backend):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend, options=CPU if backend == "costmodel" else None)
        given = copy.deepcopy(arguments)
        with torch.no_grad():
            compiled(*given)
            found = [leaf for leaf in tree_leaves((given, compiled(*given))) if isinstance(leaf, torch.Tensor)]
        addresses = [tensor.untyped_storage().data_ptr() for tensor in found]
        return [one == other for one in addresses for other in addresses]

    with uncompiled():
        assert sharing("costmodel") == sharing("eager")


def repeated(value: Any, times: int) -> Any:
    """An argument with a first dimension some times as long, if it is a tensor with one."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.dim():
        return copy.deepcopy(value)
    return torch.cat([value] * times)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("cast", [False, True])
def test_results_in_several_sizes_are_those_of_eager_execution(name, cast):
    """More sizes than have plans, in turn; also under autocast; and the same errors."""
    function, arguments = ODD[name]

    def outcomes(backend):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend, options=CPU if backend == "costmodel" else None)
        found = []
        for times in (1, 2, 3, 4, 5, 6, 2, 1, 6):
            given = tuple(repeated(value, times) for value in arguments)
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=cast):
                try:
                    found.append((compiled(*given), given))
                except Exception as error:  # noqa: BLE001 - whatever eager execution raises
                    found.append((type(error).__name__, given))
        return found

    with uncompiled():
        assert_same(outcomes("costmodel"), outcomes("eager"))


def check(program: Program) -> None:
    module, inputs = made(program)
    expected, written, _ = outcome(module, inputs, "eager")
    got, given_to, _ = outcome(module, inputs, "costmodel")
    assert_same(got, expected)
    assert_same(given_to, written)


@pytest.mark.slow
@hypothesis.settings(max_examples=25, suppress_health_check=list(hypothesis.HealthCheck))
@given(program=programs, choice=st.sampled_from(["plan", "eager"]))
def test_random_modules(program, choice):
    with uncompiled(choice):
        check(program)
