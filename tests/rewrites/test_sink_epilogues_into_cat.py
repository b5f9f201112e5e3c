"""Epilogues sunk into a concatenation: exact in float64, one kernel, with its cost, and only if it pays."""

import pytest
import torch
from torch import nn

from costmodel.capture.aten_operators import overload
from costmodel.capture.executable import capture_exactly
from costmodel.planning.blocks import find_blocks
from costmodel.planning.region_costs import RegionCosts, kernels_of
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from costmodel.rewrites.sink_epilogues_into_cat import bare_convolutions, find_epilogues, sink_epilogues_into_cat
from tests.rewrites.test_registry import bases, run


class Fire(nn.Module):
    """SqueezeNet's module, twice: a squeeze, two branches of a convolution, a ReLU, their concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.squeezes = nn.ModuleList([nn.Conv2d(3, 4, 1), nn.Conv2d(11, 4, 1)])
        self.ones = nn.ModuleList([nn.Conv2d(4, 5, 1), nn.Conv2d(4, 5, 1)])
        self.threes = nn.ModuleList([nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)])

    def forward(self, x):
        for squeeze, one, three in zip(self.squeezes, self.ones, self.threes, strict=True):
            y = torch.relu(squeeze(x))
            x = torch.cat([torch.relu(one(y)), torch.relu(three(y))], 1)
        return x


def captured(net: nn.Module, x: torch.Tensor):
    exact = capture_exactly(net.eval(), (x,), "net")
    return exact.graph, dict(net.named_parameters()) | dict(exact.constants) | {"x": x}


@pytest.mark.parametrize("before", [(), ("channels_last",), ("channels_last", "merge_sibling_convs")])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_sunk_epilogues_compute_what_eager_does_in_float64(before, count):
    torch.manual_seed(0)
    net, x = Fire().double(), torch.randn(2, 3, 7, 7, dtype=torch.float64)
    graph, values = captured(net, x)
    graph = apply_rewrites(graph, before)
    places = tuple(find_epilogues(graph))[:count]
    moved = apply_rewrites(graph, (f"sink_epilogues_into_cat:{','.join(places)}",) if places else ())
    assert sum(op.arg("bias") is None for op in moved.ops if op.base == "convolution") == 2 * count
    assert len(bare_convolutions(moved)) == 2 * count
    with torch.no_grad():
        torch.testing.assert_close(run(moved, values), net(x), rtol=1e-12, atol=1e-12)


def test_blocks_and_kernels_by_hand():
    graph, _ = captured(Fire(), torch.empty(2, 3, 7, 7))
    main = hoist_constants(apply_rewrites(graph, ("channels_last", "sink_epilogues_into_cat"))).main
    kinds = {op.name: op.base for op in main.ops}
    computing = [
        [kinds[name] for name in block.ops if kinds[name] not in ("view", "clone")] for block in find_blocks(main)
    ]
    joined = ["add", "relu", "add", "relu", "cat"]
    assert [names for names in computing if names] == [
        ["convolution", "relu"],
        ["convolution"],
        ["convolution"],
        joined,
    ] * 2
    (cat,) = [block for block in find_blocks(main)[:5] if "cat" in {kinds[name] for name in block.ops}]
    (kernel,) = kernels_of(main, cat.ops, "inductor")
    assert [base for base in bases(kernel.graph) if base not in ("view", "reshape")] == joined
    assert kernel.backend == "triton"


def test_epilogues_hardly_change_the_cost_of_a_concatenation():
    """The same bytes are read and written: one kernel with the epilogues takes what the concatenation alone does."""
    graph, _ = captured(Fire(), torch.empty(32, 3, 56, 56))
    plain = hoist_constants(apply_rewrites(graph, ("channels_last",))).main
    moved = hoist_constants(apply_rewrites(graph, ("channels_last", "sink_epilogues_into_cat"))).main
    profile = load_profile("nvidia-h200")

    def us(main):
        kinds = {op.name: op.base for op in main.ops}
        block = next(block for block in find_blocks(main) if "cat" in {kinds[name] for name in block.ops})
        return RegionCosts(main, profile).us("inductor", block.ops)

    assert us(moved) == pytest.approx(us(plain), rel=0.25)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda m, y: torch.cat([torch.relu(m.one(y)), y], 2), id="not channels"),
        pytest.param(lambda m, y: torch.cat([torch.sigmoid(m.one(y)), y], 1), id="another epilogue"),
        pytest.param(lambda m, y: torch.cat([torch.relu(m.bare(y)), y], 1), id="no bias"),
        pytest.param(lambda m, y: torch.cat([r := torch.relu(m.one(y)), r + 1], 1), id="read by others too"),
        pytest.param(lambda m, y: (r := torch.relu(m.one(y)), torch.cat([r, y], 1)), id="returned too"),
        pytest.param(lambda m, y: torch.cat([torch.relu(m.one(y)), *[y] * 8], 1), id="more than eight"),
    ],
)
def test_epilogues_that_are_not_sunk(body):
    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.bare = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1, bias=False)

        def forward(self, x):
            return body(self, x)

    graph, _ = captured(Body(), torch.empty(1, 4, 5, 5))
    assert find_epilogues(graph) == {}
    assert bases(sink_epilogues_into_cat(graph)) == bases(graph)


def test_atens_fused_kernel_cannot_write_into_a_part():
    """Reason for the rewrite: only the bare convolution has a kernel that writes into a given tensor."""
    for name, copies in (("cudnn_convolution_relu.out", True), ("cudnn_convolution.out", False)):
        overload(name)
        generated = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CompositeExplicitAutograd")
        assert generated == copies
