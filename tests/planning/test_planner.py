"""Plans by the shipped profile: complete, checked, and no slower than the decisions that they are chosen from."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

import costmodel
from costmodel import zoo
from costmodel.capture.executable import capture_exactly
from costmodel.cli import main
from costmodel.errors import CaptureError, RequestError
from costmodel.planning.blocks import find_blocks
from costmodel.planning.oracle import STRATEGIES
from costmodel.planning.plan import Plan
from costmodel.planning.plan_report import render_plan
from costmodel.planning.planner import Objective, make_plan
from costmodel.planning.region_costs import GRID_US, BlockCosts, RegionCosts, kernels_of
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from tests.planning.test_blocks import Branches, main_graph


@pytest.fixture(scope="module")
def squeezenet():
    loaded = zoo.load("squeezenet1_1", batch_size=32)
    return loaded.module, loaded.inputs


@pytest.fixture(scope="module")
def plan(squeezenet):
    return costmodel.plan(*squeezenet, hardware="nvidia-h200", model_name="squeezenet1_1")


def test_without_folding_no_weights_are_computed_from_others(h200):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)).eval()
    graph = capture_exactly(net, (torch.empty(4, 3, 16, 16),), "net").graph
    folded, plain = (make_plan(graph, h200, {}, "2", wanted=Objective(folding=folding)) for folding in (True, False))
    assert "fold_batch_norm" in folded.rewrites
    assert plain.rewrites in ((), ("channels_last",))
    assert plain.check_regions(hoist_constants(apply_rewrites(graph, plain.rewrites)).main) is plain
    assert plain.latency_ms["plan"] >= folded.latency_ms["plan"]


def test_a_plan_fits_its_model_and_beats_every_mode(squeezenet, plan):
    exact = capture_exactly(*squeezenet, "squeezenet1_1")
    plan.check(exact.graph)
    plan.check_regions(hoist_constants(apply_rewrites(exact.graph, plan.rewrites)).main)
    assert set(plan.latency_ms) == {"eager", "default", "reduce-overhead", "plan"}
    assert plan.latency_ms["plan"] == min(plan.latency_ms.values())
    assert {region.backend for region in plan.regions} >= {"cudnn", "inductor"}
    assert "features.3.expand3x3" in {layer for region in plan.regions for layer in region.layers}


@pytest.mark.parametrize("rows", [1, 8192])
def test_the_roofline_of_a_matmul_by_hand(h200, rows):
    """Of one row the traffic bounds: 4 (1024 + 1024 * 512 + 512) bytes; of many 2 * 1024 * 512 operations a row."""
    graph = capture_exactly(nn.Linear(1024, 512, bias=False).eval(), (torch.empty(rows, 1024),), "net").graph
    roofline = h200.predictor.roofline
    traffic_us = 4 * (rows * (1024 + 512) + 1024 * 512) / roofline.bytes_per_us
    compute_us = 2 * rows * 1024 * 512 / roofline.peak["matmul.float32"]
    assert (compute_us > traffic_us) == (rows > 1)
    assert make_plan(graph, h200, {}, "2").roofline_ms == pytest.approx(max(traffic_us, compute_us) / 1e3)


def test_the_same_plan_is_made_again(squeezenet, plan):
    assert costmodel.plan(*squeezenet, hardware="nvidia-h200", model_name="squeezenet1_1") == plan


def test_rounding_decides_nothing(monkeypatch):
    """Noise in the last digits of predictions, as between CPUs or numbers of threads."""
    loaded = zoo.load("squeezenet1_1", batch_size=1)

    def made():
        plan = costmodel.plan(loaded.module, loaded.inputs, hardware="nvidia-h200")
        return plan.rewrites, [(region.backend, region.ops, region.stream) for region in plan.regions]

    before = made()
    predict = RegionCosts._predict
    for seed in range(3):
        noise = random.Random(seed)

        def noisy(region_costs, new, noise=noise):
            predict(region_costs, new)
            region_costs._us.update(
                (kernel.key, region_costs._us[kernel.key] * (1 + 1e-7 * noise.gauss(0, 1))) for kernel in new
            )

        monkeypatch.setattr(RegionCosts, "_predict", noisy)
        assert made() == before


def test_no_other_strategy_is_predicted_faster(squeezenet, plan):
    for name in STRATEGIES:
        other = costmodel.plan(*squeezenet, hardware="nvidia-h200", strategy=name)
        assert plan.latency_ms["plan"] <= other.latency_ms["plan"] * (1 + 1e-5)  # times are of float32
        assert other.strategy == name
    with pytest.raises(RequestError, match="strategy must be one of theoretical"):
        costmodel.plan(*squeezenet, hardware="nvidia-h200", strategy="luck")


def test_few_calls_are_not_worth_compiling_for(squeezenet, plan):
    few = costmodel.plan(*squeezenet, hardware="nvidia-h200", calls=10)
    assert few.build_s == 0.0
    assert {region.backend for region in few.regions} == {"cudnn", "eager"}
    many = costmodel.plan(*squeezenet, hardware="nvidia-h200", calls=10**9)
    assert many.latency_ms["plan"] == pytest.approx(plan.latency_ms["plan"], rel=1e-3)
    for calls in (10, 10**4, 10**9):
        made = costmodel.plan(*squeezenet, hardware="nvidia-h200", calls=calls)
        total_s = [calls * one.latency_ms["plan"] / 1e3 + one.build_s for one in (made, few, plan)]
        assert total_s[0] <= min(total_s) * (1 + 1e-3)


def test_a_plan_for_a_cpu_has_neither_cudnn_nor_a_graph():
    gpu = load_profile("nvidia-h200")
    cpu = replace(gpu, card=gpu.card | {"environment": {"device": "cpu"}})
    graph = capture_exactly(Branches().eval(), (torch.empty(1, 3, 8, 8),), "b").graph
    plan = make_plan(graph, cpu, {}, "2.11")
    assert plan.launch == "stream"
    assert {region.backend for region in plan.regions} <= {"eager", "inductor"}
    assert plan.latency_ms["plan"] == pytest.approx(sum(region.us for region in plan.regions) / 1e3)
    assert (gpu.on_cpu, cpu.on_cpu) == (False, True)


def test_region_costs_are_sums_over_kernels():
    graph = main_graph()
    profile = load_profile("nvidia-h200")
    region_costs = RegionCosts(graph, profile)
    first, *_ = find_blocks(graph)
    eager = kernels_of(graph, first.ops, "eager")
    assert [kernel.kind for kernel in eager] == ["conv2d", "relu"]
    kinds = [kernel.kind for kernel in kernels_of(graph, first.ops, "inductor")]
    assert kinds == ["copy", "copy", "conv2d", "relu"]  # into channels-last order, weight and image
    (fused,) = kernels_of(graph, first.ops, "cudnn")
    assert fused.graph.ops[0].base == "cudnn_convolution_relu"
    launches = 2 * profile.costs("default_device")["launch"]
    expected = launches + sum(estimate.us for estimate in profile.predictor.predict(eager, (0.5, 0.5)))
    assert region_costs.us("eager", first.ops) == pytest.approx(expected, abs=GRID_US)
    with pytest.raises(ValueError, match="cannot run"):
        kernels_of(graph, first.ops[:1], "cudnn")


@pytest.mark.parametrize("first", ["eager", "inductor"])
def test_an_operator_alone_costs_what_its_kernel_costs(first: str):
    pool = nn.MaxPool2d(3, 1, 1)
    graph = capture_exactly(pool.eval(), (torch.empty(1, 64, 28, 28),), "pool").graph
    profile = load_profile("nvidia-h200")
    region_costs = RegionCosts(graph, profile)
    names = [op.name for op in graph.ops]
    region_costs.us(first, names)  # whichever is asked for first
    found = {backend: region_costs.us(backend, names) for backend in ("eager", "inductor")}
    kernels = {backend: kernels_of(graph, names, backend) for backend in found}
    assert [str(kernel.graph) for kernel in kernels["eager"]] == [str(kernel.graph) for kernel in kernels["inductor"]]
    launch = profile.costs("default_device")["launch"]
    for backend, own in kernels.items():
        times = [estimate.us for estimate in profile.predictor.predict(own, [0.5] * len(own))]
        assert found[backend] == pytest.approx(sum(us + launch for us in times), abs=GRID_US * len(own) / 2)
    assert found["eager"] != found["inductor"]


def test_sums_of_region_costs_are_exact_in_any_order():
    graph = main_graph()
    region_costs = RegionCosts(graph, load_profile("nvidia-h200"))
    blocks = find_blocks(graph)
    each = [region_costs.us("eager", block.ops) for block in blocks]
    assert (
        sum(each) == sum(reversed(each)) == region_costs.us("eager", [name for block in blocks for name in block.ops])
    )
    assert all(us % GRID_US == 0.0 < us for us in each)
    costs = replace(BlockCosts.of(blocks, [], region_costs), overlap=1 / 3)
    assert costs.together(each) % GRID_US == 0.0


def test_of_ways_that_tie_eager_comes_before_inductor():
    graph = main_graph()
    costs = BlockCosts.of(find_blocks(graph), [], RegionCosts(graph, load_profile("nvidia-h200")))
    ways = [costs.choices(unit) for unit in range(len(costs.blocks))]
    assert set(ways) == {("cudnn", "eager", "inductor"), ("eager", "inductor")}
    assert replace(costs, cudnn=False, inductor=False).choices(0) == ("eager",)


def test_fusion_across_blocks_is_a_negative_cost():
    graph = main_graph()
    blocks = find_blocks(graph)
    region_costs = RegionCosts(graph, load_profile("nvidia-h200"))
    costs = BlockCosts.of(blocks, [(1, 2)], region_costs)
    gain = (
        region_costs.us("inductor", (*blocks[1].ops, *blocks[2].ops))
        - costs.run(1, "inductor")
        - costs.run(2, "inductor")
    )
    assert costs.edge(1, "inductor", 2, "inductor") == pytest.approx(gain)
    assert costs.edge(1, "cudnn", 2, "inductor") == 0.0
    assert costs.edge(0, "inductor", 2, "inductor") == 0.0  # not among the edges that were given
    assert costs.choices(len(blocks)) == (None,)
    assert costs.run(len(blocks), None) == 0.0


def test_a_model_without_convolutions_is_one_region():
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4)).eval()
    plan = costmodel.plan(net, (torch.empty(2, 8, device="meta"),), hardware="nvidia-h200")
    assert len(plan.regions) == 1
    assert plan.regions[0].layers == ("0", "1", "2")


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_every_format_names_every_region(plan, form):
    text = render_plan(plan, form)
    assert text.endswith("\n")
    assert "features.3.squeeze" in text
    assert text.count("cudnn") >= sum(region.backend == "cudnn" for region in plan.regions)
    with pytest.raises(RequestError, match="unknown format"):
        render_plan(plan, "pdf")


def test_the_command_prints_and_saves(tmp_path, capsys):
    path = tmp_path / "plan.json"
    assert main(["plan", "alexnet", "--hardware", "nvidia-h200", "-o", str(path), "-q"]) == 0
    shown = capsys.readouterr()
    assert "plan for alexnet on nvidia-h200" in shown.out
    assert shown.err == ""
    assert Plan.load(path).model == "alexnet"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "alexnett"], "did you mean alexnet"),
        (["plan", "alexnet", "--hardware", "abacus"], "no hardware profile is called 'abacus'"),
        (["plan", "alexnet", "--strategy", "luck"], "Invalid value for '--strategy': 'luck' is not one of"),
        (["plan", "alexnet", "--memory-limit", "1K"], "alexnet cannot be planned within 1024 bytes; the least"),
        (["plan", "alexnet", "--calls", "0"], "calls must be a number above 0, not 0"),
        (["plan", "alexnet", "-b", "0"], "impossible batch size 0"),
        (["plan", "alexnet", "-o", "/no/such/place/plan.json"], "cannot write /no/such/place/plan.json"),
        (["validate", "alexnet", "--device", "cuda:99"], "there is no device cuda:99"),
        (["validate", "alexnet", "--device", "tpu"], "choose cpu, cuda or cuda:N"),
        (["validate", "alexnet", "--device", "cpu", "--plan", "none.json"], "none.json: cannot be read"),
        (["validate", "alexnet", "--device", "cpu", "--mode", "warp", "--no-plan"], "'warp' is not one"),
        (["validate", "alexnet", "--seconds", "0"], "--seconds must be above 0"),
    ],
)
def test_wrong_requests_get_one_line(arguments, message, capsys):
    assert main([*arguments, "-q"]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_a_partial_graph_is_not_planned():
    class Odd(nn.Module):
        def forward(self, x):
            return x[x > 0]

    with pytest.raises(CaptureError, match="needs the values of a tensor"):
        costmodel.plan(Odd().eval(), (torch.empty(4, device="meta"),), hardware="nvidia-h200")
