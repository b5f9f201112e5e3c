"""Further sizes of one compiled module: a plan for each until half of Dynamo's limit, then one dynamic graph."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from costmodel.backend import compile_graph
from costmodel.backend.dynamic_sizes import MOST_SIZES, most_sizes, reason_to_stay_dynamic, traced_values
from costmodel.backend.planned_graph import PlannedGraph
from tests.backend.test_dynamo_backend import close, net_and_input
from tests.backend.test_in_service import planned_graphs
from tests.support.uncompiled import compiled, explained, uncompiled

config = torch._dynamo.config


@pytest.fixture(autouse=True)
def _around() -> Iterator[None]:
    """Nothing compiles, and a limit of Dynamo that is hit is an error."""
    with uncompiled(), torch.no_grad(), config.patch(fail_on_recompile_limit_hit=True):
        yield


@pytest.fixture
def planned_calls(monkeypatch):
    """Sizes of calls that ran by plans, in a list."""
    calls = []
    run = PlannedGraph.__call__

    def noted(self, *arguments):
        calls.append(tuple(arguments[self._slots.inputs[0]].shape))
        return run(self, *arguments)

    monkeypatch.setattr(PlannedGraph, "__call__", noted)
    return calls


def images(batch: int, height: int = 8, width: int = 8) -> torch.Tensor:
    torch.manual_seed(batch)
    return torch.randn(batch, 3, height, width)


def choices(fast) -> list[str]:
    return [graph.choice for graph in explained(fast).graphs]


def test_each_size_has_a_plan_of_its_own(planned_calls):
    net, _ = net_and_input()
    fast = compiled(net)
    for batch in (2, 3, 4, 2, 4, 3):
        close(fast(images(batch)), net(images(batch)))
    assert choices(fast) == ["plan"] * 3
    assert [shape[0] for shape in planned_calls] == [2, 3, 4, 2, 4, 3]
    plans = [graph.plan.graph for graph in explained(fast).graphs]
    assert len(set(plans)) == 3
    assert [graph.notes for graph in explained(fast).graphs[:2]] == [(), ("for the sizes of this call alone",)]


def test_after_half_of_dynamos_limit_one_graph_serves_all_others_and_plans_go_on(planned_calls):
    net, _ = net_and_input()
    fast = compiled(net)
    for batch in (*range(2, 14), 1, *range(13, 0, -1)):
        close(fast(images(batch)), net(images(batch)))
    assert choices(fast) == ["plan"] * 4 + ["inductor", "plan"]  # the last for one image, which never is dynamic
    assert "of one code at most 4 graphs are made for one size each" in str(explained(fast).graphs[4])
    assert [shape[0] for shape in planned_calls] == [2, 3, 4, 5, 1, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(("limit", "plans"), [(2, 1), (6, 3), (64, 8)])
def test_the_limit_of_the_user_counts(limit, plans):
    """Half of it, but no more CUDA graphs than an applied module has."""
    net, _ = net_and_input()
    with config.patch(recompile_limit=limit):
        assert most_sizes() == plans <= MOST_SIZES
        fast = compiled(net)
        for batch in range(2, 13):
            close(fast(images(batch)), net(images(batch)))
        assert choices(fast) == ["plan"] * plans + ["inductor"]


def test_heights_and_widths(planned_calls):
    net, _ = net_and_input()
    fast = compiled(net)
    sizes = list(itertools.product((2, 3), (8, 9), (8, 10)))
    for batch, height, width in (*sizes, *reversed(sizes)):
        x = images(batch, height, width)
        close(fast(x), net(x))
    assert choices(fast)[:4] == ["plan"] * 4
    assert choices(fast)[4] == "inductor"
    assert len(planned_calls) == 8  # four sizes, twice each


@pytest.mark.parametrize("how", ["dynamic=True", "mark_dynamic", "maybe_mark_dynamic", "mark_dynamic with a range"])
def test_sizes_that_the_user_made_dynamic_are_left_so(how):
    net, _ = net_and_input()
    fast = compiled(net)
    if how == "dynamic=True":
        fast = torch.compile(net, backend="costmodel", dynamic=True, options={"hardware": "amd-epyc-2-threads"})
    for batch in (2, 3, 4):
        x = images(batch)
        if how == "mark_dynamic with a range":
            torch._dynamo.mark_dynamic(x, 0, min=2, max=8)
        elif how != "dynamic=True":
            getattr(torch._dynamo, how)(x, 0)
        close(fast(x), net(x))
    (graph,) = explained(fast).graphs
    assert graph.choice == "inductor"
    assert "its sizes are dynamic, as asked for" in graph.why


def test_marks_after_plans_of_some_sizes():
    net, _ = net_and_input()
    fast = compiled(net)
    for batch in (2, 3, 4, 5):
        x = images(batch)
        if batch > 3:
            torch._dynamo.mark_dynamic(x, 0)
        close(fast(x), net(x))
    assert choices(fast) == ["plan", "plan", "inductor"]


def test_names_of_dynamic_sources_are_respected():
    net, _ = net_and_input()
    with torch.compiler.config.patch(dynamic_sources="L['x']"):
        fast = compiled(net)
        for batch in (2, 3):
            close(fast(images(batch)), net(images(batch)))
    (graph,) = explained(fast).graphs
    assert "its sizes are dynamic, as asked for" in graph.why


def test_where_compiling_again_is_an_error_a_dynamic_graph_stays_so():
    """Dynamo may know from an earlier process that a size changes."""
    env, source = ShapeEnv(), ConstantSource("s")
    symbol = env.create_symintnode(env.create_symbol(4, source), hint=4, source=source)
    assert reason_to_stay_dynamic([symbol]) == ""
    assert traced_values([symbol, "other"]) == [4, "other"]
    with config.patch(error_on_recompile=True):
        assert "error_on_recompile forbids a graph for each" in reason_to_stay_dynamic([symbol])


def test_a_size_that_runs_best_by_inductor_stays_dynamic_and_leaves_planned_sizes_to_plans(monkeypatch, planned_calls):
    """The first is planned, then no plan can be built."""
    net, _ = net_and_input()
    fast = compiled(net)
    close(fast(images(2)), net(images(2)))
    monkeypatch.setattr(compile_graph, "PlannedGraph", lambda *_: 1 / 0)
    for batch in (3, 4, 2, 5, 2):
        close(fast(images(batch)), net(images(batch)))
    assert choices(fast) == ["plan", "inductor"]
    assert [shape[0] for shape in planned_calls] == [2, 2, 2]


def test_sizes_among_results_and_arguments():
    """Numbers that are sizes, as code after a graph break gets them, and as a graph returns them."""

    def function(x, rows):
        torch._dynamo.graph_break()
        y = (torch.relu(x + 1) @ x.transpose(1, 2)).softmax(-1).reshape(rows, -1) * x.shape[0]
        return y, x.shape[0] + rows, {"rows": rows}

    fast = compiled(function)
    for rows in (2, 3, 4, 3, 2, 5, 6, 7, 2):
        x = torch.randn(rows, 4, 2)
        got, expected = fast(x, rows), function(x, rows)
        close(got[0], expected[0])
        assert got[1:] == expected[1:]
    assert choices(fast) == ["plan"] * 4 + ["inductor"]


def scaled(x, n):
    """Function of a tensor and a number."""
    return torch.relu(x @ x.t() + n).softmax(-1) * n


def test_a_number_that_is_no_size_is_bounded_too():
    fast = compiled(scaled)
    x = torch.randn(3, 4)
    for n in (2, 3, 4, 2, 7, 8, 9, 10, 3):
        close(fast(x, n), scaled(x, n))
    assert choices(fast) == ["plan"] * 4 + ["inductor"]


def test_values_that_change_are_left_to_inductor():
    fast = compiled(scaled)
    x = torch.randn(3, 4)
    for n in (0.5, 1.5, 2.5):
        close(fast(x, n), scaled(x, n))
    assert choices(fast)[0] == "plan"
    assert set(choices(fast)[1:]) == {"inductor"}


def test_results_that_depend_on_values_in_size_are_left_to_inductor():
    def function(x):
        return torch.relu(x[x > 0]) + 1

    with config.patch(capture_dynamic_output_shape_ops=True):
        fast = compiled(function)
        for rows in (2, 3, 4):
            x = torch.randn(rows, 4)
            close(fast(x), function(x))
    assert set(choices(fast)) == {"inductor"}


def test_gradients_are_recorded_in_every_size():
    net, _ = net_and_input()
    fast = compiled(net)
    with torch.enable_grad():
        for batch in (2, 3, 4):
            fast(images(batch)).sum().backward()
            got = net.first.weight.grad.clone()
            net.zero_grad()
            net(images(batch)).sum().backward()
            close(got, net.first.weight.grad)
            net.zero_grad()
    assert choices(fast) == ["inductor"] * 2
    with torch.no_grad():
        close(fast(images(3)), net(images(3)))


def test_new_weights_count_in_every_size():
    net, _ = net_and_input()
    fast = compiled(net)
    for scale in (1.0, 1.5):
        net.load_state_dict({name: tensor * scale for name, tensor in net.state_dict().items()})
        for batch in (2, 3, 2):
            close(fast(images(batch)), net(images(batch)))
    assert choices(fast) == ["plan"] * 2
    assert explained(fast).graphs[1].notes == ("for the sizes of this call alone",)


def test_ways_are_measured_for_further_sizes_too(monkeypatch):
    """Without a profile, candidates are timed with ints in place of symbolic sizes, as Dynamo calls them."""
    monkeypatch.setattr(compile_graph, "MEASURED_S", 1e-5)
    net, _ = net_and_input()
    fast = torch.compile(net, backend="costmodel")
    for batch in (2, 3, 2):
        close(fast(images(batch)), net(images(batch)))
    assert all(set(graph.times_ms) == {"plan", "inductor", "eager"} for graph in explained(fast).graphs)


class Several(nn.Module):
    """A forward pass with a branch on its mode, each with sizes of its own."""

    def forward(self, x, doubles: bool):
        return torch.relu(x * 2 if doubles else x + 1) - 1


def test_sizes_planned_for_one_branch_run_in_the_other():
    module = Several().eval()
    fast = compiled(module)
    for rows, doubles in itertools.product((2, 3, 4, 5), (True, False)):
        x = torch.randn(rows, 4)
        close(fast(x, doubles), module(x, doubles))
    for rows, doubles in itertools.product((2, 5, 6, 3), (False, True)):
        x = torch.randn(rows, 4)
        close(fast(x, doubles), module(x, doubles))
    assert len(choices(fast)) <= 8


def test_programs_of_all_sizes_share_prepared_weights():
    """Folded, cast and laid out once, not once a size."""
    net, _ = net_and_input()
    gc.collect()
    before = set(map(id, planned_graphs()))
    fast = compiled(net)
    with torch.autocast("cpu", torch.bfloat16):
        for scale in (1.0, 0.5):
            net.load_state_dict({name: tensor * scale for name, tensor in net.state_dict().items()})
            for batch in (2, 3, 4):
                fast(images(batch))
    made = [graph for graph in planned_graphs() if id(graph) not in before]
    programs = [program for graph in made for planned in graph.bound.values() for program in programs_of(planned)]
    hoisted = [
        {ref.name: tensor for ref, tensor in program._params.items() if ref.name.startswith("hoisted.")}
        for program in programs
    ]
    assert len(hoisted) == 3
    assert hoisted[0]
    for other in hoisted[1:]:
        assert {name: id(tensor) for name, tensor in other.items()} == {
            name: id(tensor) for name, tensor in hoisted[0].items()
        }


def programs_of(planned) -> list:
    return [program for _, program in planned._runner().ready.values()]
