"""Plans applied on the CPU: equal outputs, an unchanged original, and clear refusals."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import costmodel
from costmodel import apply as public_apply
from costmodel.capture.executable import capture_exactly
from costmodel.errors import CaptureError, PlanError
from costmodel.execution import fx_module, numerics, runner
from costmodel.execution import regions as regions_module
from costmodel.planning.blocks import find_blocks
from costmodel.planning.plan import Plan, Region, fingerprint
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import REWRITES, apply_rewrites
from tests.planning.test_blocks import Branches
from tests.rewrites.test_merge_sibling_convs import Inception
from tests.rewrites.test_registry import Net


def plan_for(module: nn.Module, inputs, backend="eager", rewrites=tuple(REWRITES), cuts=None) -> Plan:
    """Plan that runs every block by one backend."""
    exact = capture_exactly(module, inputs, "m")
    main = hoist_constants(apply_rewrites(exact.graph, rewrites)).main
    regions = tuple(Region(backend, block.ops, (), 1.0) for block in find_blocks(main))
    return Plan("m", fingerprint(exact.graph), "cpu", "exact", rewrites, "graph", regions, {"plan": 1.0}, 0.0, "2.11")


class Fork(nn.Module):
    """A stem, two branches of a convolution each, and a head on their concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(16, 4, 1)
        self.left, self.right = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(torch.cat([torch.relu(self.left(x)), torch.relu(self.right(x))], 1)).flatten(1)


class Nested(nn.Module):
    """Several inputs, and a nested result with an object that is not a tensor."""

    def forward(self, x, y):
        return {"sum": x + y, "both": [torch.relu(x), 3], "again": x + y}


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class Overwrites(nn.Module):
    def forward(self, x):
        return x.mul_(2)


class Masked(nn.Module):
    """Adds a mask that it fills slice by slice, and positions: both factory results on the input's device."""

    def forward(self, x):
        mask = x.new_zeros(x.shape[1:])
        mask[:, :2] = 1.0
        mask[:, 2:] = -3.0
        return x + mask + torch.arange(x.shape[-1], device=x.device) * 2


class Branching(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Twice(nn.Module):
    """One module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return torch.relu(self.conv(torch.relu(self.conv(x))))


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("module", [Net, Branches, Fork, Twice, Masked])
@pytest.mark.parametrize("rewrites", [(), tuple(REWRITES)])
def test_a_plan_computes_what_its_model_does(module, rewrites):
    torch.manual_seed(0)
    net, x = module().eval(), torch.randn(2, 3, 6, 6)
    before = copy.deepcopy(net.state_dict())
    fast = public_apply(net, plan_for(net, (x,), rewrites=rewrites), (x,))
    with torch.no_grad():
        close(fast(x), net(x))
    assert fast.replaced == ()
    assert not net.training
    assert list(net.state_dict()) == list(before)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before.values(), strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own, on importing Inductor
def test_regions_are_compiled_and_equal_ones_once():
    net = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Conv2d(4, 4, 1), nn.ReLU())]).eval()
    x = torch.randn(1, 4, 5, 5)
    fast = public_apply(net, plan_for(net, (x,), "inductor", ()), (x,))
    with torch.no_grad():
        close(fast(x), net(x))
    assert [region.backend for region in fast.plan.regions] == ["inductor"] * 3
    assert len(fast._runner().calls) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own, on importing Inductor
def test_merged_siblings_are_compiled():
    torch.manual_seed(0)
    net, x = Inception().eval(), torch.randn(2, 6, 9, 9)
    plan = plan_for(net, (x,), "inductor")
    assert any("merged" in name for region in plan.regions for name in region.ops)
    fast = public_apply(net, plan, (x,))
    with torch.no_grad():
        close(fast(x)[0], net(x)[0])
        close(fast(x)[1], net(x)[1])
    assert fast.replaced == ()


def test_results_are_nested_as_the_models_and_stay():
    net, x, y = Nested().eval(), torch.randn(2, 3), torch.randn(2, 3)
    fast = public_apply(net, plan_for(net, (x, y)), (x, y))
    first = fast(x, y)
    assert first["both"][1] == 3
    kept = first["sum"].clone()
    second = fast(y, y)
    close(first["sum"], kept)
    close(second["both"][0], torch.relu(y))


def test_other_shapes_are_taken_on_up_to_a_bound_and_then_run_eagerly(monkeypatch):
    net, x = Branches().eval(), torch.randn(1, 3, 8, 8)
    fast = public_apply(net, plan_for(net, (x,)), (x,))
    with torch.no_grad():
        for size in (6, 7, 9, 10, 11, 12, 13, 14, 15, 16):
            other = torch.randn(2, 3, size, size)
            close(fast(other), net(other))
    assert len(fast._runner().ready) == 8


def test_what_is_made_of_numbers_alone_lies_where_the_plan_runs():
    """A CPU tensor could not be read while a GPU's graph is captured; here the device is one that holds no data."""
    module, x = Masked().eval(), torch.zeros(2, 3, 4)
    exact = capture_exactly(module, (x,), "masked")
    hoisted = hoist_constants(exact.graph)
    made = regions_module.prepare(hoisted, exact, {}, torch.device("meta"))
    assert len(made) >= 3  # 1, -3 and the positions
    assert all(tensor.is_meta for tensor in made.values())
    assert all(op.refs() for op in hoisted.main.ops)  # nothing else is made of numbers at each pass


def test_new_weights_are_taken_over_on_refresh():
    net, x = Net().eval(), torch.randn(2, 3, 6, 6)
    fast = public_apply(net, plan_for(net, (x,)), (x,))
    with torch.no_grad():
        net.fc.weight.mul_(2.0)
        net.a.weight.mul_(0.5)
        fast.refresh()
        close(fast(x), net(x))


@pytest.mark.parametrize(
    ("module", "message"),
    [(Writes, "writes into count"), (Overwrites, "writes into x")],
)
def test_a_pass_that_changes_what_outlives_it_is_refused(module, message):
    with pytest.raises(PlanError, match=message):
        costmodel.plan(module().eval(), (torch.randn(2, 3),), hardware="nvidia-h200")


def test_control_flow_on_data_is_refused():
    with pytest.raises(CaptureError, match="needs the values of a tensor"):
        costmodel.plan(Branching().eval(), (torch.randn(2, 3),), hardware="nvidia-h200")


def test_training_and_gradients_are_refused():
    net, x = Net().eval(), torch.randn(2, 3, 6, 6)
    plan = plan_for(net, (x,))
    with pytest.raises(PlanError, match=r"call \.eval"):
        public_apply(copy.deepcopy(net).train(), plan, (x,))
    fast = public_apply(net, plan, (x,))
    with pytest.raises(PlanError, match="no gradients"):
        fast(x.clone().requires_grad_())
    with pytest.raises(PlanError, match="for inference"):
        fast.train()(x)


def test_plans_that_do_not_fit_are_refused():
    net, x = Net().eval(), torch.randn(2, 3, 6, 6)
    plan = plan_for(net, (x,))
    with pytest.raises(PlanError, match="make a plan for this model"):
        public_apply(Branches().eval(), plan, (x,))
    with pytest.raises(PlanError, match="make a plan for this model"):
        public_apply(net, plan, (torch.randn(3, 3, 6, 6),))
    with pytest.raises(PlanError, match="plan for the CPU"):
        public_apply(net, replace(plan, regions=(replace(plan.regions[0], backend="cudnn"), *plan.regions[1:])), (x,))
    with pytest.raises(PlanError, match="must be on one device"):
        public_apply(net.to("meta"), plan, (x,))


def test_a_region_with_wrong_results_runs_eagerly_and_is_named(monkeypatch):
    net, x = Branches().eval(), torch.randn(1, 3, 8, 8)
    plan = plan_for(net, (x,), rewrites=())
    plan = replace(plan, regions=(plan.regions[0], replace(plan.regions[1], backend="inductor"), *plan.regions[2:]))
    wrong = lambda graph: lambda *args: [out * 1.01 for out in fx_module.build_module(graph)(*args)]  # noqa: E731
    monkeypatch.setattr(regions_module, "_Compiled", wrong)
    fast = public_apply(net, plan, (x,))
    (found,) = fast.replaced
    assert found[0].ops == plan.regions[1].ops
    assert found[1] == pytest.approx(0.01, rel=0.05)
    assert [region.backend for region in fast.plan.regions] == ["eager"] * 3
    with torch.no_grad():
        close(fast(x), net(x))


def test_a_region_that_cannot_run_runs_eagerly_and_is_named(monkeypatch):
    net, x = Branches().eval(), torch.randn(1, 3, 8, 8)
    plan = plan_for(net, (x,), rewrites=())
    plan = replace(plan, regions=(plan.regions[0], replace(plan.regions[1], backend="inductor"), *plan.regions[2:]))

    def failing(_graph):
        def call(*_):
            raise RuntimeError("no compiler here\nand more")

        return call

    monkeypatch.setattr(regions_module, "_Compiled", failing)
    fast = public_apply(net, plan, (x,))
    ((region, error),) = fast.replaced
    assert (region.ops, error) == (plan.regions[1].ops, float("inf"))
    assert [(one.backend, one.why) for one in fast.plan.regions][1] == ("eager", "it failed")
    with torch.no_grad():
        close(fast(x), net(x))


def test_a_plan_that_fails_throughout_is_refused_in_one_line(monkeypatch):
    net, x = Branches().eval(), torch.randn(1, 3, 8, 8)
    plan = plan_for(net, (x,))

    def run(*_):
        raise RuntimeError("the device is gone\nand more")

    monkeypatch.setattr(regions_module.PlannedProgram, "run", run)
    with pytest.raises(PlanError, match=r"^the plan fails \(the device is gone\) for \w+; make it again") as caught:
        public_apply(net, plan, (x,))
    assert "\n" not in str(caught.value)


def test_where_eager_regions_fail_too_none_is_to_blame(monkeypatch):
    net, x = Branches().eval(), torch.randn(1, 3, 8, 8)
    plan = plan_for(net, (x,))

    def failing(*_):
        raise RuntimeError("the device is gone")

    def run(*_):
        monkeypatch.setattr(regions_module, "build_module", lambda *_: failing)
        failing()

    monkeypatch.setattr(regions_module.PlannedProgram, "run", run)
    with pytest.raises(PlanError, match="the device is gone"):
        public_apply(net, plan, (x,))


def test_a_plan_that_is_wrong_throughout_is_refused(monkeypatch):
    net, x = Branches().eval(), torch.randn(1, 3, 8, 8)
    plan = plan_for(net, (x,))
    prepare = regions_module.prepare
    halved = lambda *args: {name: tensor * 0.5 for name, tensor in prepare(*args).items()}  # noqa: E731
    monkeypatch.setattr(runner, "prepare", halved)
    with pytest.raises(PlanError, match="computes other outputs"):
        public_apply(net, plan, (x,))


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),  # 0.5 off, of a length of 5
        ([0.5, 0.0], [0.0, 0.0], 0.5),
        ([float("nan"), 4.0], [3.0, 4.0], float("inf")),
        ([1.0], [1.0, 1.0], float("inf")),
    ],
)
def test_relative_errors(got, expected, error):
    assert numerics.relative_error(torch.tensor(got), torch.tensor(expected)) == pytest.approx(error)


def test_the_numerical_check_allows_the_error_of_eager_execution_and_little_more():
    exact = [torch.ones(4, dtype=torch.float64)]
    eager = [torch.full((4,), 1.001)]
    assert numerics.passes(lambda: [torch.full((4,), 1.0039)], eager, exact)
    assert not numerics.passes(lambda: [torch.full((4,), 1.0041)], eager, exact)
    assert not numerics.passes(lambda: [torch.full((4,), float("nan"))], eager, exact)
    assert numerics.passes(lambda: [torch.full((4,), 1.00105)], eager, None)  # without float64, eager is the truth
