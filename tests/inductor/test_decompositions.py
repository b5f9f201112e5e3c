"""Inductor's rewrites: what they make, and that it computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.execution.fx_module import build_module
from costmodel.inductor import decompositions
from costmodel.inductor.compilation import Compilation, Target
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.kernels.extractor import Extractor

IMAGE = (2, 6, 8, 8)


class Cat(nn.Module):
    """Joins as many copies of its input, each multiplied, as it is told."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * (index + 1) for index in range(self.count)], 1)


def decompose(graph: Graph) -> Graph:
    """Decompose a graph for a GPU."""
    return decompositions.decompose(Compilation(graph, Target(on_cpu=False, multiprocessors=132))).graph


def graph_of(module: nn.Module, *shapes: tuple[int, ...]) -> Graph:
    return capture(module.eval(), [torch.empty(shape, device="meta") for shape in shapes])


def bases(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv2d(6, 4, 3, padding=1), IMAGE),
        (nn.Conv2d(6, 4, 3, groups=2), IMAGE),
        (nn.ConvTranspose2d(6, 4, 2, stride=2), IMAGE),
        (nn.Conv1d(6, 4, 3), (2, 6, 8)),
        (nn.Sequential(nn.Linear(8, 5), nn.ReLU()), (3, 8)),
        (nn.LayerNorm(8), (2, 3, 8)),
        (nn.LayerNorm((6, 8, 8)), IMAGE),
        (nn.LayerNorm(8, elementwise_affine=False), (2, 3, 8)),
        (nn.LayerNorm(8, bias=False), (2, 3, 8)),
        (nn.GroupNorm(3, 6), IMAGE),
        (nn.GroupNorm(2, 6, affine=False), IMAGE),
        (nn.InstanceNorm2d(6), IMAGE),
        (nn.InstanceNorm2d(6, affine=True), IMAGE),
        (nn.InstanceNorm3d(3, affine=True), (1, 3, 4, 5, 6)),
        (nn.BatchNorm2d(6, track_running_stats=False), IMAGE),
        (nn.RMSNorm(8), (2, 3, 8)),
        (nn.RMSNorm((3, 8), elementwise_affine=False), (2, 3, 8)),
        (nn.Softmax(-1), (2, 3, 8)),
        (nn.Softmax(1), (2, 3, 8)),
        (nn.AdaptiveAvgPool2d(1), IMAGE),
        (nn.AdaptiveAvgPool2d(4), IMAGE),
        (Cat(3), IMAGE),
    ],
    ids=lambda value: str(value).partition("\n")[0] if isinstance(value, nn.Module) else "",
)
def test_values_stay_the_same(module: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    graph = graph_of(module, shape)
    before = Extractor(graph).extract(op.name for op in graph.ops)  # names that Python can hold
    after = decompose(before).verify()
    arguments = [torch.randn(value.type.shape) for value in before.values]
    (expected,) = build_module(before)(*arguments)
    (got,) = build_module(after)(*arguments)
    torch.testing.assert_close(got, expected)


class TestConvolution:
    def test_bias_is_added_after(self) -> None:
        rewritten = decompose(graph_of(nn.Conv2d(6, 4, 3), IMAGE))
        assert bases(rewritten) == ["convolution", "view", "add"]
        assert rewritten.ops[0].arg("bias") is None
        assert rewritten.ops[1].type.shape == (4, 1, 1)
        assert rewritten.ops[-1].name == "0"

    def test_without_bias_it_stays(self) -> None:
        graph = graph_of(nn.Conv2d(6, 4, 3, bias=False), IMAGE)
        assert decompose(graph) == graph


class TestAddmm:
    def test_is_split_where_its_users_are_pointwise(self) -> None:
        assert bases(decompose(graph_of(nn.Sequential(nn.Linear(8, 5), nn.GELU()), (3, 8)))) == [
            "t",
            "mm",
            "add",
            "gelu",
        ]

    def test_is_split_if_views_stand_between(self) -> None:
        rewritten = decompose(graph_of(nn.Sequential(nn.Linear(8, 5), nn.GELU()), (2, 3, 8)))
        assert bases(rewritten) == ["view", "t", "mm", "add", "view", "gelu"]

    @pytest.mark.parametrize("after", [nn.Identity(), nn.Linear(5, 5), nn.Softmax(-1)], ids=["output", "mm", "softmax"])
    def test_stays_before_anything_else(self, after: nn.Module) -> None:
        graph = graph_of(nn.Sequential(nn.Linear(8, 5), after), (3, 8))
        assert bases(decompose(graph))[1] == "addmm"

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_stays_in_half_precision(self, dtype: torch.dtype) -> None:
        module = nn.Sequential(nn.Linear(8, 5), nn.GELU()).to(dtype).eval()
        graph = capture(module, [torch.empty((3, 8), dtype=dtype, device="meta")])
        assert bases(decompose(graph)) == ["t", "addmm", "gelu"]

    def test_stays_if_it_is_returned_too(self) -> None:
        graph = graph_of(nn.Sequential(nn.Linear(8, 5), nn.ReLU()), (3, 8))
        both = Graph("", graph.values, graph.ops, (*graph.outputs, Ref("1")))
        assert bases(decompose(both)) == ["t", "addmm", "relu"]

    def test_stays_if_it_is_scaled(self) -> None:
        kind = TensorType("float32", (4, 4))
        values = tuple(Value(name, kind) for name in "abc")
        args = (("self", Ref("a")), ("mat1", Ref("b")), ("mat2", Ref("c")), ("alpha", 2))
        ops = (Op("0", "addmm", args, (kind,)), Op("1", "relu", (("self", Ref("0")),), (kind,)))
        graph = Graph("", values, ops, (Ref("1"),)).verify()
        assert decompose(graph) == graph


def test_up_to_eight_tensors_are_joined_where_they_are_used() -> None:
    assert "cat" in bases(decompose(graph_of(Cat(8), IMAGE)))
    rewritten = bases(decompose(graph_of(Cat(9), IMAGE)))
    assert rewritten.count("clone") == 9
    assert rewritten[-1] == "concat_in_place"


def test_nothing_is_left_undone() -> None:
    """A second pass changes only what the first has made."""
    module = nn.Sequential(nn.Conv2d(6, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(1))
    once = decompose(graph_of(module, IMAGE))
    assert decompose(once) == once
