"""Orders in memory of what eager execution leaves strided, against the strides that PyTorch gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from collectors.processes.run_graph import make_tensor
from costmodel.capture.trace import capture
from costmodel.execution.fx_module import build_module
from costmodel.ir import Graph
from costmodel.kernels.eager_dispatch import eager_kernels, kernels_of
from costmodel.kernels.eager_layout import inverse, memory_orders, permuted


class Tokens(nn.Module):
    """A patch embedding whose tokens stay transposed, and a residual behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2).relu()
        tokens = tokens + self.linear(self.norm(tokens))
        return tokens * 2


class Pixels(nn.Module):
    """The same with pixels whose channels come last, and windows of them that change places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.permute(0, 2, 3, 1) + 1.0
        pixels = pixels + self.norm(pixels)
        return (pixels.swapaxes(1, 2) * 3.0).mean(-1)


class Attended(nn.Module):
    """Attention, and a linear layer that reads the heads of each token beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.linear(x.reshape(2, 12, 16)).reshape(2, 12, 2, 8).transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        result: Tensor = self.linear(seen.transpose(1, 2).reshape(2, 12, 16))
        return result


def captured(module: nn.Module, channels: int = 6) -> Graph:
    return capture(module.eval(), (torch.empty(2, channels, 3, 4, device="meta"),))


@pytest.mark.parametrize("module", [Tokens(), Pixels()], ids=["tokens", "pixels"])
def test_orders_are_those_of_pytorch(module: nn.Module):
    graph = captured(module)
    orders, checked = memory_orders(graph), 0
    for kernel in kernels_of(graph):
        arguments = [make_tensor(value.type, "cpu") for value in kernel.graph.values]
        result = build_module(kernel.graph)(*arguments)[0]
        if (order := orders.get(kernel.ops[0])) is not None:
            assert permuted(result.stride(), order) == torch.empty(permuted(result.shape, order)).stride()
            checked += 1
        else:
            assert result.is_contiguous()
    assert checked >= 3


def test_what_lies_turned_is_read_through_a_view():
    kernel = next(one for one in eager_kernels(captured(Tokens())) if one.kind == "layer_norm")
    assert str(kernel.graph) == (
        "graph _ {\n"
        "  input %a0: float32[2,6,12]\n"
        "  param %p0: float32[6]\n"
        "  param %p1: float32[6]\n"
        "  %0 = permute(self=%a0, dims=[0, 2, 1]) : float32[2,12,6] strided\n"
        "  %1 = native_layer_norm(input=%0, normalized_shape=[6], weight=%p0, bias=%p1, eps=1e-05)"
        " : float32[2,12,6], float32[2,12,1], float32[2,12,1]\n"
        "  return %1\n"
        "}"
    )


def test_a_view_that_shows_memory_as_it_is_takes_no_part():
    linear = eager_kernels(captured(Attended(), 16))[-1]
    assert linear.kind == "linear"
    assert linear.graph.values[0].type.shape == (2, 12, 2, 8)  # the heads of a token beside each other
    assert [op.base for op in linear.graph.ops] == ["view", "view", "t", "addmm"]


def test_a_kernel_may_read_what_lies_turned_both_ways():
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            tokens = x.flatten(2).transpose(1, 2).relu()
            return torch.cat([tokens, tokens.transpose(1, 2).reshape(2, 12, 6)], 1)

    kernel = eager_kernels(captured(Both()))[-1]
    arguments = [make_tensor(value.type, "cpu") for value in kernel.graph.values]
    tokens = arguments[0].transpose(1, 2)
    expected = torch.cat([tokens, arguments[0].reshape(2, 12, 6)], 1)
    assert [value.type.shape for value in kernel.graph.values] == [(2, 6, 12)]
    torch.testing.assert_close(build_module(kernel.graph)(*arguments)[0], expected)


def test_an_order_and_its_inverse():
    assert permuted((2, 3, 5, 7), (0, 3, 1, 2)) == (2, 7, 3, 5)
    assert permuted((2, 7, 3, 5), inverse((0, 3, 1, 2))) == (2, 3, 5, 7)


def test_what_nothing_tells_has_no_order():
    graph = captured(Attended(), 16)
    attention = next(op for op in graph.ops if op.base == "scaled_dot_product_attention")
    assert memory_orders(graph).get(attention.name) == (0, 2, 1, 3)
    unread = Graph("", graph.values, graph.ops[: graph.ops.index(attention) + 1], graph.outputs[:0])
    assert attention.name not in memory_orders(unread)
