"""The backend under autocast: plans that make the casts of torch's regions, around a call and within the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from costmodel.backend import compile_graph, planning_step
from costmodel.execution.numerics import allowed_error, worst_error
from costmodel.execution.planned_module import Planned
from tests.backend.test_dynamo_backend import Net, net_and_input
from tests.backend.test_in_service import Block
from tests.capture.test_autocast import entered
from tests.support.uncompiled import compiled, explained, uncompiled

HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@pytest.fixture(autouse=True)
def _around(monkeypatch) -> Iterator[None]:
    """Nothing compiles, and a plan that runs operator by operator fails, which the report then says."""
    monkeypatch.setattr(Planned, "_as_planned_for", lambda *_: 1 / 0)
    with uncompiled(), torch.no_grad():
        yield


def assert_as(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype is expected.dtype
    assert worst_error([got], [expected]) <= allowed_error([expected], 0.0, (dtype,))


def choices(fast) -> list[str]:
    graphs = explained(fast).graphs
    assert not any(note for graph in graphs for note in graph.notes if "alone" not in note), str(explained(fast))
    return [graph.choice for graph in graphs]


@HALF
def test_a_call_under_it_is_planned_with_its_casts(dtype):
    net, x = net_and_input()
    fast = compiled(net)
    for _ in range(3):
        with torch.autocast("cpu", dtype):
            assert_as(fast(x), net(x), dtype)
        assert_as(fast(x), net(x), torch.float32)
    assert choices(fast) == ["plan"] * 2
    plans = [graph.plan for graph in explained(fast).graphs]
    assert [plan.amp for plan in plans] == [str(dtype).removeprefix("torch."), None]


def test_each_precision_has_a_graph_of_its_own():
    net, x = net_and_input()
    fast = compiled(net)
    for dtype in (torch.bfloat16, torch.float16) * 2:
        with torch.autocast("cpu", dtype):
            assert_as(fast(x), net(x), dtype)
    assert [graph.plan.amp for graph in explained(fast).graphs] == ["bfloat16", "float16"]


def test_further_sizes_under_it():
    net, x = net_and_input()
    fast = compiled(net)
    with torch.autocast("cpu", torch.bfloat16):
        for batch in (2, 1, 3, 2, 3, 1):
            y = x[:1].expand(batch, -1, -1, -1).contiguous() * batch
            assert_as(fast(y), net(y), torch.bfloat16)
    assert choices(fast) == ["plan"] * 3


def test_new_weights_are_cast_anew():
    net, x = net_and_input()
    torch.manual_seed(7)
    other = Net().eval()
    fast = compiled(net)
    with torch.autocast("cpu", torch.bfloat16):
        fast(x)
        net.load_state_dict(other.state_dict())
        assert_as(fast(x), other(x), torch.bfloat16)
    assert choices(fast) == ["plan"]


def test_one_graph_serves_many_blocks():
    torch.manual_seed(0)
    blocks = [Block().eval() for _ in range(3)]
    x = torch.randn(3, 6)
    fast = compiled(lambda block, x: block(x))
    with torch.autocast("cpu", torch.bfloat16):
        for block in (*blocks, *blocks):
            assert_as(fast(block, x), block(x), torch.bfloat16)
    assert choices(fast) == ["plan"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("cached", [True, False])
def test_with_and_without_the_cache_of_casts(mode, cached):
    net, x = net_and_input()
    fast = compiled(net)
    with mode(), torch.autocast("cpu", torch.bfloat16, cache_enabled=cached):
        for _ in range(2):
            assert_as(fast(x), net(x), torch.bfloat16)
    assert choices(fast) == ["plan"]


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_gradients_are_left_to_inductor(where):
    net, x = net_and_input()
    fast = compiled(net)
    with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=where == "outside"):
        fast(x).float().sum().backward()
    assert choices(fast) == ["inductor"]
    assert net.first.weight.grad is not None


def test_autocast_of_another_device_casts_nothing():
    net, x = net_and_input()
    fast = compiled(net)
    with entered("cuda", torch.float16):
        for _ in range(2):
            assert_as(fast(x), net(x), torch.float32)
        assert torch.is_autocast_enabled("cuda")
    assert choices(fast) == ["plan"]
    assert explained(fast).graphs[0].plan.amp is None


def test_a_precision_without_plans_is_left_to_inductor():
    x = torch.randn(4, 4)
    fast = compiled(lambda x: torch.relu(x * 2) + 1)
    with entered("cpu", torch.float64):
        assert torch.equal(fast(x), torch.relu(x * 2) + 1)
    (graph,) = explained(fast).graphs
    assert graph.choice == "inductor"
    assert graph.why == "it runs under autocast to torch.float64, for which there are no plans"


def test_a_layer_that_casts_within_is_left_to_inductor():
    net, x, h = nn.GRUCell(4, 8).eval(), torch.randn(2, 4), torch.randn(2, 8)
    fast = compiled(net)
    with torch.autocast("cpu", torch.bfloat16):
        assert_as(fast(x, h), net(x, h), torch.bfloat16)
    (graph,) = explained(fast).graphs
    assert graph.choice in ("inductor", "eager")
    assert "gru_cell under autocast of a CPU" in graph.why


def test_constants_are_cast_too():
    def function(x):
        return torch.relu(x @ torch.ones(4, 4)).softmax(-1) @ torch.arange(16.0).reshape(4, 4)

    x = torch.randn(2, 4)
    fast = compiled(function)
    with torch.autocast("cpu", torch.bfloat16):
        assert_as(fast(x), function(x), torch.bfloat16)
    assert choices(fast) == ["plan"]


def test_strict_numerics_under_it():
    """Weights may not be folded, and casts are where eager execution has them."""
    net, x = net_and_input()
    fast = compiled(net, numerics="strict")
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fast(x), net(x))
    (graph,) = explained(fast).graphs
    assert graph.choice == "plan"
    assert "fold_batch_norm" not in graph.plan.rewrites


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_ways_are_measured_under_it(monkeypatch):
    monkeypatch.setattr(compile_graph, "MEASURED_S", 1e-5)
    net, x = net_and_input()
    fast = torch.compile(net, backend="costmodel")
    with torch.autocast("cpu", torch.bfloat16):
        assert_as(fast(x), net(x), torch.bfloat16)
    (graph,) = explained(fast).graphs
    assert set(graph.times_ms) == {"plan", "inductor", "eager"}


class TestKeptPlans:
    @pytest.fixture
    def made(self, monkeypatch):
        """Graphs that were planned, in a list."""
        graphs = []
        plan = planning_step._planned
        monkeypatch.setattr(
            planning_step, "_planned", lambda graph, *rest: (graphs.append(graph), plan(graph, *rest))[1]
        )
        return graphs

    def test_one_of_other_settings_is_not_found(self, made):
        """The graph has no operator that is cast, so its operators are those of each setting."""
        x = torch.randn(4, 400)

        def function(x):
            return torch.relu(x * 2).tanh() - torch.sigmoid(x)

        for dtype in (None, torch.bfloat16, torch.float16, None, torch.bfloat16, torch.float16):
            torch._dynamo.reset()
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                torch.testing.assert_close(compiled(function)(x), function(x))
        assert len(made) == 3
        assert len({str(graph).partition("\n")[2] for graph in made}) == 1

    def test_one_of_the_same_is(self, made):
        net, x = net_and_input()
        for _ in range(2):
            torch._dynamo.reset()
            fast = compiled(net)
            with torch.autocast("cpu", torch.bfloat16):
                assert_as(fast(x), net(x), torch.bfloat16)
            assert explained(fast).graphs[0].plan.amp == "bfloat16"
        assert len(made) == 1


class Mixed(nn.Module):
    """Regions of every kind within a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.breaks = False

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.norm(self.first(x)).softmax(-1)
            with torch.autocast("cpu", enabled=False):
                z = self.second(y.float())
            if self.breaks:
                torch._dynamo.graph_break()
            y = y @ self.second(z).t()
        with torch.autocast("cuda", enabled=False):
            return torch.cat([y, self.second(x) @ x.t()], 0)


class TestWithinTheModel:
    @pytest.mark.parametrize("around", [False, True])
    def test_regions_are_part_of_the_plan(self, around):
        torch.manual_seed(0)
        net, x = Mixed().eval(), torch.randn(4, 8)
        fast = compiled(net)
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            for _ in range(2):
                assert_as(fast(x), net(x), torch.bfloat16)
        assert choices(fast) == ["plan"]
        assert explained(fast).graphs[0].plan.amp == ("bfloat16" if around else None)

    def test_new_weights_count(self):
        torch.manual_seed(0)
        net, other, x = Mixed().eval(), Mixed().eval(), torch.randn(4, 8)
        fast = compiled(net)
        fast(x)
        net.load_state_dict(other.state_dict())
        assert_as(fast(x), other(x), torch.bfloat16)
        assert choices(fast) == ["plan"]

    def test_a_graph_break_inside_a_region(self):
        torch.manual_seed(0)
        net, x = Mixed().eval(), torch.randn(4, 8)
        net.breaks = True
        fast = compiled(net)
        for _ in range(2):
            assert_as(fast(x), net(x), torch.bfloat16)
        assert choices(fast) == ["plan"] * 2

    @pytest.mark.filterwarnings("ignore:.*CUDA is not available")
    def test_a_region_of_a_gpu_casts_nothing_on_a_cpu(self):
        class Foreign(nn.Sequential):
            def forward(self, x):
                with torch.autocast("cuda", torch.float16):
                    return super().forward(x)

        net, x = Foreign(nn.Linear(4, 4), nn.Tanh()).eval(), torch.randn(2, 4)
        fast = compiled(net)
        assert_as(fast(x), net(x), torch.float32)
        assert choices(fast) == ["plan"]


class Encoder(nn.Module):
    """A block of a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first, self.second = nn.Conv2d(3, 32, 4, 4), nn.LayerNorm(32), nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return (x + self.mlp(self.second(x))).softmax(-1)


class ConvNext(nn.Module):
    """A block of a ConvNeXt, with a depth-wise convolution and channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.wide(x).permute(0, 2, 3, 1))
        return x + self.down(nn.functional.gelu(self.up(y))).permute(0, 3, 1, 2)


class Residual(nn.Module):
    """Convolutions and batch norms around an upsampling and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.last = nn.Sequential(nn.Conv2d(11, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.Sigmoid(), nn.AdaptiveAvgPool2d(2))

    def forward(self, x):
        return self.last(torch.cat([nn.functional.interpolate(self.first(x), scale_factor=2), x], 1))


@pytest.mark.slow
@pytest.mark.parametrize("make", [Encoder, ConvNext, Residual])
def test_networks(make):
    """Attention, softmax and layer norms too, which a CPU's autocast leaves in the precision that they get."""
    torch.manual_seed(0)
    net, x = make().eval(), torch.randn(2, 3, 16, 16)
    fast = compiled(net)
    with torch.autocast("cpu", torch.bfloat16):
        got, expected = fast(x), net(x)
    exact = net.double()(x.double())
    assert got.dtype is expected.dtype
    assert worst_error([got], [exact]) <= allowed_error([expected], worst_error([expected], [exact]), (torch.bfloat16,))
    assert choices(fast) == ["plan"]
