"""Eager kernels, and the small graphs that kernels are described by."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.kernels.eager_dispatch import choose_libraries, eager_kernels
from costmodel.kernels.extractor import Extractor
from costmodel.kernels.kernel import Kernel, grouping

T = TensorType("float32", (2, 6))
QUERY = torch.empty(1, 2, 4, 8, device="meta")
HALF = TensorType("float32", (2, 3), "strided")


def chain(*ops: Op, outputs: tuple[Ref, ...] | None = None) -> Graph:
    values = (Value("x", T), Value("w", T, "param"))
    return Graph("g", values, ops, outputs or (Ref(ops[-1].name),)).verify()


def op(name: str, base: str, *sources: str, kind: TensorType = T) -> Op:
    return Op(name, base, tuple(zip(("self", "other"), map(Ref, sources), strict=False)), (kind,), "somewhere")


class TestEagerKernels:
    def test_one_for_each_operator_that_is_no_view(self) -> None:
        graph = capture(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()).eval(), (torch.empty(1, 3, 8, 8, device="meta"),)
        )
        assert [kernel.kind for kernel in eager_kernels(graph)] == ["conv2d", "relu"]
        assert {kernel.backend for kernel in eager_kernels(graph)} == {"aten"}

    def test_are_described_in_canonical_names(self) -> None:
        (kernel,) = eager_kernels(chain(op("sum", "add.Tensor", "x", "w")))
        assert str(kernel.graph) == (
            "graph _ {\n"
            "  input %a0: float32[2,6]\n"
            "  param %p0: float32[2,6]\n"
            "  %0 = add.Tensor(self=%a0, other=%p0) : float32[2,6]\n"
            "  return %0\n"
            "}"
        )
        assert kernel.ops == ("sum",)

    def test_the_same_work_in_two_places_is_one_kernel(self) -> None:
        first, second = eager_kernels(chain(op("a", "relu", "x"), op("b", "relu", "a")))
        assert first == second
        assert first.ops != second.ops

    def test_a_cast_of_a_weight_is_one_of_any_tensor(self) -> None:
        """As autocast makes it at each call: it reads the same bytes, whoever made them. A product is none."""
        half = TensorType("float16", (2, 6))
        weight, computed = eager_kernels(
            chain(op("a", "_to_copy", "w", kind=half), op("b", "_to_copy", "x", kind=half))
        )
        assert weight == computed
        assert [value.role for value in weight.graph.values] == ["input"]
        (product,) = eager_kernels(chain(op("c", "mul.Tensor", "x", "w")))
        assert [value.role for value in product.graph.values] == ["input", "param"]

    def test_what_reads_weights_under_autocast_is_the_kernel_of_a_model_in_that_precision(self) -> None:
        """Its time was measured there: a convolution, and a matmul that reads its weight through a view."""
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 5)).eval()
        x = torch.empty(1, 3, 8, 8, device="meta")
        cast = [kernel for kernel in eager_kernels(capture(net, (x,), amp="float16")) if kernel.kind != "to"]
        assert cast == list(eager_kernels(capture(net.half(), (x.half(),))))

    def test_a_cast_of_an_input_or_of_a_result_is_no_parameter(self) -> None:
        half = TensorType("float16", (2, 6))
        graph = chain(op("a", "_to_copy", "x", kind=half), op("b", "add.Tensor", "a", "w"), op("c", "neg", "b"))
        roles = [[value.role for value in kernel.graph.values] for kernel in eager_kernels(graph)]
        assert roles == [["input"], ["input", "param"], ["input"]]

    def test_attention_is_one_kernel_whether_its_mask_is_computed_or_held(self) -> None:
        class Biased(nn.Module):
            def __init__(self, held: bool) -> None:
                super().__init__()
                self.held, self.bias = held, nn.Parameter(torch.zeros(4, 4))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                mask = self.bias if self.held else self.bias * 2
                return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask[None])

        found = [
            next(kernel for kernel in eager_kernels(capture(Biased(held).eval(), (QUERY,))) if kernel.kind != "mul")
            for held in (True, False)
        ]
        assert found[0] == found[1]
        assert str(found[0].graph).count("input") == 2

    @pytest.mark.parametrize(
        ("dtype", "shape", "base"),
        [
            (torch.float32, (2, 3, 8, 8), "cudnn_batch_norm"),
            (torch.float16, (2, 3, 8, 8), "native_batch_norm"),
            (torch.float32, (2, 3), "native_batch_norm"),
            (torch.float32, (70000, 3, 1), "native_batch_norm"),
        ],
    )
    def test_batch_norm_goes_where_aten_sends_it(self, dtype: torch.dtype, shape: tuple[int, ...], base: str) -> None:
        layer = (nn.BatchNorm2d(3) if len(shape) == 4 else nn.BatchNorm1d(3)).eval().to(dtype)
        graph = choose_libraries(capture(layer, (torch.empty(shape, dtype=dtype, device="meta"),)))
        assert [op.base for op in graph.ops] == [base]

    def test_a_batch_norm_that_only_scales_is_none_of_cudnns(self) -> None:
        """Standardised weights are one: of a view of them, by a gain without a shift."""

        class Standardised(nn.Module):
            def forward(self, weight: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
                return torch.nn.functional.batch_norm(weight, None, None, gain, training=True, momentum=0.0)

        inputs = torch.empty(1, 6, 8, device="meta"), torch.empty(6, device="meta")
        graph = choose_libraries(capture(Standardised().eval(), inputs))
        assert [op.base for op in graph.ops] == ["native_batch_norm"]


class TestExtractor:
    graph = chain(
        op("a", "relu", "x"),
        op("v", "slice.Tensor", "a", kind=HALF),
        op("b", "neg", "v", kind=HALF),
        op("c", "exp", "b", kind=HALF),
        op("d", "add.Tensor", "c", "b", kind=HALF),
        outputs=(Ref("d"),),
    )

    def test_views_between_come_along(self) -> None:
        text = str(Extractor(self.graph).extract(["b"]))
        assert "input %a0: float32[2,6]" in text
        assert "%0 = slice.Tensor(self=%a0)" in text
        assert "%1 = neg(self=%0)" in text

    def test_returns_what_others_read(self) -> None:
        assert Extractor(self.graph).extract(["b", "c"]).outputs == (Ref("1"), Ref("2"))  # d reads both
        assert Extractor(self.graph).extract(["b", "c", "d"]).outputs == (Ref("3"),)

    def test_returns_what_the_model_returns(self) -> None:
        both = Graph("g", self.graph.values, self.graph.ops, (Ref("d"), Ref("c")))
        assert Extractor(both).extract(["c", "d"]).outputs == (Ref("0"), Ref("1"))

    def test_results_keep_their_number(self) -> None:
        split = Op("s", "split.Tensor", (("self", Ref("x")),), (HALF, HALF))
        last = Op("r", "relu", (("self", Ref("s", 1)),), (HALF,))
        text = str(Extractor(chain(split, last)).extract(["r"]))
        assert "relu(self=%0#1)" in text

    def test_a_part_of_what_is_computed_is_copied(self) -> None:
        """`a` is computed where `v` is read and written nowhere: half of it reaches memory, by a copy of its own."""
        group = Extractor(self.graph).extract(["a", "v"], written={"v"})
        assert [str(one) for one in group.ops[1:]] == [
            "%1 = slice.Tensor(self=%0) : float32[2,3] strided",
            "%2 = mul.Tensor(self=%1, other=1.0) : float32[2,3]",
        ]
        assert group.outputs == (Ref("2"),)
        assert Kernel("triton", group, ("v",)).kind == "copy"
        assert Kernel("aten", group, ("v",)).kind == "mul"  # eager execution multiplies where it is asked to

    @pytest.mark.parametrize(("base", "layout"), [("slice.Tensor", "nhwc"), ("select.int", "nchw")])
    def test_parts_by_channels_stay_channels_last(self, base: str, layout: str) -> None:
        whole, part = TensorType("float32", (2, 6, 4, 4), "nhwc"), TensorType("float32", (2, 3, 4, 4), "strided")
        values = (Value("x", whole),)
        graph = Graph("g", values, (op("a", "relu", "x", kind=whole), op("v", base, "a", kind=part)), (Ref("v"),))
        assert Extractor(graph).extract(["a", "v"], written={"v"}).ops[-1].type.layout == layout

    def test_a_view_of_all_of_it_is_none(self) -> None:
        turned = chain(op("a", "relu", "x"), op("v", "t", "a", kind=TensorType("float32", (6, 2), "strided")))
        assert [one.base for one in Extractor(turned).extract(["a", "v"], written={"v"}).ops] == ["relu", "t"]

    def test_a_part_of_what_was_there_is_none(self) -> None:
        assert [one.base for one in Extractor(self.graph).extract(["v"], written={"v"}).ops] == ["slice"]

    def test_order_of_the_names_does_not_matter(self) -> None:
        extractor = Extractor(self.graph)
        assert extractor.extract(["d", "b", "c"]) == extractor.extract(["b", "c", "d"])


def test_the_anchor_is_what_costs_most() -> None:
    graph = chain(op("a", "relu", "x"), op("m", "mean.dim", "a"), op("b", "neg", "m"), op("v", "view", "b"))
    assert Kernel("triton", graph, ()).anchor.name == "m"
    pointwise = chain(op("a", "relu", "x"), op("b", "neg", "a"), op("v", "view", "b"))
    assert Kernel("triton", pointwise, ()).anchor.name == "b"
    assert Kernel("triton", pointwise, ()).kind == "neg"


@pytest.mark.parametrize(
    ("channels", "kind"),
    [
        ((1, 64, 64), ""),
        ((32, 1, 1), "depthwise"),
        ((32, 1, 2), "multiplied"),
        ((32, 4, 8), "even"),
        ((2, 2, 2), "uneven"),
        ((7, 24, 24), "uneven"),
        ((8, 32, 24), "uneven"),
    ],
)
def test_how_channels_are_grouped(channels: tuple[int, int, int], kind: str) -> None:
    assert grouping(*channels) == kind
