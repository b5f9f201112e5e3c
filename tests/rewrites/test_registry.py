"""Graph rewrites and hoisting of constants: rewritten operators by hand, and equal outputs."""

import pytest
import torch
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.execution.fx_module import build_module
from costmodel.ir import Graph, parse
from costmodel.ir.op_table import Role
from costmodel.ir.operators import lookup
from costmodel.rewrites.fold_batch_norm import fold_batch_norm
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import REWRITES, apply_rewrites

FOLDABLE = """graph g {
  input %x: float32[1,2,4,4]
  param %w: float32[3,2,1,1]
  param %gamma: float32[3]
  param %beta: float32[3]
  param %mean: float32[3]
  param %var: float32[3]
  %0 = convolution(input=%x, weight=%w, bias=None, GEOMETRY, transposed=False, groups=1) : float32[1,3,4,4]
  %1 = native_batch_norm(STATE, training=False, momentum=0.1, eps=0.0) : float32[1,3,4,4], float32[0], float32[0]
  %2 = relu(self=%1) : float32[1,3,4,4]
  return %2
}""".replace("GEOMETRY", "stride=[1, 1], padding=[0, 0], dilation=[1, 1], output_padding=[0, 0]").replace(
    "STATE", "input=%0, weight=%gamma, bias=%beta, running_mean=%mean, running_var=%var"
)


def bases(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops]


def computing(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops if lookup(op).role is not Role.VIEW]


def run(graph: Graph, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """First output of a graph, after its hoisted part."""
    hoisted = hoist_constants(graph)
    given = build_module(hoisted.preparation)(*[values[value.name] for value in hoisted.preparation.values])
    new = [value.name for value in hoisted.main.values if value.role == "param" and value.name not in values]
    known = values | dict(zip(new, given, strict=True))
    return build_module(hoisted.main)(*[known[value.name] for value in hoisted.main.values])[0]


def test_folding_by_hand():
    # one weight of 2 a channel, gamma 3, var 4: weight' = 2 * 3/2 = 3; bias' = beta - mean * 3/2 = 1 - 2 * 1.5 = -2
    hoisted = hoist_constants(fold_batch_norm(parse(FOLDABLE)))
    values = {
        "w": torch.full((3, 2, 1, 1), 2.0),
        "gamma": torch.full((3,), 3.0),
        "beta": torch.ones(3),
        "mean": torch.full((3,), 2.0),
        "var": torch.full((3,), 4.0),
    }
    weight, bias = build_module(hoisted.preparation)(*[values[v.name] for v in hoisted.preparation.values])
    assert bases(hoisted.main) == ["convolution", "relu"]
    torch.testing.assert_close(weight, torch.full((3, 2, 1, 1), 3.0))
    torch.testing.assert_close(bias, torch.full((3,), -2.0))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("return %2", "return %2, %0"), "the convolution's own result is returned"),
        (("%2 = relu(self=%1)", "%2 = add.Tensor(self=%1, other=%0)"), "something else reads the convolution"),
        (("training=False", "training=True"), "statistics of the batch are used"),
        (("transposed=False", "transposed=True"), "a transposed convolution has its channels elsewhere"),
        (("return %2", "return %2, %1#1"), "the saved mean is returned"),
        (("param %mean", "input %mean"), "the mean is known at run time only"),
    ],
)
def test_what_is_not_folded(change, why):
    graph = parse(FOLDABLE.replace(*change))
    assert fold_batch_norm(graph) == graph, why


class Net(nn.Module):
    """Two convolutions with batch norm, one of them in half a residual, and a table that is made on every call."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1, bias=bias), nn.Conv2d(8, 8, 1, groups=2)
        self.norm_a, self.norm_b = nn.BatchNorm2d(8), nn.BatchNorm2d(8, affine=False)
        self.fc = nn.Linear(8, 5)
        for norm in (self.norm_a, self.norm_b):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        y = torch.relu(self.norm_a(self.a(x)))
        z = torch.relu(self.norm_b(self.b(y)) + y)
        table = torch.zeros(8)
        table[2:4] = 1.0
        return self.fc(z.mean((2, 3)) * table)


@pytest.mark.parametrize(
    "rewrites", [(), ("fold_batch_norm",), ("channels_last",), ("fold_batch_norm", "channels_last")]
)
@pytest.mark.parametrize("bias", [False, True])
def test_rewrites_compute_the_same(rewrites, bias):
    torch.manual_seed(0)
    net, x = Net(bias).eval(), torch.randn(2, 3, 6, 6)
    exact = capture_exactly(net, (x,), "net")
    values = dict(net.named_parameters()) | dict(net.named_buffers()) | dict(exact.constants) | {"x": x}
    with torch.no_grad():
        torch.testing.assert_close(run(apply_rewrites(exact.graph, rewrites), values), net(x), rtol=1e-5, atol=1e-5)


def test_both_batch_norms_are_folded_and_the_table_is_made_once():
    exact = capture_exactly(Net().eval(), (torch.empty(2, 3, 6, 6),), "net")
    main = hoist_constants(apply_rewrites(exact.graph, tuple(REWRITES))).main
    assert computing(main) == ["clone", *["convolution", "relu", "convolution", "add", "relu", "mean", "mul", "addmm"]]
    weights = [value.type for value in main.values if len(value.type.shape) == 4 and value.role == "param"]
    assert [kind.layout for kind in weights] == ["nhwc", "nchw"]  # a pointwise weight lies the same either way


def test_half_precision_is_folded_in_single():
    half = parse(FOLDABLE.replace("float32", "float16"))
    prepared = hoist_constants(fold_batch_norm(half)).preparation
    assert {op.type.dtype for op in prepared.ops if op.base in ("mul", "rsqrt", "sub", "add")} == {"float32"}
    assert [prepared.type_of(ref).dtype for ref in prepared.outputs] == ["float16", "float16"]


def test_random_numbers_are_not_frozen():
    graph = parse(
        "graph g {\n  input %x: float32[2]\n  %0 = rand(size=[2]) : float32[2]\n"
        "  %1 = add.Tensor(self=%x, other=%0) : float32[2]\n  return %1\n}"
    )
    hoisted = hoist_constants(graph)
    assert bases(hoisted.main) == ["rand", "add"]
    assert not hoisted.preparation.ops
