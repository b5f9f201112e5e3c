"""Merged sibling convolutions: exact in float64, by hand, with every copy in the graph, and only if it pays."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.capture.aliasing import type_of
from costmodel.capture.executable import capture_exactly
from costmodel.errors import PlanError
from costmodel.execution.fx_module import build_module
from costmodel.ir import Graph, Ref, TensorType, parse
from costmodel.ir.strides import layout_of_channels
from costmodel.planning.planner import make_plan
from costmodel.planning.region_costs import RegionCosts, kernels_of
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.merge_sibling_convs import find_sibling_convs, merge_sibling_convs
from costmodel.rewrites.registry import apply_rewrites
from tests.rewrites.test_registry import bases, run

TWO = """graph g {
  input %x: float32[BATCH,2,4,4]
  param %v: float32[3,2,1,1]
  param %w: float32[5,2,1,1]
  %0 = convolution(input=%x, weight=%v, bias=None, GEOMETRY, transposed=False, groups=1) : float32[BATCH,3,4,4] @m.a
  %1 = relu(self=%0) : float32[BATCH,3,4,4] @m.act
  %2 = convolution(input=%x, weight=%w, bias=None, GEOMETRY, transposed=False, groups=1) : float32[BATCH,5,4,4] @m.b
  %3 = relu(self=%2) : float32[BATCH,5,4,4] @m.act
  %4 = cat(tensors=[%1, %3], dim=1) : float32[BATCH,8,4,4]
  %5 = neg(self=%3) : float32[BATCH,5,4,4]
  return %4, %5
}""".replace("GEOMETRY", "stride=[1, 1], padding=[0, 0], dilation=[1, 1], output_padding=[0, 0]")


def two(batch: int = 2) -> Graph:
    return parse(TWO.replace("BATCH", str(batch)))


class Inception(nn.Module):
    """Four branches as GoogLeNet has them, then two siblings without ReLU, one of which is read twice."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Conv2d(6, size, 1, bias=bias) for size in (4, 3, 5)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(size) for size in (4, 3, 5)])
        self.tails = nn.ModuleList([nn.Conv2d(size, 4, 3, padding=1) for size in (3, 5)])
        self.pooled, self.plain, self.other = nn.Conv2d(6, 2, 1), nn.Conv2d(14, 3, 1), nn.Conv2d(14, 3, 1)
        for norm in self.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        one, two, three = (torch.relu(n(c(x))) for c, n in zip(self.heads, self.norms, strict=True))
        pooled = torch.relu(self.pooled(torch.max_pool2d(x, 3, 1, 1)))
        y = torch.cat([one, torch.relu(self.tails[0](two)), torch.relu(self.tails[1](three)), pooled], 1)
        a, b = self.plain(y), self.other(y)
        return a * torch.sigmoid(b) + b, a


def captured(module: nn.Module, x: torch.Tensor):
    exact = capture_exactly(module.eval(), (x,), "net")
    values = dict(module.named_parameters()) | dict(module.named_buffers()) | dict(exact.constants) | {"x": x}
    return exact.graph, values


FOLD = "fold_batch_norm"


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("before", [(), (FOLD,), (FOLD, "channels_last"), ("channels_last",)])
def test_merged_siblings_compute_what_eager_does_in_float64(batch, bias, before):
    torch.manual_seed(0)
    net, x = Inception(bias).double(), torch.randn(batch, 6, 5, 5, dtype=torch.float64)
    graph, values = captured(net, x)
    merged = apply_rewrites(graph, (*before, "merge_sibling_convs"))
    assert len(find_sibling_convs(apply_rewrites(graph, before))) == 2
    assert bases(hoist_constants(merged).main).count("convolution") == 8 - 3
    with torch.no_grad():
        torch.testing.assert_close(run(merged, values), net(x)[0], rtol=1e-12, atol=1e-12)


def test_merging_by_hand():
    hoisted = hoist_constants(merge_sibling_convs(two()))
    v, w = torch.randn(3, 2, 1, 1), torch.randn(5, 2, 1, 1)
    (weight,) = build_module(hoisted.preparation)(v, w)
    torch.testing.assert_close(weight, torch.cat([v, w]), rtol=0, atol=0)
    assert bases(hoisted.main) == ["convolution", "relu", "slice", "slice", "clone", "cat", "neg"]
    convolution, relu, first, second, copy, cat, neg = hoisted.main.ops
    assert (convolution.type.shape, convolution.module, relu.type.shape) == ((2, 8, 4, 4), "m", (2, 8, 4, 4))
    assert [part.arg("start") for part in (first, second)] == [0, 3]
    assert [part.arg("end") for part in (first, second)] == [3, 8]
    assert cat.refs() == (Ref(first.name), Ref(second.name))  # a concatenation reads the pieces where they lie
    assert neg.refs() == (Ref(copy.name),)  # and all else a copy, for they are not dense
    assert [op.type.layout for op in (first, second, copy)] == ["strided", "strided", "nchw"]


def test_pieces_of_one_image_in_plain_order_are_dense():
    main = hoist_constants(merge_sibling_convs(two(batch=1))).main
    assert bases(main) == ["convolution", "relu", "slice", "slice", "cat", "neg"]
    last = hoist_constants(apply_rewrites(two(batch=1), ("channels_last", "merge_sibling_convs"))).main
    assert bases(last) == ["clone", "convolution", "relu", "slice", "slice", "clone", "cat", "neg"]
    assert [op.type.layout for op in last.ops if op.base in ("slice", "clone")] == [
        "nhwc",
        "strided",
        "strided",
        "nhwc",
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("%2 = convolution(input=%x", "%2 = convolution(input=%4"), id="another input"),
        pytest.param(("bias=None, stride=[1, 1]", "bias=None, stride=[2, 2]"), id="another stride"),
        pytest.param(("param %w", "input %w"), id="a weight that is known at run time only"),
        pytest.param(("5,2,1,1", "5,2,3,3"), id="a window"),
        pytest.param(("%4 = cat(tensors=[%1, %3]", "%4 = cat(tensors=[%1, %3, %2]"), id="one is read before its ReLU"),
        pytest.param(("groups=1) : float32[2,5", "groups=2) : float32[2,5"), id="groups"),
        pytest.param(("transposed=False, groups=1) : float32[2,5", "transposed=True, groups=1) : float32[2,5"), id="t"),
        pytest.param(("groups=1) : float32[2,5,4,4]", "groups=1) : float16[2,5,4,4]"), id="another type"),
    ],
)
def test_what_is_not_merged(change):
    text = str(two())
    if "%4" in change[1] and "input" in change[0]:
        text = text.replace("  %2 = conv", "  %9 = neg(self=%x) : float32[2,2,4,4]\n  %2 = conv")
        change = (change[0], change[1].replace("%4", "%9"))
    head, tail = text[: text.index("%2 = ")], text[text.index("%2 = ") :]
    changed = (head + tail.replace(*change)) if change[0] in tail else text.replace(*change)
    assert changed != str(two())
    graph = parse(changed)
    assert find_sibling_convs(graph) == {}
    assert merge_sibling_convs(graph) is graph


def test_a_place_is_named_and_another_is_left():
    graph, _ = captured(Inception(), torch.empty(2, 6, 5, 5))
    graph = apply_rewrites(graph, (FOLD,))
    first, second = find_sibling_convs(graph)
    assert merge_sibling_convs(graph, (first, second)) == merge_sibling_convs(graph)
    assert list(find_sibling_convs(apply_rewrites(graph, (f"merge_sibling_convs:{first}",)))) == [second]
    assert list(find_sibling_convs(apply_rewrites(graph, (f"merge_sibling_convs:{second}",)))) == [first]
    with pytest.raises(PlanError, match="merge_sibling_convs does not apply at 999"):
        apply_rewrites(graph, ("merge_sibling_convs:999",))
    with pytest.raises(PlanError, match="there is no graph rewrite 'luck'"):
        apply_rewrites(graph, ("luck",))


@given(st.lists(st.integers(1, 4), min_size=4, max_size=4), st.integers(1, 4), st.sampled_from(["nchw", "nhwc"]))
@settings(deadline=None)
def test_layouts_of_pieces_are_those_of_torch(shape, count, layout):
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    whole = torch.empty(shape[0], shape[1] + count, *shape[2:]).contiguous(memory_format=memory_format)
    kind = TensorType("float32", tuple(whole.shape), layout)
    assert layout_of_channels(kind, count) == type_of(whole[:, :count]).layout
    assert layout_of_channels(replace(kind, layout="strided"), count) == "strided"


def test_copies_have_a_cost():
    """Each piece that a library call reads is copied by a kernel of its own."""
    main = hoist_constants(apply_rewrites(two(batch=32), ("channels_last", "merge_sibling_convs"))).main
    copy = [op.name for op in main.ops if op.base in ("slice", "clone") and op.type.shape[1] == 5]
    (kernel,) = kernels_of(main, copy, "eager")
    assert (kernel.kind, kernel.graph.type_of(Ref(kernel.graph.values[0].name)).shape) == ("copy", (32, 8, 4, 4))
    assert RegionCosts(main, load_profile("nvidia-h200")).us("eager", copy) > 1.0


class Wide(nn.Module):
    """Two thin siblings whose copies would be large, for 3x3 convolutions read them."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(images, 256, 1), nn.Conv2d(images, 256, 1)
        self.c, self.d = nn.Conv2d(256, 8, 3), nn.Conv2d(256, 8, 3)

    def forward(self, x):
        return torch.relu(self.c(torch.relu(self.a(x)))) + torch.relu(self.d(torch.relu(self.b(x))))


@pytest.mark.parametrize(
    ("net", "shape", "merged"),
    [(Wide(8), (32, 8, 112, 112), False), (Inception(), (1, 6, 28, 28), True)],
)
def test_siblings_are_merged_where_that_is_predicted_faster(net, shape, merged):
    graph = capture_exactly(net.eval(), (torch.empty(shape),), "net").graph
    plan = make_plan(graph, load_profile("nvidia-h200"), {}, "2.11")
    assert any(rewrite.startswith("merge_sibling_convs") for rewrite in plan.rewrites) == merged
    published = make_plan(graph, load_profile("nvidia-h200"), {}, "2.11", "published")
    assert not any(rewrite.startswith("merge_sibling_convs") for rewrite in published.rewrites)
    assert plan.latency_ms["plan"] <= published.latency_ms["plan"]
