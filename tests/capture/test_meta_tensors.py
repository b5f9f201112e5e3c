"""Tensors without data that stand for real ones, and the stack and counts of calls."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from costmodel.capture.call_counts import CallCounts
from costmodel.capture.meta_tensors import (
    acts_on_operators,
    batch_norm_results,
    has_meta,
    is_channels_last,
    meta_like,
    named_parts,
    recurrent_results,
    tensors_of,
)
from costmodel.capture.module_stack import ModuleStack
from tests.support.wrapped_tensors import Scaled

META = torch.ones(2, 3, device="meta")


class Named(torch.Tensor):
    """A tensor with attributes, whose operators are torch's."""


def test_a_twin_has_class_dtype_and_strides_and_no_data():
    turned = torch.zeros(3, 4, dtype=torch.float16).t()
    made = meta_like(turned)
    assert made.is_meta
    assert (made.shape, made.stride(), made.dtype) == ((4, 3), (1, 4), torch.float16)
    named = torch.ones(2).as_subclass(Named)
    named.label = "a"
    twin = meta_like(named)
    assert type(twin) is Named
    assert twin.label == "a"
    assert type(meta_like(nn.Parameter(torch.ones(2)))) is torch.Tensor


def test_a_tensor_that_wraps_others_wraps_their_twins():
    weight = Scaled.of(torch.ones(4, 4))
    twin = meta_like(weight)
    assert isinstance(twin, Scaled)
    assert twin.held.is_meta
    assert twin.held.dtype is torch.int8
    names = [name for name, _ in named_parts("fc.weight", weight)]
    assert names
    assert all(name.startswith("fc.weight.") for name in names)
    assert [name for name, _ in named_parts("fc.bias", torch.ones(2))] == ["fc.bias"]


def test_classes_that_replace_operators_are_told_apart():
    assert acts_on_operators(Scaled)
    assert not any(map(acts_on_operators, (torch.Tensor, nn.Parameter, Named)))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), False),
        ((torch.ones(1), 3, "meta"), False),
        ((META,), True),
        (([torch.ones(1), (META,)],), True),
        ((torch.device("meta"),), True),
        ((torch.device("cpu"),), False),
    ],
)
def test_a_call_touches_the_meta_device(args: tuple[Any, ...], expected: bool):
    assert has_meta(args) is expected


def test_tensors_are_found_at_any_depth_in_order():
    one, other = torch.ones(1), torch.ones(2)
    assert [len(found) for found in tensors_of({"b": [other], "a": (3, {"c": one})})] == [2, 1]
    assert tensors_of(None) == []


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(2, 3, 4, 4), False),
        (torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), True),
        (torch.ones(2, 3, 4).transpose(1, 2), False),
        (torch.ones(2, 3, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d), False),
    ],
)
def test_channels_last_is_an_order_of_four_dimensions(tensor: torch.Tensor, expected: bool):
    assert is_channels_last(tensor) is expected


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_results_have_the_shapes_of_torchs(kind: type[nn.RNNBase], bidirectional: bool):
    layer, source = kind(5, 7, num_layers=2, bidirectional=bidirectional), torch.ones(3, 2, 5)
    state = torch.zeros(2 * (1 + bidirectional), 2, 7)
    given = (state, state) if kind is nn.LSTM else state
    result, states = layer(source, given)
    expected = [result, *(states if kind is nn.LSTM else (states,))]
    args = (source, given, layer._flat_weights, True, 2, 0.0, False, bidirectional, False)
    assert [tuple(found.shape) for found in recurrent_results(args)] == [tuple(one.shape) for one in expected]


def test_the_stack_names_the_running_module():
    root = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    stack, other = ModuleStack(root), nn.GELU()
    assert (stack.path, stack.module, stack.root) == ("", root, root)
    stack.enter(root[0])
    stack.enter(root[0][0])
    assert (stack.path, stack.module, stack.root) == ("0.0", root[0][0], root)
    stack.enter(other)
    assert (stack.path, stack.module) == ("0.0", other)  # no submodule: that of its caller
    stack.leave(root[0])  # the others ended by an exception that was caught
    assert (stack.path, stack.module) == ("", root)


def test_calls_that_compute_nothing_are_counted_by_what_they_return():
    counts = CallCounts()

    def dispatching(*views: bool, result: Any = None) -> Any:
        for is_view in views:
            counts.dispatched(is_view)
        return result

    assert counts.calling(dispatching, True, result=META) is META
    counts.calling(dispatching, True, True)
    counts.calling(dispatching, result=META)
    counts.calling(dispatching, result=3)
    counts.calling(dispatching, True, False, result=META)
    counts.count("writes", 4)
    counts.count("writes")
    found = counts.calls
    assert (found.views, found.idle, found.queries, found.writes, found.modules) == (2, 1, 1, 5, 0)


def _image(shape: tuple[int, ...], dtype: torch.dtype, order: str) -> torch.Tensor:
    """A tensor without data: dense, in channels_last, transposed, broadcast, or a part of a larger one."""
    if order == "transposed":
        return torch.empty(shape[::-1], dtype=dtype, device="meta").permute(*reversed(range(len(shape))))
    if order == "broadcast":
        return torch.empty((1, *shape[1:]), dtype=dtype, device="meta").expand(shape)
    if order == "part":
        return torch.empty((shape[0], 2 * shape[1], *shape[2:]), dtype=dtype, device="meta")[:, : shape[1]]
    made = torch.empty(shape, dtype=dtype, device="meta")
    return made.to(memory_format=torch.channels_last) if order == "channels_last" else made


def test_results_of_batch_norm_are_those_of_torchs_decomposition():
    """In shape, strides and dtype, wherever they are not left to torch."""
    shapes = [
        shape[:rank] for shape in itertools.product((1, 2), (1, 3), (1, 4), (1, 5), (2,)) for rank in (2, 3, 4, 5)
    ]
    ours = 0
    for shape, order in itertools.product(sorted(set(shapes)), ("dense", "channels_last", "transposed", "broadcast")):
        if order == "channels_last" and len(shape) != 4:
            continue
        for dtype, affine in itertools.product((torch.float32, torch.bfloat16), (True, False)):
            image = _image(shape, dtype, order)
            weight, bias, mean, variance = (torch.empty(shape[1], device="meta") for _ in range(4))
            call = (image, *((weight, bias) if affine else (None, None)), mean, variance, False, 0.1, 1e-5)
            if (found := batch_norm_results(call)) is None:
                continue
            ours += 1
            expected = torch.ops.aten.native_batch_norm.default(*call)
            for one, other in zip(found, expected, strict=True):
                assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    assert ours > 50


@pytest.mark.parametrize("order", ["transposed", "part"])
def test_batch_norm_of_other_memory_orders_is_left_to_torch(order: str):
    parts = [torch.empty(3, device="meta") for _ in range(4)]
    assert batch_norm_results((_image((2, 3, 4, 5), torch.float32, order), *parts, False, 0.1, 1e-5)) is None


@pytest.mark.parametrize(
    ("shape", "channels", "training"), [((2, 3, 4, 5), 3, True), ((2, 3, 4, 5), 2, False), ((3,), 3, False)]
)
def test_batch_norm_in_training_or_of_other_sizes_is_left_to_torch(
    shape: tuple[int, ...], channels: int, training: bool
):
    parts = [torch.empty(channels, device="meta") for _ in range(4)]
    assert batch_norm_results((torch.empty(shape, device="meta"), *parts, training, 0.1, 1e-5)) is None
    assert batch_norm_results((torch.empty(shape), *parts, False, 0.1, 1e-5)) is None  # a tensor with data
