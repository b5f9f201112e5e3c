"""Multi-head attention: when it is one operator, and that both ways of running it compute what the module does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.capture.intercepts import unrolled_attention
from costmodel.capture.trace import capture
from costmodel.execution.fx_module import build_module
from costmodel.ir import op_table, operators, parse
from costmodel.kernels.attention import NATIVE, fast_path, unrolled
from costmodel.timeline.issue_trace import compiled_trace, eager_trace

BATCH, LENGTH, WIDTH, HEADS = 2, 5, 32, 4


class Attend(nn.Module):
    """Self-attention, as a vision transformer asks for it."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(WIDTH, HEADS, **{"batch_first": True} | options)

    def forward(self, x, **options):
        return self.heads(x, x, x, **{"need_weights": False} | options)[0]


def tokens() -> torch.Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH)


def test_it_is_one_operator_in_inference():
    (op,) = capture(Attend().eval(), (tokens(),)).ops
    assert op.base == NATIVE
    assert op.module == "heads"


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"batch_first": False}, {}),
        ({"bias": False}, {}),
        ({"add_zero_attn": True}, {}),
        ({"add_bias_kv": True}, {}),
        ({}, {"need_weights": True}),
        ({}, {"key_padding_mask": torch.zeros(BATCH, LENGTH, dtype=torch.bool)}),
    ],
)
def test_what_has_no_fast_path_is_unrolled(options, call):
    graph = capture(Attend(**options).eval(), {"x": tokens(), **call})
    assert NATIVE not in {op.base for op in graph.ops}


def test_training_and_those_who_want_to_see_it_get_it_unrolled():
    assert NATIVE not in {op.base for op in capture(Attend(), (tokens(),), training=True).ops}
    with unrolled_attention():
        assert NATIVE not in {op.base for op in capture(Attend().eval(), (tokens(),)).ops}


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize("expand", [fast_path, unrolled])
def test_both_ways_compute_what_the_module_does(expand, batch):
    module, x = Attend().eval(), tokens()[:batch]
    graph = expand(capture(module, (x,))).verify()
    state = dict(module.named_parameters())
    with torch.no_grad():
        (made,) = build_module(graph)(*[x if value.role == "input" else state[value.name] for value in graph.values])
        torch.testing.assert_close(made, module(x))


def test_a_graph_that_is_to_be_run_has_ordinary_operators():
    module, x = Attend().eval(), tokens()
    exact = capture_exactly(module, (x,), "m")
    assert NATIVE not in {op.base for op in exact.graph.ops}
    state = dict(module.named_parameters())
    values = [x if value.role == "input" else state[value.name] for value in exact.graph.values]
    with torch.no_grad():
        torch.testing.assert_close(build_module(exact.graph)(*values)[0], module(x))


def test_what_the_host_issues():
    graph = capture(Attend().eval(), (tokens(),))
    kinds = [kernel.anchor.base for kernel in eager_trace(graph).kernels]
    assert kinds == ["addmm", "scaled_dot_product_attention", "addmm"]
    compiled = compiled_trace(graph).kernels
    called = [kernel.anchor.base for kernel in compiled if kernel.kind != "copy"]
    assert called == ["mm", "scaled_dot_product_attention", "addmm"]
    assert len(compiled) - len(called) == 5  # the sequence first; query, key and value with the bias; heads together


def test_arithmetic_by_hand():
    graph = capture(Attend().eval(), (tokens(),))
    projections = 2 * BATCH * LENGTH * WIDTH * (3 * WIDTH + WIDTH)
    attention = 2 * 2 * BATCH * LENGTH * LENGTH * WIDTH
    assert operators.flops(graph, graph.ops[0]) == projections + attention
    assert sum(operators.flops(fast_path(graph), op) for op in fast_path(graph).ops) == projections + attention


class Scaled(nn.Module):
    """Scaled dot-product attention of a tensor with itself."""

    def forward(self, x, mask=None):
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def bases(graph) -> list[str]:
    return [op.base for op in graph.ops if operators.lookup(op).role is not op_table.Role.VIEW]


@pytest.mark.parametrize(
    ("shape", "dtype", "fused"),
    [
        ((2, 3, 5, 8), torch.float32, True),
        ((2, 3, 5, 6), torch.float32, False),  # rows of 24 bytes
        ((2, 3, 5, 6), torch.float16, True),  # flash attention fills up a head's rows
        ((2, 3, 5, 258), torch.float16, False),  # but none this long, and these begin at multiples of 4 bytes
        ((2, 3, 5, 264), torch.bfloat16, True),
        ((2, 3, 5, 8), torch.float64, False),
        ((2, 4, 3, 5, 8), torch.float32, False),  # windows beside the heads
        ((3, 5, 8), torch.float32, False),
    ],
)
def test_what_has_a_fused_kernel_is_one_operator(shape, dtype, fused):
    found = bases(capture(Scaled(), (torch.empty(shape, dtype=dtype, device="meta"),)))
    products = ["mul", "mul", "bmm", "_safe_softmax", "bmm"]
    computing = [base for base in found if base not in ("clone", "_to_copy")]
    assert computing == (["scaled_dot_product_attention"] if fused else products)


def test_a_guarded_softmax_is_six_operators_in_eager_execution():
    graph = capture(Scaled(), (torch.empty((2, 4, 3, 5, 8), device="meta"),))
    softmax = ["_softmax", "scalar_tensor", "eq", "all", "scalar_tensor", "where"]
    assert [kernel.anchor.base for kernel in eager_trace(graph).kernels] == ["mul", "mul", "bmm", *softmax, "bmm"]
    assert parse(str(fast_path(graph))) == fast_path(graph)


def test_a_guarded_softmax_gives_nothing_to_rows_that_see_nothing():
    x, mask = torch.randn((2, 4, 3, 5, 8)), torch.zeros((5, 5))
    mask[2] = -torch.inf
    graph = fast_path(capture(Scaled(), (x, mask))).verify()
    (made,) = build_module(graph)(x, mask)
    torch.testing.assert_close(made, Scaled()(x, mask))
    assert not made[..., 2, :].any()


def test_compiled_attention_copies_query_key_and_value_from_where_they_lie_packed():
    """Each of the three kernels writes a third of the packed projection, which none of them writes whole."""
    kernels = compiled_trace(capture(Attend(batch_first=False).eval(), (tokens().transpose(0, 1),))).kernels
    copies = [kernel.graph for kernel in kernels if kernel.kind == "copy" and "select" in str(kernel.graph)]
    assert [[graph.type_of(ref).numel for ref in graph.outputs] for graph in copies] == [[LENGTH * BATCH * WIDTH]] * 3
    assert all(operators.lookup(graph.ops[-1]).role is not op_table.Role.VIEW for graph in copies)
