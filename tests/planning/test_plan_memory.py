"""Memory of plans: as a watch over storages counts it, by hand, and as a limit."""

import itertools
import math

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.executable import capture_exactly
from costmodel.cli import main as command
from costmodel.cli.plan import parse_size
from costmodel.errors import RequestError
from costmodel.execution.regions import Program, prepare
from costmodel.ir import Graph, parse
from costmodel.ir.subgraph import cut
from costmodel.measurement.peak_memory import StorageWatch
from costmodel.planning.blocks import find_blocks
from costmodel.planning.plan import Region
from costmodel.planning.plan_memory import lane_peaks, plan_bytes, region_bytes
from costmodel.planning.planner import LEAST_GAIN, Objective, make_plan
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import freeze
from costmodel.rewrites.registry import rewrite
from tests.execution.test_planned_module import Fork
from tests.rewrites.test_merge_sibling_convs import Inception
from tests.rewrites.test_registry import Net
from tests.rewrites.test_sink_epilogues_into_cat import Fire

KIB = 1024


def region(*ops: str, backend: str = "eager", lane: int = 0) -> Region:
    return Region(backend, ops, (), 1.0, lane=lane)


@pytest.mark.parametrize("size", [(2, 3, 16, 16), (1, 3, 33, 17)])
@pytest.mark.parametrize(
    "moves", [(), ("fold_batch_norm",), ("fold_batch_norm", "merge_siblings", "epilogues_into_cat")]
)
@pytest.mark.parametrize("module", [Net, Fork, Fire, Inception])
@pytest.mark.parametrize("whole", [False, True])
def test_a_row_of_regions_holds_what_a_watch_counts(module, moves, size, whole):
    size = (size[0], 6, *size[2:]) if module is Inception else size
    net, x = module().eval(), torch.randn(size)
    exact = capture_exactly(net, (x,), "net")
    frozen = freeze(rewrite(exact.graph, moves))
    blocks = [tuple(op.name for op in frozen.main.ops)] if whole else [block.ops for block in find_blocks(frozen.main)]
    regions = [region(*ops) for ops in blocks]
    state = dict(net.named_parameters()) | dict(net.named_buffers())
    params = prepare(frozen, exact, state, torch.device("cpu"))
    program = Program(frozen.main, regions, params, {})
    watch = StorageWatch()
    watch.watch([*params.values(), x])
    before = watch.live_bytes
    with torch.no_grad(), watch:
        outputs = program.run([x])
    assert outputs
    assert lane_peaks(frozen.main, regions) == {0: watch.peak_bytes - before}


DIAMOND = parse("""graph g {
  input %x: float32[256]
  %0 = neg(self=%x) : float32[256]
  %1 = relu(self=%0) : float32[512]
  %2 = abs(self=%0) : float32[1024]
  %3 = sin(self=%1) : float32[512]
  %4 = add.Tensor(self=%3, other=%2) : float32[256]
  %5 = neg(self=%4) : float32[256]
  return %5
}""")


def test_lanes_share_no_memory_by_hand():
    # sizes in KiB: 0: 1, 1: 2, 2: 4, 3: 2, 4: 1, 5: 1
    row = [region(str(number)) for number in range(6)]
    # alive while each runs: 0; 0 1; 0 1 2 -> 7; 1 2 3 -> 8; 2 3 4 -> 7; 4 5
    assert lane_peaks(DIAMOND, row) == {0: 8 * KIB}
    forked = [region(str(number), lane=int(number == 2)) for number in range(6)]
    # on lane 0 nothing dies before 4, beside which nothing runs: 0 1 3 4 -> 6, and 4 on lane 1
    assert lane_peaks(DIAMOND, forked) == {0: 6 * KIB, 1: 4 * KIB}


def test_what_inductor_computes_in_passing_takes_no_memory():
    chain = parse(
        "graph g {\n  input %x: float32[256]\n  %0 = relu(self=%x) : float32[256]\n  %1 = neg(self=%0) : float32[256]\n"
        "  %2 = abs(self=%1) : float32[256]\n  return %2\n}"
    )
    part = cut(chain, ("0", "1", "2"))
    assert region_bytes(part, "inductor") == 1 * KIB
    assert region_bytes(part, "eager") == 2 * KIB


def test_weights_copies_and_pool_by_hand():
    graph = parse("""graph g {
  input %x: float32[1,256]
  param %w: float32[256,256]
  %0 = t(self=%w) : float32[256,256] strided
  %1 = mul.Tensor(self=%w, other=%w) : float32[256,256]
  %2 = mm(self=%x, mat2=%1) : float32[1,256]
  return %2
}""")
    main = freeze(graph).main
    plan = [region("2")]
    given, prepared, result = 257 * KIB, 256 * KIB, 1 * KIB
    assert plan_bytes(graph, main, plan, on_graph=False) == given + prepared + result
    copies = 2 * KIB  # the graph's own input, and the copy of its result that is returned
    workspaces = 2 * (32 << 20)  # of cuBLAS: before the capture, and in it
    pool = 2 << 20
    found = plan_bytes(graph, main, plan, on_graph=True, capability="9.0")
    assert found == given + prepared + copies + workspaces + pool


@pytest.fixture(scope="module")
def profile():
    return load_profile("nvidia-h200")


@pytest.fixture(scope="module")
def graph() -> Graph:
    net = nn.Sequential(Inception().eval())
    return capture_exactly(net.eval(), (torch.empty(32, 6, 112, 112),), "net").graph


def test_plans_within_a_limit_keep_it_and_are_slower_the_less_there_is(graph, profile):
    free = make_plan(graph, profile, {}, "2.11")
    assert free.memory_bytes is not None
    with pytest.raises(RequestError, match=r"net cannot be planned within 1 MiB; the least .* is (\d+) MiB") as caught:
        make_plan(graph, profile, {}, "2.11", wanted=Objective(memory_limit=2**20))
    least = int(str(caught.value).split()[-2]) << 20
    assert least < free.memory_bytes
    limits = [least, (least + free.memory_bytes) // 2, free.memory_bytes - 1, free.memory_bytes, 2 * free.memory_bytes]
    plans = [make_plan(graph, profile, {}, "2.11", wanted=Objective(memory_limit=limit)) for limit in limits]
    assert all(plan.memory_bytes <= limit for plan, limit in zip(plans, limits, strict=True))
    latencies = [plan.latency_ms["plan"] for plan in plans]
    assert all(less >= more * (1 - LEAST_GAIN) for less, more in itertools.pairwise(latencies))
    assert latencies[0] > free.latency_ms["plan"]
    assert latencies[3] == latencies[4] == free.latency_ms["plan"]
    with pytest.raises(RequestError, match="cannot be planned"):
        make_plan(graph, profile, {}, "2.11", wanted=Objective(memory_limit=least - 2**20))


def test_the_commands_limit(capsys):
    assert command(["plan", "alexnet", "--hardware", "nvidia-h200", "-q", "--memory-limit", "2G"]) == 0
    assert "a call needs about" in " ".join(capsys.readouterr().out.split())
    assert command(["plan", "alexnet", "--hardware", "nvidia-h200", "-q", "--memory-limit", "100M"]) == 2
    error = capsys.readouterr().err
    assert "alexnet cannot be planned within 100 MiB" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("text", "size"), [("512M", 512 << 20), ("2G", 2 << 30), ("1.5k", 1536)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "512", "M", "-1G", "0M", "1e3M", "3X", "nan", "9" * 30 + "G"])
def test_impossible_sizes(text):
    with pytest.raises(RequestError, match="such as 512M"):
        parse_size(text)


@pytest.mark.parametrize("limit", [0, -1, math.nan])
def test_impossible_limits(limit):
    with pytest.raises(RequestError, match="memory_limit must be a number above 0"):
        costmodel.plan(Net().eval(), (torch.empty(1, 3, 6, 6),), hardware="nvidia-h200", memory_limit=limit)
