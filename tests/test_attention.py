"""Multi-head attention: when it is one operator, and that both ways of running it compute what the module does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel import ops
from costmodel.attention import NATIVE, fast_path, unrolled
from costmodel.capture import capture
from costmodel.emit import build_module
from costmodel.exact import capture_exactly
from costmodel.forward import unrolled_attention
from costmodel.program import compiled_program, eager_program

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


@pytest.mark.parametrize("expand", [fast_path, unrolled])
def test_both_ways_compute_what_the_module_does(expand):
    module, x = Attend().eval(), tokens()
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
    kinds = [kernel.anchor.base for kernel in eager_program(graph).kernels]
    assert kinds == ["addmm", "scaled_dot_product_attention", "addmm"]
    compiled = [kernel.anchor.base for kernel in compiled_program(graph).kernels]
    assert [kind for kind in compiled if kind != "clone"] == ["mm", "scaled_dot_product_attention", "addmm"]
    assert compiled.count("clone") == 5  # the sequence first; query, key and value with the bias; heads together


def test_arithmetic_by_hand():
    graph = capture(Attend().eval(), (tokens(),))
    projections = 2 * BATCH * LENGTH * WIDTH * (3 * WIDTH + WIDTH)
    attention = 2 * 2 * BATCH * LENGTH * LENGTH * WIDTH
    assert ops.flops(graph, graph.ops[0]) == projections + attention
    assert sum(ops.flops(fast_path(graph), op) for op in fast_path(graph).ops) == projections + attention
