"""The backend on a GPU: plans in CUDA graphs of one pool, constant parameters, streams, captures, short memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from torch import nn

import costmodel
from costmodel.backend import device_profile
from costmodel.backend.graph_report import CHOICES
from costmodel.backend.planned_graph import PlannedGraph
from costmodel.backend.planning_step import Planning
from costmodel.execution import cuda_graph
from costmodel.execution.cuda_graph import Pool, Replay
from costmodel.execution.numerics import allowed_error, worst_error
from costmodel.execution.runner import Runner
from costmodel.execution.torch_settings import matmul_precision
from tests.backend.test_dynamo_backend import Net
from tests.backend.test_odd_graphs import ODD, assert_same
from tests.execution.test_planned_module import plan_for
from tests.support.reported_models import MODELS
from tests.support.uncompiled import uncompiled

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def plans_first() -> Iterator[None]:
    """Take the plan of every graph that has one, with whatever the tests' small networks would be fastest by."""
    with patch.object(Planning, "order", lambda self, calls: CHOICES):
        yield


def net_and_input(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval().to("cuda", dtype), torch.randn(2, 3, 32, 32, device="cuda", dtype=dtype)


def compiled(function, **options):
    return torch.compile(function, backend="costmodel", options=options or None)


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)


def replays() -> list[Replay]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is Replay]


@pytest.mark.usefixtures("plans_first")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_plan_is_replayed_with_parameters_in_place(dtype):
    net, x = net_and_input(dtype)
    before = len(replays())
    with torch.no_grad():
        fast = compiled(net)
        close(fast(x), net(x))
        close(fast(-x), net(-x))
    (graph,) = costmodel.explain_backend(fast).graphs
    assert graph.choice == "plan", str(graph)
    made = replays()[before:]
    assert [len(replay._inputs) for replay in made] == [1]  # the image; parameters are read where they are


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_networks_give_eager_outputs_and_run_by_plans(name):
    from costmodel.zoo import load_real

    loaded = load_real(name, torch.device("cuda"), batch_size=8, precision="float16")
    with torch.no_grad():
        fast = compiled(loaded.module)
        got, expected = fast(*loaded.inputs), loaded.module(*loaded.inputs)
    assert worst_error([got], [expected]) <= allowed_error([expected], 2e-3)
    assert [graph.choice for graph in costmodel.explain_backend(fast).graphs] == ["plan"]


@pytest.mark.parametrize("name", [name for name in ODD if name != "a sparse tensor"])
def test_odd_functions_give_eager_results(name):
    function, arguments = ODD[name]

    def outcome(backend):
        torch._dynamo.reset()
        made = torch.compile(function, backend=backend)
        given = tuple(item.cuda() if isinstance(item, torch.Tensor) else item for item in arguments)
        with torch.no_grad():
            return made(*given), made(*given), given

    with uncompiled():
        assert_same(outcome("costmodel"), outcome("eager"))


@pytest.mark.parametrize("name", MODELS)
def test_reported_models_give_eager_outputs(name):
    def outputs(backend):
        torch._dynamo.reset()
        torch.manual_seed(0)
        fast = torch.compile(MODELS[name]().eval().cuda(), backend=backend)
        with torch.no_grad():
            return [fast(torch.full((2, 3, 8, 8), value, device="cuda")) for value in (0.5, -1.0, 0.5)]

    with uncompiled():
        torch.testing.assert_close(outputs("costmodel"), outputs("eager"), rtol=2e-2, atol=2e-2)


def test_without_a_profile_candidates_are_measured(monkeypatch):
    monkeypatch.setattr(device_profile, "profile_of_gpu", lambda _: None)
    net, x = net_and_input()
    with torch.no_grad():
        fast = compiled(net)
        close(fast(x), net(x))
    (graph,) = costmodel.explain_backend(fast).graphs
    assert graph.measured
    assert set(graph.times_ms) == {"plan", "inductor", "eager"}


@pytest.mark.usefixtures("plans_first")
def test_new_weights_are_replayed_and_copies_have_their_own():
    import copy

    net, x = net_and_input()
    torch.manual_seed(4)
    other = Net().eval().cuda()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        fast(x)
        twin = copy.deepcopy(fast)
        net.load_state_dict(other.state_dict())
        close(fast(x), other(x))
        twin.second.weight.zero_()
        close(twin(x), twin._orig_mod(x))
        close(fast(x), other(x))


@pytest.mark.usefixtures("plans_first")
def test_threads_on_their_own_streams():
    net, x = net_and_input()
    found = {}
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        fast(x)
        torch.cuda.synchronize()

        def call(number):
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                found[number] = [fast(x + number) for _ in range(20)]

        threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        torch.cuda.synchronize()
        for number, outputs in found.items():
            for output in outputs:
                close(output, net(x + number))
    assert len(found) == 6


@pytest.mark.usefixtures("plans_first")
@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("second", [torch.no_grad, torch.inference_mode])
def test_inference_mode_and_without_it(first, second):
    net, x = net_and_input()
    with uncompiled():
        fast = compiled(net)
        for mode in (first, second, first):
            with mode():
                close(fast(x.clone()), net(x))


def assert_as(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype is expected.dtype
    assert worst_error([got], [expected]) <= allowed_error([expected], 0.0, (dtype,))


def assert_replayed(fast, calls: int, count: list[Replay]) -> None:
    """All graphs run by plans, without later events, and so many calls were replays."""
    graphs = costmodel.explain_backend(fast).graphs
    assert [graph.choice for graph in graphs] == ["plan"] * len(graphs), str(costmodel.explain_backend(fast))
    assert not [note for graph in graphs for note in graph.notes if "alone" not in note]
    assert len(count) == calls


@pytest.fixture
def replayed(monkeypatch) -> list[Replay]:
    """Each replay of a CUDA graph in a call, trials left out."""
    made: list[Replay] = []
    run = Runner._outputs
    monkeypatch.setattr(
        Runner,
        "_outputs",
        lambda self, program, inputs: (type(program) is Replay and made.append(program), run(self, program, inputs))[1],
    )
    return made


@pytest.mark.usefixtures("plans_first")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_around_the_call(dtype, replayed):
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        for _ in range(2):
            with torch.autocast("cuda", dtype):
                for sign in (1, -1):
                    assert_as(fast(sign * x), net(sign * x), dtype)
            close(fast(x), net(x))
    assert_replayed(fast, 6, replayed)
    amps = [graph.plan.amp for graph in costmodel.explain_backend(fast).graphs]
    assert amps == [str(dtype).removeprefix("torch."), None]


@pytest.mark.usefixtures("plans_first")
@pytest.mark.parametrize("around", [False, True])
def test_autocast_within_the_model(around, replayed):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x):
            with torch.autocast("cuda", torch.float16):
                y = self.norm(self.first(x)).softmax(-1)
                with torch.autocast("cuda", enabled=False):
                    z = self.second(y.float())
            with torch.autocast("cpu", torch.bfloat16):  # casts nothing here
                return torch.cat([y, z, self.second(x).float()], 0)

    torch.manual_seed(0)
    net, x = Mixed().eval().cuda(), torch.randn(4, 8, device="cuda")
    with uncompiled(), torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=around):
        fast = compiled(net)
        for sign in (1, -1):
            assert_as(fast(sign * x), net(sign * x), torch.float16)
    assert_replayed(fast, 2, replayed)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_networks_under_autocast(name):
    """With compilers, and whichever way is the fastest."""
    from costmodel.zoo import load_real

    loaded = load_real(name, torch.device("cuda"), batch_size=8)
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        fast = compiled(loaded.module)
        got, expected = fast(*loaded.inputs), loaded.module(*loaded.inputs)
    assert got.dtype is expected.dtype
    assert worst_error([got], [expected]) <= allowed_error([expected], 2e-3, (torch.float16,))
    assert "under autocast" not in str(costmodel.explain_backend(fast))


@pytest.mark.usefixtures("plans_first")
@pytest.mark.parametrize("amp", [False, True])
def test_further_sizes_in_turn(amp, replayed):
    net, _ = net_and_input()
    sizes = (4, 2, 3, 5, 2, 5, 4, 3)
    with uncompiled(), torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=amp):
        fast = compiled(net)
        for size in sizes:
            x = torch.randn(size, 3, 32, 32, device="cuda")
            got, expected = fast(x), net(x)
            assert got.dtype is expected.dtype
            close(got, expected)
        assert_replayed(fast, len(sizes), replayed)
        for size in (6, 7, 6, 2):
            x = torch.randn(size, 3, 32, 32, device="cuda")
            close(fast(x), net(x))
    graphs = costmodel.explain_backend(fast).graphs
    assert [graph.choice for graph in graphs] == ["plan"] * 4 + ["inductor"]
    assert len(replayed) == len(sizes) + 1


@pytest.mark.usefixtures("plans_first")
def test_further_sizes_with_compilers_on_their_own_stream():
    net, _ = net_and_input(torch.float16)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        fast = compiled(net)
        for size in (4, 2, 4, 3, 2):
            x = torch.randn(size, 3, 32, 32, device="cuda", dtype=torch.float16)
            close(fast(x), net(x))
        torch.cuda.synchronize()
    assert {graph.choice for graph in costmodel.explain_backend(fast).graphs} == {"plan"}


@pytest.mark.usefixtures("plans_first")
def test_eight_sizes_share_memory_and_weights():
    """Weights of 256 MiB, cast to 128 MiB once, and activations of 128 MiB that lie where those of other sizes do."""
    mib = 2**20
    net = nn.Sequential(nn.Linear(8192, 8192), nn.ReLU(), nn.Linear(8192, 8)).eval().cuda()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    with uncompiled(), torch.no_grad(), torch._dynamo.config.patch(recompile_limit=16):
        with torch.autocast("cuda", torch.float16):
            fast = compiled(net)
            for size in (*range(8192, 8184, -1), *range(8192, 8184, -1)):
                x = torch.randn(size, 8192, device="cuda", dtype=torch.float16)
                assert_as(fast(x), net(x), torch.float16)
                del x
        assert [graph.choice for graph in costmodel.explain_backend(fast).graphs] == ["plan"] * 8
        gc.collect()
        torch.cuda.empty_cache()
        used = torch.cuda.memory_reserved() - before
    inputs = 8 * 128 * mib  # every graph has its own input
    assert used < inputs + (128 + 3 * 128 + 100) * mib


@pytest.mark.usefixtures("plans_first")
def test_new_weights_inside_a_capture_of_the_users():
    """The capture goes on with eager operators, and calls after it are planned."""
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        fast(x)
        net.first.weight.mul_(0.5)
        net(x)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            result = fast(x)
        graph.replay()
        close(result, net(x))
        before = len(replays())
        close(fast(x), net(x))
        assert len(replays()) == before


@pytest.mark.skipif("torch.cuda.device_count() < 2")
@pytest.mark.usefixtures("plans_first")
def test_a_module_on_another_gpu_than_the_current_one(replayed):
    net, x = net_and_input()
    net, x = net.to("cuda:1"), x.to("cuda:1")
    with torch.no_grad():
        fast = compiled(net)
        for sign in (1, -1):
            close(fast(sign * x), net(sign * x))
    assert_replayed(fast, 2, replayed)


@pytest.mark.usefixtures("plans_first")
def test_a_call_inside_a_capture_of_the_users():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        fast(x)
        graph, static = torch.cuda.CUDAGraph(), x.clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            result = fast(static)
        static.copy_(-x)
        graph.replay()
        close(result, net(-x))


def test_eight_shapes_in_turn_share_memory(monkeypatch):
    """Two or three activations of 256 MiB in each of eight shapes: over four GiB if every graph had its own memory."""
    monkeypatch.setattr(cuda_graph, "_pools", weakref.WeakValueDictionary())  # other tests' graphs keep theirs

    class Wide(nn.Module):
        def forward(self, x):
            for _ in range(3):
                x = torch.relu(x + 1)
            return x.mean((1, 2, 3))

    net, mib = Wide().eval(), 2**20
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    shapes = [(71 - number, 1, 1024, 1024) for number in range(8)]  # a smaller graph fits in the memory of a larger one
    first = torch.randn(shapes[0], device="cuda")
    fast = costmodel.apply(net, plan_for(net, (first,)), (first,))
    with torch.no_grad():
        peaks = []
        for _ in range(3):
            for shape in shapes:
                x = torch.randn(shape, device="cuda")
                close(fast(x), net(x))
                del x
            torch.cuda.empty_cache()
            peaks.append(torch.cuda.memory_reserved() - before)
    assert len(fast._runner().ready) == 8, fast.fallbacks
    assert peaks[1] == peaks[2]
    inputs = sum(4 * shape[0] * mib for shape in shapes)  # every graph has its own input
    assert peaks[2] < inputs + 5 * 300 * mib
    pool = cuda_graph._pools.get(torch.device("cuda", 0))
    assert pool is not None
    del fast, pool, first
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < 300 * mib


@pytest.mark.usefixtures("plans_first")
def test_ten_thousand_calls_need_no_more_memory():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        for _ in range(10):
            fast(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        for _ in range(10_000):
            fast(x)
        torch.cuda.synchronize()
        assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_short_memory_while_capturing_leaves_the_module_eager(monkeypatch, caplog):
    def capturing(self, graph):
        raise torch.OutOfMemoryError("CUDA out of memory")

    net, x = net_and_input()
    monkeypatch.setattr(Pool, "capturing", capturing)
    fast = costmodel.apply(net, plan_for(net, (x,)), (x,))
    assert "out of memory" in caplog.text
    assert len(fast.fallbacks) == 1
    with torch.no_grad():
        close(fast(x), net(x))


def test_a_device_that_is_really_full_leaves_the_module_eager():
    """Twelve copies of an activation while planning beside two in eager execution, and memory for four."""

    class Grown(nn.Module):
        def forward(self, x):
            return torch.relu(x).mean()

    net, x = Grown().eval(), torch.randn(256 << 20, device="cuda")  # 1 GiB
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2.5 * x.nbytes) / total)
    try:
        fast = costmodel.apply(net, plan_for(net, (x,)), (x,))
        with torch.no_grad():
            close(fast(x), net(x))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(fast.fallbacks) == 1


@pytest.mark.usefixtures("plans_first")
def test_other_threads_allocate_while_a_graph_is_captured():
    """As data loaders do, which pin memory: with torch's default, a capture would fail or make them fail."""
    net, x = net_and_input()
    stop, errors = threading.Event(), []

    def allocate():
        try:
            while not stop.is_set():
                torch.empty(1 << 20).pin_memory()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = costmodel.explain_backend(fast).graphs
    finally:
        stop.set()
        thread.join(30)
    assert not errors
    assert graph.choice == "plan", str(graph)


@pytest.mark.usefixtures("plans_first")
def test_parameters_of_a_planned_graph_are_freed():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        fast(x)
        found = [one for one in gc.get_objects() if type(one) is PlannedGraph]
        count = sum(len(one.bound) for one in found)
        net.load_state_dict(Net().cuda().state_dict(), assign=True)
        fast(x)
        gc.collect()
        assert sum(len(one.bound) for one in found) == count


FAILED_CAPTURE = """
import torch
import costmodel
from torch import nn
from tests.execution.test_planned_module import plan_for
from costmodel.execution import regions

class Net(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

net, x = Net().eval(), torch.randn(8, device="cuda")
plan = plan_for(net, (x,))
make = regions.build_module

def waiting(graph, device=None):  # waits for the device, which no capture allows
    made = make(graph, device)
    return lambda *given: (torch.cuda.synchronize(), made(*given))[1]

regions.build_module = waiting
try:
    costmodel.apply(net, plan, (x,))
except costmodel.CostmodelError as error:
    assert "cannot be captured" in str(error), error
    print("refused")
regions.build_module = make
torch.randn(8, device="cuda").sum().item()
fast = costmodel.apply(net, plan, (x,))
with torch.no_grad():
    torch.testing.assert_close(fast(x), net(x))
    torch.testing.assert_close(fast(-x), net(-x))
torch.cuda.empty_cache()
print("goes on")
"""


def test_after_a_capture_that_failed_the_process_goes_on():
    """In a process of its own, which it would spoil."""
    done = subprocess.run([sys.executable, "-c", FAILED_CAPTURE], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["refused", "goes on"], done.stderr


def test_a_plan_is_for_the_matmul_precision_of_the_call(plans_first):
    linear, x = nn.Linear(512, 512).eval().cuda(), torch.randn(512, 512, device="cuda")
    with torch.no_grad(), matmul_precision("high"):
        run = compiled(linear)
        close(run(x), linear(x))
        (graph,) = costmodel.explain_backend(run).graphs
    assert graph.choice == "plan"
    assert graph.plan.matmul_precision == "high"
