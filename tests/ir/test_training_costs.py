"""FLOPs, traffic and launches of operators of a training step, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.step_recording import record_step
from costmodel.capture.trace import lower
from costmodel.ir import Graph, Op, Ref, TensorType, Value, operators
from costmodel.ir.training_costs import CHUNK, MOST_BLOCKS, foreach_blocks, foreach_launches
from tests.support.attention import Attention


def step_of(module: nn.Module, *shape: int) -> Graph:
    """Recorded step of a module, for an input that needs a gradient because a layer before it trains."""
    return lower(
        record_step(nn.Sequential(nn.Conv2d(shape[1], shape[1], 1), module), (torch.empty(shape),)).graph, "net"
    )


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 16, 3, padding=1),
        nn.Conv2d(8, 16, 3, stride=2, groups=4),
        nn.Conv2d(8, 8, 5, groups=8),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
    ],
)
def test_a_convolutions_gradients_take_twice_its_flops(layer: nn.Module):
    graph = step_of(layer, 2, 8, 12, 12)
    forward = [op for op in graph.ops if op.base == "convolution" and op.module == "1"]
    backward = [op for op in graph.ops if op.base == "convolution_backward" and op.module == "1"]
    assert operators.flops(graph, backward[0]) == 2 * operators.flops(graph, forward[0])


def test_gradients_of_one_convolution_by_hand():
    graph = step_of(nn.Conv2d(8, 16, 3, padding=1), 2, 8, 12, 12)
    (op,) = (op for op in graph.ops if op.base == "convolution_backward" and op.module == "1")
    # 2 x images x pixels x output channels x (input channels x filter) for each of two gradients
    assert operators.flops(graph, op) == 2 * (2 * 2 * 144 * 16 * (8 * 9))
    (first,) = (op for op in graph.ops if op.base == "convolution_backward" and op.module == "0")
    assert first.arg("output_mask") == (False, True, True)
    assert operators.flops(graph, first) == 2 * 2 * 144 * 8 * 8  # by weight alone


def test_attentions_gradients_take_five_matmuls_for_two():
    graph = attention_step()
    forward, backward = (
        next(op for op in graph.ops if op.base == f"_scaled_dot_product_flash_attention{end}")
        for end in ("", "_backward")
    )
    # query x key and weights x value: 2 x images x heads x queries x keys x head size each
    assert operators.flops(graph, forward) == 2 * (2 * 3 * 2 * 10 * 10 * 8)
    assert operators.flops(graph, backward) == 5 * (2 * 3 * 2 * 10 * 10 * 8)


def attention_step() -> Graph:
    """Step of attention of 2 heads of 8 on 3 images of 10 tokens in float16."""

    return lower(record_step(Attention(), (torch.empty(3, 10, 16),), amp="float16").graph, "net")


def foreach(sizes: list[int], lists: int) -> tuple[Graph, Op]:
    """A multi-tensor operator on so many lists of tensors of these sizes."""
    kinds = [TensorType("float32", (size,)) for size in sizes]
    values = [Value(f"v{one}_{place}", kind) for one in range(lists) for place, kind in enumerate(kinds)]
    names = ("self", "tensor1", "tensor2")[:lists]
    args = tuple((name, tuple(Ref(f"v{one}_{place}") for place in range(len(sizes)))) for one, name in enumerate(names))
    op = Op("0", "_foreach_addcmul.Scalar", args, tuple(kinds))
    return Graph("", tuple(values), (op,), ()), op


@pytest.mark.parametrize(
    ("sizes", "lists", "launches"),
    [
        ([1], 1, 1),
        ([MOST_BLOCKS * CHUNK], 1, 1),
        ([MOST_BLOCKS * CHUNK + 1], 1, 2),
        ([100] * 110, 1, 1),  # 110 tensors in a launch of one list
        ([100] * 111, 1, 2),
        ([100] * 64, 2, 1),  # 64 of two
        ([100] * 65, 2, 2),
        ([100] * 161, 3, 4),  # 48 of three: 48 + 48 + 48 + 17
        ([CHUNK + 1] * 161, 1, 2),  # 322 chunks, and 110 tensors have 220
        ([0, 0], 1, 0),
    ],
)
def test_launches_of_a_multi_tensor_kernel(sizes: list[int], lists: int, launches: int):
    assert foreach_launches(*foreach(sizes, lists)) == launches


def test_blocks_of_a_multi_tensor_kernel_are_chunks_of_its_tensors():
    assert foreach_blocks(*foreach([5, 2 * CHUNK + 7, 0, 3], 1)) == [[5, CHUNK, CHUNK, 7, 3]]
    assert foreach_blocks(*foreach([100] * 65, 2)) == [[100] * 64, [100]]
