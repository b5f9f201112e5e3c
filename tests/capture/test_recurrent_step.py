"""Recurrent layers in a training step: one operator forward, one backward, and gradients for what is before them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.training_step import capture_training_step
from costmodel.ir import Graph
from costmodel.ir.operators import lookup

STEPS, BATCH, WIDTH, HIDDEN = 5, 2, 4, 3


class Recognises(nn.Module):
    """A convolution, a recurrent layer over its columns, and a classifier, as in text recognition."""

    def __init__(self, kind: type[nn.RNNBase], **options: bool | int) -> None:
        super().__init__()
        self.first = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.layer = kind(WIDTH, HIDDEN, batch_first=True, **options)
        self.head = nn.Linear(HIDDEN * (2 if options.get("bidirectional") else 1), 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.first(x).transpose(1, 2))[0].mean(1))


def bases(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops]


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (nn.LSTM, {}, "lstm"),
        (nn.LSTM, {"bidirectional": True, "num_layers": 2}, "lstm"),
        (nn.GRU, {}, "gru"),
        (nn.RNN, {}, "rnn_tanh"),
        (nn.RNN, {"nonlinearity": "relu"}, "rnn_relu"),
    ],
)
def test_every_parameter_that_autograd_reaches_gets_a_gradient(kind: type[nn.RNNBase], options: dict, name: str):
    module, x = Recognises(kind, **options), torch.randn(BATCH, WIDTH, STEPS)
    nn.functional.cross_entropy(module(x), torch.zeros(BATCH, dtype=torch.long)).backward()
    reached = [parameter.shape for parameter in module.parameters() if parameter.grad is not None]
    step = capture_training_step(module, (x,))
    assert sorted(kind.shape for kind in step.parameters) == sorted(map(tuple, reached))
    assert bases(step.eager).count(name) == bases(step.eager).count(f"{name}_backward") == 1
    assert "convolution_backward" in bases(step.eager)
    assert step.failure == ""
    assert step.compiled is not None
    assert (bases(step.compiled.forward).count(name), bases(step.compiled.backward).count(f"{name}_backward")) == (1, 1)


def test_arithmetic_and_launches_of_the_backward_pass_by_hand():
    graph = capture_training_step(Recognises(nn.LSTM), (torch.randn(BATCH, WIDTH, STEPS),)).eager
    (op,) = (op for op in graph.ops if op.base == "lstm_backward")
    row = lookup(op)
    # 2 sequences of 5 steps, 4 gates of 3 x (4 + 3) weights; a multiply-add is 2, and each product has two gradients.
    assert row.flops(graph, op) == 2 * 2 * (2 * 5) * (4 * 3 * (4 + 3)) == 3360
    assert row.launches(graph, op) == 2 * 5  # a matmul and a kernel for the gates at each step


def test_frozen_layers_before_it_get_none():
    module = Recognises(nn.GRU)
    module.first.requires_grad_(False)
    step = capture_training_step(module, (torch.randn(BATCH, WIDTH, STEPS),))
    assert "convolution_backward" not in bases(step.eager)
    assert bases(step.eager).count("gru_backward") == 1


class Steps(nn.Module):
    """Steps of a cell over the columns of a linear layer's result."""

    def __init__(self, kind: type[nn.RNNCellBase], bias: bool) -> None:
        super().__init__()
        self.first, self.cell = nn.Linear(WIDTH, WIDTH), kind(WIDTH, HIDDEN, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for column in self.first(x).unbind(1):
            state = self.cell(column, state)
        return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "forward", "backward"),
    [
        (nn.LSTMCell, "_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward_impl"),
        (nn.GRUCell, "_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward"),
    ],
)
def test_a_step_of_a_cell_is_two_matmuls_and_a_kernel(
    kind: type[nn.RNNCellBase], forward: str, backward: str, bias: bool
):
    module, x = Steps(kind, bias), torch.randn(BATCH, STEPS, WIDTH)
    module(x).sum().backward()
    step = capture_training_step(module, (x,))
    assert sorted(kind.shape for kind in step.parameters) == sorted(tuple(p.shape) for p in module.parameters())
    assert bases(step.eager).count(forward) == bases(step.eager).count(backward) == STEPS
    assert not {"sigmoid", "tanh"} & set(bases(step.eager))
    assert step.compiled is not None, step.failure
    assert bases(step.compiled.backward).count(backward) == STEPS
