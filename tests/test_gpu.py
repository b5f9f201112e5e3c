"""Tests that need a GPU: timing by CUDA graphs, a sweep on a device, plans in CUDA graphs, ATen's batch norm."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import costmodel

pytestmark = [
    pytest.mark.gpu,
    # torch's own, when Inductor is imported and when it compiles float32 products
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores for float32:UserWarning"),
]

SIZE = 4096
ROOT = Path(costmodel.__file__).parent.parent

REFUSED_CAPTURE = """
import torch
from costmodel.errors import MeasurementError
from costmodel.measurement.timers import NOT_CAPTURABLE
from costmodel.measurement.timers import device_time
x = torch.randn(8, device="cuda")
try:
    device_time(lambda: x.sum().item())
except MeasurementError as error:
    assert NOT_CAPTURABLE in str(error), error
    print("refused")
"""

# after a profile, CUPTI stays attached and slows every later launch of its process
PROFILED_BATCH_NORM = """
import torch
from torch.profiler import ProfilerActivity, profile
norm = torch.nn.BatchNorm2d(8).eval().cuda()
x = torch.randn(2, 8, 4, 4, device="cuda")
with torch.no_grad(), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
    norm(x)
print(sorted({event.name for event in trace.events()}))
"""

LAYERS = """
import torch, costmodel
from costmodel.measurement.timers import device_time
from costmodel.zoo import load_real
loaded = load_real("resnet18", torch.device("cuda"), batch_size=8)
inputs = tuple(loaded.inputs)
with torch.no_grad():
    whole = device_time(lambda: loaded.module(*inputs)).median_us
plan = costmodel.plan(loaded.module, inputs, hardware="nvidia-h200")
result = costmodel.validate(loaded.module, inputs, plan=plan, modes=("default",), seconds=0.01, layers=True)
assert all(region.measured_us > 0 for region in result.regions) and len(result.regions) == len(plan.regions)
assert all(layer.measured_us for layer in result.compiled_layers), result.compiled_layers
print(len(result.layers), sum(layer.measured_us for layer in result.layers) / whole)
"""


def run_apart(code: str) -> str:
    """Output of code in a process of its own, which may leave CUDA unusable."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_device_time_of_a_product_lies_between_the_roofline_and_ten_times_that():
    import torch

    from costmodel.measurement.timers import device_time, latency

    x = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
    measured = device_time(lambda: x @ x)
    least_us = 2 * SIZE**3 / 990e6  # the dense float16 peak of a Hopper SXM part, operations a microsecond
    assert least_us < measured.median_us < 10 * least_us
    assert latency(lambda: x @ x).median_us > measured.median_us


def test_device_time_grows_with_the_work():
    import torch

    from costmodel.measurement.timers import device_time

    small, large = (torch.randn(n << 20, device="cuda") for n in (16, 64))
    ratio = device_time(lambda: large.add(1.0)).median_us / device_time(lambda: small.add(1.0)).median_us
    assert 3.0 < ratio < 6.0


def test_memory_of_captured_graphs_is_kept_until_it_is_released():
    import torch

    from costmodel.measurement.timers import device_time, release_memory

    release_memory()
    before = torch.cuda.memory_reserved()
    x = torch.randn(64 << 20, device="cuda")
    device_time(lambda: x.add(1.0))
    kept = torch.cuda.memory_reserved()
    assert kept >= before + 3 * x.nbytes  # the tensor, a result at the warm-up, and one in the pool of graphs
    device_time(lambda: x.add(1.0))
    assert torch.cuda.memory_reserved() == kept
    release_memory()
    assert torch.cuda.memory_reserved() <= kept - 2 * x.nbytes


def test_what_inductor_compiled_before_comes_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import torch
    from torch._dynamo.utils import counters

    from costmodel.execution.fx_module import build_module
    from costmodel.execution.inductor_compile import compile_module
    from costmodel.ir import parse

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    text = "graph _ {\n  input %a0: float32[4,8]\n  %0 = relu(self=%a0) : float32[4,8]\n  return %0\n}"
    x = torch.randn(4, 8, device="cuda")
    hits = []
    for _ in range(2):
        before = counters["inductor"]["fxgraph_cache_hit"]
        with torch.no_grad():
            (result,) = compile_module(build_module(parse(text)), [x])(x)
        torch.testing.assert_close(result, x.relu())
        hits.append(counters["inductor"]["fxgraph_cache_hit"] - before)
    assert hits == [0, 1]


def test_what_a_cuda_graph_cannot_hold_is_refused():
    assert run_apart(REFUSED_CAPTURE).split() == ["refused"]


def test_a_sweep_measures_what_it_can_and_names_what_it_cannot(tmp_path: Path):
    from collectors.sweep.executor import sweep
    from collectors.sweep.ledger import Ledger
    from collectors.sweep.settings import SweepSettings
    from collectors.workloads.cases import UnitCase
    from collectors.workloads.convolution_space import ConvUnit, unit_cases

    unit = ConvUnit(batch=2, in_channels=16, out_channels=32, size=14, kernel=3, padding=1)
    cases = [*unit_cases(unit)]
    graph = "graph _ {\n  input %a0: float32[4]\n  %0 = no_such_operator(self=%a0) : float32[4]\n  return %0\n}"
    cases.append(UnitCase(graph, "aten"))
    path = tmp_path / "ledger.sqlite"
    sweep(cases, path, SweepSettings("cuda", 240.0), lambda _: None)
    with Ledger(path) as ledger:
        rows = {row["way"]: row for row in ledger.rows()}
    assert {way for way, row in rows.items() if row["status"] in ("ok", "noisy")} == {
        "eager",
        "eager_nhwc",
        "inductor",
        "folded",
        "cudnn",
    }
    assert rows[""]["status"] == "failed"
    assert "no_such_operator" in rows[""]["error"]
    assert all(row["device_us"][2] > 0 for way, row in rows.items() if way)


def test_a_worker_is_replaced_after_a_case_that_cannot_be_captured(tmp_path: Path):
    from collectors.sweep.executor import sweep
    from collectors.sweep.ledger import Ledger
    from collectors.sweep.settings import SweepSettings
    from collectors.workloads.cases import UnitCase

    # the number of different elements has to come to the host, which a capture forbids
    unique = (
        "graph _ {\n  input %a0: float32[8]\n"
        "  %0 = unique_consecutive(self=%a0) : float32[8], int64[0], int64[0]\n  return %0\n}"
    )
    relu = "graph _ {\n  input %a0: float32[8]\n  %0 = relu(self=%a0) : float32[8]\n  return %0\n}"
    path = tmp_path / "ledger.sqlite"
    sweep([UnitCase(unique, "aten"), UnitCase(relu, "aten")], path, SweepSettings("cuda", 240.0), lambda _: None)
    with Ledger(path) as ledger:
        rows = {"unique" in row["graph"]: row for row in ledger.rows()}
    assert rows[True]["status"] == "failed"
    assert "not capturable" in rows[True]["error"]
    assert rows[False]["status"] in ("ok", "noisy")


def test_batch_norm_in_evaluation_is_cudnns_in_float32():
    assert "'aten::cudnn_batch_norm'" in run_apart(PROFILED_BATCH_NORM)


def test_layers_in_the_running_model_add_up_to_its_device_time():
    count, share = run_apart(LAYERS).split()
    assert int(count) == 23
    assert 0.8 < float(share) < 1.2


@pytest.mark.parametrize("forked", [False, True])
def test_a_plan_is_replayed_as_one_graph_and_its_results_stay(forked):
    import torch

    from costmodel.execution.cuda_graph import Replay
    from costmodel.planning.blocks import find_blocks
    from costmodel.planning.stream_assignment import assign_streams
    from costmodel.rewrites.hoist_constants import hoist_constants
    from costmodel.rewrites.registry import REWRITES, apply_rewrites
    from tests.execution.test_planned_module import Fork, plan_for

    net, x = Fork().eval().cuda(), torch.randn(4, 3, 32, 32, device="cuda")
    rewrites = tuple(
        name for name in REWRITES if name != "sink_epilogues_into_cat"
    )  # that takes the convolutions' epilogues
    main = hoist_constants(apply_rewrites(_exact(net, x), rewrites)).main
    backends = ["cudnn" if block.fusible else "inductor" for block in find_blocks(main)]
    made = plan_for(net, (x,), rewrites=rewrites)
    regions = [replace(region, backend=backend) for region, backend in zip(made.regions, backends, strict=True)]
    assert backends.count("cudnn") == 3
    if forked:
        after = [program_step.after for program_step in _steps(main, regions)]
        regions = [
            replace(region, stream=stream) for region, stream in zip(regions, assign_streams(after), strict=True)
        ]
        assert {region.stream for region in regions} == {0, 1}
    fast = costmodel.apply(net, replace(made, regions=tuple(regions), search=forked), (x,))
    assert fast.replaced == ()
    with torch.no_grad():
        first = fast(x)
        kept = first.clone()
        second = fast(-x)
        torch.testing.assert_close(first, kept, rtol=0, atol=0)
        torch.testing.assert_close(first, net(x), rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(second, net(-x), rtol=1e-2, atol=1e-2)
    assert all(isinstance(program, Replay) for _, program in fast._runner().ready.values())


def test_a_replay_does_not_write_into_memory_that_cublas_gave_back():
    """torch.compile's CUDA graphs free the workspaces; a matmul this deep needs one."""
    import torch
    from torch import nn

    from tests.execution.test_planned_module import plan_for

    net, x = nn.Linear(1 << 15, 64, bias=False).eval().cuda().half(), torch.randn(32, 1 << 15, device="cuda").half()
    fast = costmodel.apply(net, plan_for(net, (x,)), (x,))
    with torch.no_grad():
        expected = fast(x)
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        others = [torch.zeros(1 << 20, dtype=torch.int32, device="cuda") for _ in range(64)]
        torch.testing.assert_close(fast(x), expected, rtol=0, atol=0)
        torch.cuda.synchronize()
    assert not any(map(torch.Tensor.any, others))


def _steps(main, regions):
    from costmodel.execution.regions import PlannedProgram

    return PlannedProgram(main, regions, {value.name: None for value in main.values if value.role == "param"}, {}).steps


def _exact(net, x):
    from costmodel.capture.executable import capture_exactly

    return capture_exactly(net, (x,), "m").graph


def _applied_on_gpu():
    import torch

    from tests.execution.test_module_behaviour import ConvNet
    from tests.execution.test_planned_module import plan_for

    net, x = ConvNet().cuda(), torch.randn(2, 3, 8, 8, device="cuda")
    plan = plan_for(net, (x,))
    return net, costmodel.apply(net, plan, (x,)), x


def _assert_same(fast, net, x):
    import torch

    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("assign", [False, True])
def test_new_weights_are_replayed_at_the_next_call(assign):
    from costmodel.execution.cuda_graph import Replay
    from tests.execution.test_module_behaviour import ConvNet

    net, fast, x = _applied_on_gpu()
    other = ConvNet(7).cuda()
    fast.load_state_dict(other.state_dict(), assign=assign)
    _assert_same(fast, other, x)
    _assert_same(net, other, x)
    assert all(isinstance(program, Replay) for _, program in fast._runner().ready.values())


def test_an_applied_module_on_a_gpu_is_not_cast_or_moved():
    from costmodel.errors import PlanError

    net, fast, x = _applied_on_gpu()
    for convert in (fast.half, fast.cpu, fast.double):
        with pytest.raises(PlanError, match="convert the original"):
            convert()
    assert fast.cuda() is fast
    _assert_same(fast, net, x)


def test_an_applied_module_on_a_gpu_is_copied_and_pickled():
    import copy
    import pickle

    net, fast, x = _applied_on_gpu()
    for other in (copy.copy(fast), copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        _assert_same(other, net, x)
        assert other._runner().ready
        assert other._runner() is not fast._runner()


def test_calls_from_several_streams_and_threads_keep_to_their_own_inputs():
    import threading

    import torch

    net, fast, x = _applied_on_gpu()
    inputs = [x + number for number in range(8)]
    found = {}

    def call(number):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            found[number] = [fast(inputs[number]) for _ in range(20)]

    torch.cuda.synchronize()
    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    torch.cuda.synchronize()
    with torch.no_grad():
        for number, results in found.items():
            expected = net(inputs[number])
            for result in results:
                torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)
    assert len(found) == 8


def test_autocast_and_dispatch_modes_see_the_original_on_a_gpu():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    net, fast, x = _applied_on_gpu()
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        assert fast(x).dtype == net(x).dtype == torch.float16
    counts = []
    for module in (fast, net):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            module(x)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
