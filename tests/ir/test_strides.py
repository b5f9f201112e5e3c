"""Strides followed through views are torch's own; runs and hops by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.capture.trace import capture
from costmodel.ir import Ref, TensorType, parse
from costmodel.ir.strides import Walk, dense, shared_run, strides_of, walk_of

SIZES = (1, 2, 3, 4, 6)


@dataclass(frozen=True)
class Step:
    """A view by name, and numbers that it takes its arguments from."""

    name: str
    one: int
    other: int


def reshaped(x: torch.Tensor, step: Step) -> torch.Tensor:
    """Two dimensions as one, or one as two, where that can be."""
    one, sizes = step.one % x.dim(), list(x.shape)
    if step.other % 2 and one + 1 < x.dim():
        return x.reshape(*sizes[:one], sizes[one] * sizes[one + 1], *sizes[one + 2 :])
    return x if sizes[one] % 2 else x.reshape(*sizes[:one], 2, sizes[one] // 2, *sizes[one + 1 :])


SEEN: Mapping[str, Callable[[torch.Tensor, Step], torch.Tensor]] = {
    "transpose": lambda x, step: x.transpose(step.one % x.dim(), step.other % x.dim()),
    "permute": lambda x, step: x.permute(sorted(range(x.dim()), key=lambda axis: (axis * 7 + step.one) % 5)),
    "select": lambda x, step: x.select(step.one % x.dim(), 0),
    "slice": lambda x, step: x[(slice(None),) * (step.one % x.dim()) + (slice(0, None, 1 + step.other % 2),)],
    "reshape": reshaped,
    "unsqueeze": lambda x, step: x.unsqueeze(step.one % x.dim()),
    "expand": lambda x, _: x.unsqueeze(0).expand(3, *x.shape),
    "chunk": lambda x, step: x.chunk(2, step.one % x.dim())[0],
}
STEPS = st.builds(Step, st.sampled_from(sorted(SEEN)), st.integers(0, 11), st.integers(0, 11))


def seen(x: torch.Tensor, step: Step) -> torch.Tensor:
    """The view; a scalar has none."""
    return SEEN[step.name](x, step) if x.dim() else x


class Views(torch.nn.Module):
    """Some views, the last of which is computed on."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = seen(x, step)
        return torch.relu(x)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4), st.lists(STEPS, max_size=6))
def test_strides_are_those_of_torch(shape: list[int], steps: list[Step]):
    x = torch.empty(shape, device="meta")
    graph = capture(Views(steps), (x,), "views")
    relu = next(op for op in graph.ops if op.base == "relu")
    found = strides_of(graph, relu.refs()[0])
    for step in steps:
        x = seen(x, step)
    assert found is not None
    assert [step for step, size in zip(found, x.shape, strict=True) if size > 1] == [
        step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1
    ]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_named_orders_are_those_of_torch(layout: str):
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    x = torch.empty(2, 3, 4, 5).contiguous(memory_format=memory_format)
    assert dense(TensorType("float32", (2, 3, 4, 5), layout)) == x.stride()


def test_an_order_that_no_name_tells_is_unknown():
    graph = parse("graph _ {\n  input %a: float32[4,6] strided\n  %0 = relu(self=%a) : float32[4,6]\n  return %0\n}")
    assert strides_of(graph, Ref("a")) is None
    assert walk_of(graph, graph.ops[0]) == Walk(24, 1, mixed=False, unknown=True)


def test_runs_by_hand():
    shape = (2, 3, 4, 5)
    plain, last = (60, 20, 5, 1), (60, 1, 15, 3)
    assert shared_run(shape, plain, plain) == math.prod(shape)
    assert shared_run(shape, plain, last) == 1
    assert shared_run(shape, plain, (120, 20, 5, 1)) == 60  # every second image
    assert shared_run((2, 1, 4, 5), (20, 20, 5, 1), (20, 1, 5, 1)) == 40  # one channel lies in either order


@pytest.mark.parametrize(
    ("shapes", "op", "walk"),
    [  # an addition hops over 128 channels, a concatenation over the five of the operand that lies otherwise
        (
            ("32,128,28,28", "32,128,28,28"),
            "add.Tensor(self=%a, other=%b) : float32[32,128,28,28]",
            Walk(1, 128, True, False),
        ),
        (("2,3,4,4", "2,5,4,4"), "cat(tensors=[%a, %b], dim=1) : float32[2,8,4,4]", Walk(1, 5, True, False)),
    ],
)
def test_operands_of_two_orders(shapes: tuple[str, str], op: str, walk: Walk):
    plain, last = shapes
    graph = parse(
        f"graph _ {{\n  input %a: float32[{plain}]\n  input %b: float32[{last}] nhwc\n  %0 = {op}\n  return %0\n}}"
    )
    assert walk_of(graph, graph.ops[0]) == walk


@pytest.mark.parametrize(
    ("result", "walk"),
    [
        ("", Walk(1, 3, mixed=True, unknown=False)),  # in the result's order; %b hops over its three channels
        (" nhwc", Walk(1, 20, mixed=True, unknown=False)),  # %a hops over its 4 x 5 pixels
        (" strided", Walk(1, 3, mixed=True, unknown=True)),  # in the order of %a, the first that is known
    ],
)
def test_a_walk_is_in_the_order_of_the_result_or_of_the_first_known_operand(result: str, walk: Walk):
    graph = parse(
        "graph _ {\n  input %a: float32[2,3,4,5]\n  input %b: float32[2,3,4,5] nhwc\n"
        f"  %0 = add.Tensor(self=%a, other=%b) : float32[2,3,4,5]{result}\n  return %0\n}}"
    )
    assert walk_of(graph, graph.ops[0]) == walk


def test_an_empty_result_of_a_reshape():
    """A detector that finds nothing reshapes tensors without elements."""
    graph = parse(
        "graph _ {\n  input %a0: float32[0,4]\n  %0 = view(self=%a0, size=[0, 2, 2]) : float32[0,2,2]\n"
        "  %1 = relu(self=%0) : float32[0,2,2]\n  return %1\n}"
    )
    assert strides_of(graph, Ref("0")) == dense(TensorType("float32", (0, 2, 2))) == (4, 2, 1)
