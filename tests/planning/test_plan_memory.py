"""Memory of plans: against watched storages, by hand, and as a limit."""

import itertools
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import costmodel
from costmodel.capture.executable import capture_exactly
from costmodel.cli import main as command
from costmodel.cli.plan import parse_size
from costmodel.errors import RequestError
from costmodel.execution.regions import PlannedProgram, prepare
from costmodel.ir import Graph, parse
from costmodel.ir.subgraph import cut
from costmodel.measurement.peak_memory import StorageWatch
from costmodel.planning.blocks import find_blocks
from costmodel.planning.plan import Region
from costmodel.planning.plan_memory import plan_bytes, region_bytes, stream_peaks
from costmodel.planning.plan_report import render_plan
from costmodel.planning.planner import LEAST_GAIN, Objective, make_plan
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from tests.execution.test_planned_module import Fork
from tests.rewrites.test_merge_sibling_convs import Inception
from tests.rewrites.test_registry import Net
from tests.rewrites.test_sink_epilogues_into_cat import Fire

KIB = 1024


def region(*ops: str, backend: str = "eager", stream: int = 0) -> Region:
    return Region(backend, ops, (), 1.0, stream=stream)


@pytest.mark.parametrize("size", [(2, 3, 16, 16), (1, 3, 33, 17)])
@pytest.mark.parametrize(
    "rewrites", [(), ("fold_batch_norm",), ("fold_batch_norm", "merge_sibling_convs", "sink_epilogues_into_cat")]
)
@pytest.mark.parametrize("module", [Net, Fork, Fire, Inception])
@pytest.mark.parametrize("whole", [False, True])
def test_a_row_of_regions_holds_what_a_watch_counts(module, rewrites, size, whole):
    size = (size[0], 6, *size[2:]) if module is Inception else size
    net, x = module().eval(), torch.randn(size)
    exact = capture_exactly(net, (x,), "net")
    hoisted = hoist_constants(apply_rewrites(exact.graph, rewrites))
    blocks = (
        [tuple(op.name for op in hoisted.main.ops)] if whole else [block.ops for block in find_blocks(hoisted.main)]
    )
    regions = [region(*ops) for ops in blocks]
    state = dict(net.named_parameters()) | dict(net.named_buffers())
    params = prepare(hoisted, exact, state, torch.device("cpu"))
    program = PlannedProgram(hoisted.main, regions, params, {})
    watch = StorageWatch()
    watch.watch([*params.values(), x])
    before = watch.live_bytes
    with torch.no_grad(), watch:
        outputs = program.run([x])
    assert outputs
    assert stream_peaks(hoisted.main, regions) == {0: watch.peak_bytes - before}


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


def test_streams_share_no_memory_by_hand():
    # sizes in KiB: 0: 1, 1: 2, 2: 4, 3: 2, 4: 1, 5: 1
    row = [region(str(number)) for number in range(6)]
    # alive while each runs: 0; 0 1; 0 1 2 -> 7; 1 2 3 -> 8; 2 3 4 -> 7; 4 5
    assert stream_peaks(DIAMOND, row) == {0: 8 * KIB}
    forked = [region(str(number), stream=int(number == 2)) for number in range(6)]
    # on stream 0 nothing dies before 4, beside which nothing runs: 0 1 3 4 -> 6, and 4 on stream 1
    assert stream_peaks(DIAMOND, forked) == {0: 6 * KIB, 1: 4 * KIB}


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
    main = hoist_constants(graph).main
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


def least_mib(graph: Graph, profile, strategy: str = "exact", calls: float = math.inf) -> int:
    """The least that the refusal of an impossible limit names."""
    with pytest.raises(RequestError, match=r"the least .* is \d+ MiB$") as caught:
        make_plan(graph, profile, {}, "2.11", strategy, Objective(calls=calls, memory_limit=1))
    return int(str(caught.value).split()[-2])


@pytest.mark.slow
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    widths=st.lists(st.sampled_from((8, 24, 64)), min_size=1, max_size=3),
    batch=st.sampled_from((1, 32)),
    calls=st.sampled_from((1.0, 100.0, math.inf)),
    strategy=st.sampled_from(("exact", "published")),
)
def test_the_least_is_accepted_and_a_mebibyte_less_is_not(profile, widths, batch, calls, strategy):
    layers = [
        layer
        for before, after in itertools.pairwise((3, *widths, 64))
        for layer in (nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())
    ]
    graph = capture_exactly(nn.Sequential(*layers).eval(), (torch.empty(batch, 3, 40, 40),), "net").graph
    least = least_mib(graph, profile, strategy, calls)
    plan = make_plan(graph, profile, {}, "2.11", strategy, Objective(calls=calls, memory_limit=least << 20))
    assert (least - 1) << 20 < plan.memory_bytes <= least << 20
    with pytest.raises(RequestError, match=f"cannot be planned within {least - 1} MiB"):
        make_plan(graph, profile, {}, "2.11", strategy, Objective(calls=calls, memory_limit=(least - 1) << 20))
    free = make_plan(graph, profile, {}, "2.11", strategy, Objective(calls=calls))
    assert free.memory_bytes > (least - 1) << 20
    assert least_mib(graph, profile, strategy) >= least  # what compiling costs is no reason to need more memory
    assert f"a call needs about {math.ceil(free.memory_bytes / 2**20)} MiB" in render_plan(
        free
    )  # a limit that it keeps


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
