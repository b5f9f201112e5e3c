"""Batch norms as a multiplication and an addition: rewritten operators and numbers by hand, and equal outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.executable import capture_exactly
from costmodel.ir import parse
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from costmodel.rewrites.scale_batch_norm import find_batch_norms, scale_batch_norm
from tests.execution.test_planned_module import plan_for
from tests.rewrites.test_registry import bases, run

NORM = """graph g {
  input %x: float16[1,3,4,4]
  param %gamma: float16[3]
  param %beta: float16[3]
  param %mean: float16[3]
  param %var: float16[3]
  %1 = native_batch_norm(input=%x, weight=%gamma, bias=%beta, running_mean=%mean, running_var=%var, training=False, \
momentum=0.1, eps=0.0) : float16[1,3,4,4], float16[0], float16[0]
  %2 = relu(self=%1) : float16[1,3,4,4]
  return %2
}"""


class Before(nn.Module):
    """Batch norms before convolutions, one without parameters of its own, over images and over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.BatchNorm2d(3), nn.BatchNorm2d(8, affine=False), nn.BatchNorm1d(8)
        self.conv = nn.Conv2d(3, 8, 3)
        for norm in (self.a, self.b, self.c):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.conv(torch.relu(self.a(x)))))).mean((2, 3)))


def test_the_operators_by_hand():
    main = hoist_constants(scale_batch_norm(parse(NORM))).main
    assert [str(op).partition(" : ")[0].split("(")[0] for op in main.ops] == [
        *("%1.scaled.10 = view", "%1.scaled.11 = view"),  # of the hoisted scale and shift; views launch no kernel
        *("%1.scaled.12 = _to_copy", "%1.scaled.13 = mul.Tensor", "%1.scaled.14 = add.Tensor"),
        *("%1 = _to_copy", "%2 = relu"),
    ]
    assert {op.name: op.type.dtype for op in main.ops}["%1.scaled.14".lstrip("%")] == "float32"


def test_the_numbers_by_hand():
    """Gamma 3, var 4: s = 3/2; beta 1, mean 2: shift = 1 - 3 = -2; of 2: 1."""
    values = {
        "x": torch.full((1, 3, 4, 4), 2.0).half(),
        "gamma": torch.full((3,), 3.0).half(),
        "beta": torch.ones(3).half(),
        "mean": torch.full((3,), 2.0).half(),
        "var": torch.full((3,), 4.0).half(),
    }
    found = run(scale_batch_norm(parse(NORM)), values)
    assert found.dtype == torch.float16
    assert torch.equal(found, torch.ones(1, 3, 4, 4).half())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("training=False", "training=True"), "statistics of the batch are used"),
        (("return %2", "return %2, %1#1"), "the saved mean is returned"),
        (("param %mean", "input %mean"), "the mean is known at run time only"),
        (("running_mean=%mean", "running_mean=None"), "there is no running mean"),
    ],
)
def test_what_stays_a_batch_norm(change: tuple[str, str], why: str):
    graph = parse(NORM.replace(*change))
    assert find_batch_norms(graph) == (), why
    assert scale_batch_norm(graph) == graph, why


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("before", [(), ("fold_batch_norm",), ("fold_batch_norm", "channels_last")])
def test_outputs_are_equal(before: tuple[str, ...], dtype: torch.dtype):
    torch.manual_seed(0)
    net, x = Before().eval().to(dtype), torch.randn(2, 3, 6, 6, dtype=dtype)
    exact = capture_exactly(net, (x,), "net")
    graph = apply_rewrites(exact.graph, (*before, "scale_batch_norm"))
    assert "native_batch_norm" not in bases(graph)
    values = dict(net.named_parameters()) | dict(net.named_buffers()) | {"x": x}
    exactness = 1e-5 if dtype == torch.float32 else 1e-12
    with torch.no_grad():
        torch.testing.assert_close(run(graph, values), net(x), rtol=exactness, atol=exactness)


def test_one_of_several_is_chosen():
    graph = capture_exactly(Before().eval(), (torch.empty(2, 3, 6, 6),), "net").graph
    names = find_batch_norms(graph)
    assert len(names) == 3
    assert bases(apply_rewrites(graph, [f"scale_batch_norm:{names[1]}"])).count("native_batch_norm") == 2


def test_a_plan_with_scaled_batch_norms_takes_new_statistics():
    torch.manual_seed(0)
    net, x = Before().eval(), torch.randn(2, 3, 6, 6)
    fast = costmodel.apply(net, plan_for(net, (x,), rewrites=("fold_batch_norm", "scale_batch_norm")), (x,))
    assert fast.replaced == ()
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(fast(x), net(x), rtol=1e-5, atol=1e-5)
            net.a.running_var.mul_(3.0)
