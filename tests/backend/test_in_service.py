"""Compiled modules in service: new and shared weights, copies, threads, inference mode, autocast, many calls."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from costmodel.backend import compile_graph, planned_graph
from costmodel.backend.planned_graph import PlannedGraph
from costmodel.errors import PlanError
from costmodel.execution import planned_module, runner
from tests.backend.test_dynamo_backend import Net, close, net_and_input
from tests.execution.test_planned_module import plan_for
from tests.support.uncompiled import compiled, explained, uncompiled


def planned_graphs() -> list[PlannedGraph]:
    """Graphs that run by plans in this process."""
    return [found for found in gc.get_objects() if type(found) is PlannedGraph]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))) + x


class TestWeights:
    def test_memory_that_is_exchanged_under_the_same_parameters_counts_from_the_next_call(self):
        """The call after next runs by the new binding, and going back to the first memory by the first one."""
        net, x = net_and_input()
        parameters = list(net.parameters())
        first = [parameter.data for parameter in parameters]
        second = [parameter.data * 1.5 for parameter in parameters]
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            for _ in range(2):
                close(fast(x), net(x))
            for memory in (second, first, second):
                for parameter, data in zip(parameters, memory, strict=True):
                    parameter.data = data
                for _ in range(2):
                    close(fast(x), net(x))
            assert [graph.choice for graph in explained(fast).graphs] == ["plan"]

    @pytest.mark.parametrize("assign", [False, True])
    def test_new_ones_count_from_the_next_call(self, assign):
        net, x = net_and_input()
        torch.manual_seed(5)
        other = Net().eval()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            fast(x)
            net.load_state_dict(other.state_dict(), assign=assign)
            close(fast(x), other(x))
            assert [graph.choice for graph in explained(fast).graphs] == ["plan"]
            assert explained(fast).graphs[0].notes == ()

    @pytest.mark.parametrize("options", [{}, {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}])
    def test_one_in_the_middle_counts_from_the_next_call(self, options):
        """The first and the last parameter, by which the latest program is found, stay the same."""
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net, **options)
            close(fast(x), net(x))
            before = net.norm.weight
            for weight in (nn.Parameter(torch.full((8,), 3.0)), nn.Parameter(torch.full((8,), 0.5)), before):
                net.norm.weight = weight
                close(fast(x), net(x))
                close(fast(x), net(x))

    def test_replaced_ones_are_freed(self):
        net, x = net_and_input()
        gc.collect()
        before = len(planned_graphs())
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            for seed in range(5):
                torch.manual_seed(seed)
                net.load_state_dict(Net().state_dict(), assign=True)
                close(fast(x), net(x))
            gc.collect()
            (graph,) = planned_graphs()[before:] or planned_graphs()[-1:]
            assert len(graph.bound) == 1

    def test_one_graph_serves_many_blocks(self):
        torch.manual_seed(0)
        blocks = nn.Sequential(*[Block() for _ in range(5)]).eval()
        x = torch.randn(3, 6)
        with uncompiled(), torch.no_grad():
            expected = blocks(x)
            for block in blocks:
                block.compile(backend="costmodel", options={"hardware": "amd-epyc-2-threads"})
            close(blocks(x), expected)
            close(blocks(x), expected)
            assert sum(len(explained(block).graphs) for block in blocks) == 1
            assert max(len(graph.bound) for graph in planned_graphs()) == 5

    def test_more_blocks_than_may_be_bound_run_eagerly_and_that_is_said(self, monkeypatch):
        monkeypatch.setattr(planned_graph, "MOST_BINDINGS", 2)
        torch.manual_seed(0)
        blocks = [Block().eval() for _ in range(4)]
        x = torch.randn(3, 6)

        def run(block, x):
            return block(x)

        with uncompiled(), torch.no_grad():
            fast = compiled(run)
            for block in blocks:
                close(fast(block, x), block(x))
            (graph,) = explained(fast).graphs
        assert graph.notes == ("further parameters run eagerly: 2 sets have programs",)

    def test_parameters_shared_by_two_compiled_modules(self):
        net, x = net_and_input()
        other = nn.Sequential(net.first, net.norm, nn.ReLU()).eval()
        with uncompiled(), torch.no_grad():
            first, second = compiled(net), compiled(other)
            close(first(x), net(x))
            close(second(x), other(x))
            net.first.weight.mul_(2.0)
            close(first(x), net(x))
            close(second(x), other(x))

    def test_a_deep_copy_has_weights_of_its_own(self):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            before = fast(x).clone()
            twin = copy.deepcopy(fast)
            twin.second.weight.zero_()
            close(twin(x), net.second.bias.expand(2, 4))
            close(fast(x), before)

    def test_a_change_of_dtype_makes_another_graph(self):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            fast(x)
            fast.double()
            close(fast(x.double()), net(x.double()))
            assert len(explained(fast).graphs) == 2

    def test_what_fails_for_new_weights_runs_eagerly_from_then_on(self, monkeypatch):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            fast(x)
            net.first.weight.mul_(3.0)
            monkeypatch.setattr(runner, "prepare", lambda *_: 1 / 0)
            close(fast(x), net(x))
            close(fast(-x), net(-x))
            (graph,) = explained(fast).graphs
        assert graph.notes == ("runs eagerly since a call failed: ZeroDivisionError: division by zero",)


def test_threads_get_their_own_outputs():
    net, x = net_and_input()
    found: dict[int, list[torch.Tensor]] = {}
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        fast(x)

        def call(number):
            with torch.no_grad():
                found[number] = [fast(x + number) for _ in range(10)]

        threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for number, outputs in found.items():
            for output in outputs:
                close(output, net(x + number))
    assert len(found) == 6


def test_another_thread_that_captures_is_waited_for_only_so_long(monkeypatch):
    """It may itself wait for Dynamo, whose lock the backend's caller holds."""
    from costmodel.backend import ways
    from costmodel.concurrency import turn_within

    monkeypatch.setattr(ways, "PATIENCE_S", 0.01)
    net, x = net_and_input()
    held, done = threading.Event(), threading.Event()

    def hold():
        with turn_within(10) as got:
            assert got
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
    finally:
        done.set()
        thread.join(10)
    assert graph.choice == "inductor"
    assert "another thread was capturing" in graph.why


@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("second", [torch.no_grad, torch.inference_mode])
def test_inference_mode_and_without_it_in_turn(first, second):
    net, x = net_and_input()
    with uncompiled():
        fast = compiled(net)
        for mode in (first, second, first):
            with mode():
                got = fast(x.clone())
                net.first.weight.data.copy_(net.first.weight)
                close(got, net(x))
        assert {graph.choice for graph in explained(fast).graphs} == {"plan"}


class TestWithinACaptureOfTheCallers:
    """In a CUDA graph that is being captured nothing may be compiled, tried or captured."""

    def test_a_first_call_runs_eagerly(self, monkeypatch):
        monkeypatch.setattr(compile_graph, "is_capturing", lambda: True)
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
        assert graph.choice == "eager"
        assert "first called within a capture" in graph.why

    def test_other_parameters_run_eagerly_until_it_ends(self, monkeypatch):
        blocks = [Block().eval() for _ in range(2)]
        x = torch.randn(3, 6)
        gc.collect()
        with uncompiled(), torch.no_grad():
            fast = compiled(lambda block, x: block(x))
            fast(blocks[0], x)
            (graph,) = [graph for graph in planned_graphs() if len(graph.bound) == 1][-1:]
            for within, sets in ((True, 1), (False, 2)):
                monkeypatch.setattr(planned_graph, "is_capturing", lambda within=within: within)
                close(fast(blocks[1], x), blocks[1](x))
                assert len(graph.bound) == sets

    def test_new_weights_run_eagerly_until_it_ends(self, monkeypatch):
        net, x = net_and_input()
        fast = planned_module.apply(net, plan_for(net, (x,)), (x,))
        with torch.no_grad():
            ((_, before),) = fast._runner().ready.values()
            net.first.weight.mul_(2.0)
            for within in (True, True, False, False):
                monkeypatch.setattr(runner, "is_capturing", lambda within=within: within)
                close(fast(x), net(x))
                ((_, program),) = fast._runner().ready.values()
                assert (program is before) == within
        assert fast.fallbacks == ()


@pytest.mark.filterwarnings("error")
def test_ten_thousand_calls_leave_nothing_behind():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        for _ in range(10):
            fast(x)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(10_000):
            fast(x)
        gc.collect()
        assert len(gc.get_objects()) <= before + 50


class TestShortMemory:
    @pytest.fixture
    def short(self, monkeypatch):
        """Let the device be out of memory whenever a plan is made ready."""

        def prepare(*_):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

        monkeypatch.setattr(runner, "prepare", prepare)

    def test_an_applied_module_runs_eagerly_and_says_so(self, short, caplog):
        net, x = net_and_input()
        fast = planned_module.apply(net, plan_for(net, (x,)), (x,))
        said = "m runs eagerly: out of memory while its plan was made ready"
        assert fast.fallbacks == (said,)
        assert caplog.messages == [said]
        with torch.no_grad():
            assert torch.equal(fast(x), net(x))

    def test_behind_another_error_it_is_found(self, monkeypatch):
        def prepare(*_):
            try:
                raise torch.OutOfMemoryError("CUDA out of memory")
            except torch.OutOfMemoryError:
                raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904

        monkeypatch.setattr(runner, "prepare", prepare)
        net, x = net_and_input()
        assert len(planned_module.apply(net, plan_for(net, (x,)), (x,)).fallbacks) == 1

    def test_tensors_made_until_then_are_freed_at_once(self, monkeypatch):
        """Frames of the error refer to them, and the error to its frames, until the garbage is collected."""
        made = []

        def prepare(*_):
            large = torch.ones(1000)
            made.append(weakref.ref(large))
            try:
                raise torch.OutOfMemoryError("CUDA out of memory")
            except torch.OutOfMemoryError as error:
                kept = error
                raise RuntimeError("operation failed due to a previous error during capture") from kept

        monkeypatch.setattr(runner, "prepare", prepare)
        net, x = net_and_input()
        gc.collect()
        gc.disable()
        try:
            planned_module.apply(net, plan_for(net, (x,)), (x,))
            assert made[0]() is None
        finally:
            gc.enable()

    def test_a_compiled_one_too(self, short):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
        assert graph.choice == "eager"
        assert "out of memory" in str(graph)


def test_an_applied_module_serves_eight_shapes_and_no_more_programs():
    net, _ = net_and_input()
    first = torch.randn(1, 3, 8, 8)
    fast = planned_module.apply(net, plan_for(net, (first,)), (first,))
    with torch.no_grad():
        for size in (*range(8, 20), *range(8, 20)):
            x = torch.randn(1, 3, size, size)
            close(fast(x), net(x))
    assert len(fast._runner().ready) == 8


def test_an_applied_module_is_refused_another_device_and_keeps_working():
    net, x = net_and_input()
    fast = planned_module.apply(net, plan_for(net, (x,)), (x,))
    with pytest.raises(PlanError, match="convert the original module"):
        fast.to("meta")
    with torch.no_grad():
        close(fast(x), net(x))


@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("second", [torch.no_grad, torch.inference_mode])
def test_an_applied_module_in_inference_mode_and_without_it(first, second):
    net, x = net_and_input()
    fast = planned_module.apply(net, plan_for(net, (x,)), (x,))
    other = torch.randn(2, 3, 9, 9)
    with first():
        close(fast(other), net(other))
    with second():
        close(fast(other.clone()), net(other))
    assert fast.fallbacks == ()
