"""Values and sizes that a pass reads: a capture on meta tensors takes those of a real run, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel.capture.read_values import ReadValues, read_values
from costmodel.capture.trace import capture
from costmodel.errors import CaptureError

X = torch.tensor([[3.0, -1.0, 2.0], [3.0, -1.0, 2.0], [-5.0, 0.5, 1.0], [1.0, 1.0, -2.0]])


class Calls(nn.Module):
    """Multiplies what a function makes of the input."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x * 1.0) * 2


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.nonzero(), id="nonzero"),
        pytest.param(lambda x: x.masked_select(x > 0), id="masked-select"),
        pytest.param(lambda x: x[x > 0], id="mask"),
        pytest.param(lambda x: x[x[:, 0] > 0, 1:], id="mask-and-slice"),
        pytest.param(torch.unique, id="unique"),
        pytest.param(lambda x: torch.unique(x, dim=0), id="unique-rows"),
        pytest.param(lambda x: torch.unique_consecutive(x[:, 0]), id="unique-consecutive"),
        pytest.param(lambda x: x.repeat_interleave((x[:, 0] > 0).long() + 1, 0), id="repeat-interleave"),
        pytest.param(lambda x: x[: int(x[0, 0].item())], id="item"),
        pytest.param(lambda x: x[: int(x[0, 0])], id="int"),
        pytest.param(lambda x: x if x.sum() > 0 else x[:1], id="branch"),
        pytest.param(lambda x: x.new_ones(int(sum(x[0].tolist()))), id="tolist"),
        pytest.param(lambda x: x.new_ones(int(x.numpy().max())), id="numpy"),
        pytest.param(lambda x: x.new_ones(len(x.cpu()[x.cpu() > 0])), id="cpu"),
        pytest.param(lambda x: x[:2] if torch.equal(x[0], x[1]) else x, id="equal"),
    ],
)
def test_shapes_are_those_of_the_real_run(function: Callable[[torch.Tensor], torch.Tensor]):
    module = Calls(function).eval()
    values = read_values(module, (X,))
    graph = capture(module, (X.to("meta"),), partial=True, values=values)
    assert not graph.breaks
    assert graph.type_of(graph.outputs[0]).shape == tuple(module(X).shape)


def test_neither_module_nor_inputs_are_changed():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            x += 1
            return x * self.seen.item()

    module, x = Counts(), torch.ones(3)
    state = torch.random.get_rng_state()
    assert len(read_values(module, (x,))) == 1
    assert module.seen == 0
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_pass_that_reads_something_else_is_noticed():
    values = ReadValues([("aten::_local_scalar_dense", 3.0)])
    with pytest.raises(LookupError, match="no aten::nonzero here"):
        values.take("aten::nonzero")
    assert values.take("aten::_local_scalar_dense") == 3.0
    with pytest.raises(LookupError):
        values.take("aten::_local_scalar_dense")
    assert values.rewound().take("aten::_local_scalar_dense") == 3.0


def test_a_real_run_that_fails_says_why_in_one_line():
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("x is\nodd")

    with pytest.raises(CaptureError, match=r"Calls reads values of tensors, and a run to get them fails: ValueError"):
        read_values(Calls(fails), (X,))
