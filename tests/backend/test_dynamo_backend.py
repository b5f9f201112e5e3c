"""The backend as users meet it: found by its name, its options, its choices and what it says about them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.backends import registry
from torch._dynamo.exc import BackendCompilerFailed

import costmodel
from costmodel import backend
from costmodel.backend import compile_graph, planning_step
from costmodel.backend.dynamo_backend import costmodel_backend
from costmodel.backend.options import RULES, BackendOptions
from costmodel.backend.planning_step import plan_graph
from costmodel.capture.executable import capture_exactly
from costmodel.errors import RequestError
from costmodel.prediction.arithmetic import Arithmetic
from costmodel.profiles.profile import load_profile
from tests.support.uncompiled import CPU, compiled, explained, uncompiled

ROOT = Path(__file__).parents[2]


class Net(nn.Module):
    """Two convolutions with a batch norm, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)
        self.register_buffer("scale", torch.full((1, 8, 1, 1), 1.5))
        self.norm.running_mean.uniform_(-0.5, 0.5)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))) * self.scale).mean((2, 3))


def net_and_input() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 8, 8)


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


class TestName:
    def test_the_entry_point_of_the_package_is_the_one_that_the_import_registers(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert project["entry-points"][backend.GROUP] == {backend.NAME: backend.ENTRY.value}

    def test_torch_lists_and_finds_it(self):
        assert backend.NAME in torch._dynamo.list_backends()
        assert registry.lookup_backend(backend.NAME) is costmodel_backend

    def test_it_loads_from_an_entry_point_before_and_after_the_import(self, monkeypatch):
        """Torch registers what an entry point loads, and refuses a name that is registered already."""
        monkeypatch.setitem(registry._BACKENDS, backend.NAME, EntryPoint(backend.NAME, backend.ENTRY.value, "group"))
        monkeypatch.delitem(registry._COMPILER_FNS, backend.NAME, raising=False)
        assert registry.lookup_backend(backend.NAME) is costmodel_backend


COMPILED = """
import sys, torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval()
with torch.no_grad():
    fast = torch.compile(net, backend="costmodel", options={"calls": 1})
    assert "costmodel.backend.compile_graph" in sys.modules
    torch.testing.assert_close(fast(torch.ones(2, 4)), net(torch.ones(2, 4)))

import costmodel

print([graph.choice for graph in costmodel.explain_backend(fast).graphs])
"""


@pytest.mark.slow
def test_an_installed_package_needs_no_import(tmp_path):
    """A process finds the backend by the metadata of a distribution, as an installer writes them."""
    installed = tmp_path / "costmodel_installed-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: costmodel-installed\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{backend.GROUP}]\n{backend.NAME} = {backend.ENTRY.value}\n")
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout == "['eager']\n", done.stderr  # nothing that compiles breaks even within a call


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"hardwar": "x"}, "no option 'hardwar'; there are: hardware, calls, memory_limit, numerics"),
            ({"hardware": "x"}, "no hardware profile is called 'x'"),
            ({"hardware": 3}, "the option hardware must be the name of a hardware profile"),
            ({"calls": 0}, "the option calls must be a number above 0"),
            ({"memory_limit": "1"}, "the option memory_limit must be a number above 0"),
            ({"numerics": "exact"}, "the option numerics must be one of default, strict"),
        ],
    )
    def test_a_wrong_one_is_one_line(self, options, said):
        with pytest.raises(BackendCompilerFailed, match=said), torch.no_grad():
            torch.compile(lambda x: x + 1, backend="costmodel", options=options)(torch.ones(2))

    def test_a_mode_is_refused(self):
        with pytest.raises(BackendCompilerFailed, match="has no mode 'max-autotune'"), torch.no_grad():
            torch.compile(lambda x: x + 1, backend="costmodel", mode="max-autotune")(torch.ones(2))

    def test_each_has_a_rule_and_a_field(self):
        assert set(RULES) == set(compile_graph.BackendOptions.__dataclass_fields__)

    def test_a_memory_limit_below_the_weights_leaves_no_plan(self):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net, memory_limit=1000.0)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
        assert graph.choice == "inductor"
        assert "cannot be planned within 1000 bytes" in graph.why


@pytest.mark.parametrize("choice", ["plan", "inductor", "eager"])
def test_the_fastest_way_runs_and_gives_eager_outputs(choice):
    net, x = net_and_input()
    with uncompiled(choice), torch.no_grad():
        fast = compiled(net)
        close(fast(x), net(x))
        close(fast(-x), net(-x))
        (graph,) = explained(fast).graphs
    assert graph.choice == choice
    assert graph.plan is not None
    assert graph.plan.hardware == graph.hardware == CPU["hardware"]
    assert set(graph.times_ms) == {"plan", "inductor", "eager"}
    assert not graph.measured
    assert graph.name == "0/0"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_with_compilers_a_plan_gives_eager_outputs_also_for_new_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(planning_step.Planning, "order", lambda self, calls: ("plan", "inductor", "eager"))
    net, x = net_and_input()
    torch._dynamo.reset()
    with torch.no_grad():
        fast = compiled(net)
        close(fast(x), net(x))
        net.load_state_dict({name: tensor * 1.5 for name, tensor in net.state_dict().items()})
        close(fast(x), net(x))
    (graph,) = explained(fast).graphs
    torch._dynamo.reset()
    assert graph.choice == "plan", str(graph)
    assert graph.plan is not None
    assert "inductor" in {region.backend for region in graph.plan.regions}
    assert graph.notes == ()


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
def test_without_a_profile_the_ways_are_measured_and_that_is_said():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = torch.compile(net, backend="costmodel")
        close(fast(x), net(x))
        (graph,) = explained(fast).graphs
    assert graph.measured
    assert graph.choice == min(graph.times_ms, key=graph.times_ms.__getitem__)
    assert "as measured, for there is no profile of this CPU" in str(graph)
    assert "(measured: plan " in str(graph)


def test_a_profile_of_a_gpu_is_not_used_on_a_cpu():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = torch.compile(net, backend="costmodel", options={"hardware": "nvidia-h200"})
        close(fast(x), net(x))
        (graph,) = explained(fast).graphs
    assert graph.measured


class TestFallbacks:
    def test_a_graph_that_needs_gradients_is_trained_as_without_the_backend(self):
        net, x = net_and_input()
        with uncompiled():
            fast = compiled(net)
            fast(x).sum().backward()
            got = net.first.weight.grad.clone()
            net.zero_grad()
            net(x).sum().backward()
            torch.testing.assert_close(got, net.first.weight.grad)
            (graph,) = explained(fast).graphs
        assert graph.choice == "inductor"
        assert "may need gradients" in graph.why

    @pytest.mark.parametrize("step", ["capture_exactly", "plan_graph", "profile_for", "make_planned"])
    def test_any_error_while_planning_is_reported_and_inductor_runs_the_graph(self, monkeypatch, step):
        def fail(*_, **__):
            raise ValueError("broken on purpose")

        module = backend.planned_graph if step == "make_planned" else compile_graph
        monkeypatch.setattr(module, step, fail)
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
        assert graph.choice == "inductor"
        assert "ValueError: broken on purpose" in str(graph)

    @pytest.mark.parametrize("step", ["without_metadata", "count_calls", "reason_not_to_plan"])
    def test_any_error_before_that_is_reported_and_the_graph_runs(self, monkeypatch, step):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            monkeypatch.setattr(compile_graph, step, lambda *_: 1 / 0)
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
        assert graph.choice in ("inductor", "eager")
        assert "ZeroDivisionError" in str(graph)

    def test_where_inductor_fails_too_the_graph_runs_eagerly(self, monkeypatch):
        net, x = net_and_input()
        with uncompiled("inductor"), torch.no_grad():
            monkeypatch.setattr(compile_graph, "by_inductor", lambda *_: 1 / 0)
            monkeypatch.setattr(compile_graph, "capture_exactly", lambda *_: 1 / 0)
            fast = compiled(net)
            close(fast(x), net(x))
            (graph,) = explained(fast).graphs
        assert graph.choice == "eager"
        assert "inductor: ZeroDivisionError" in str(graph)

    def test_tiny_graphs_run_eagerly(self):
        with uncompiled(), torch.no_grad():
            fast = compiled(lambda x: x.t())
            fast(torch.ones(2, 3))
            (graph,) = explained(fast).graphs
        assert graph.choice == "eager"
        assert "nothing in it to fuse" in graph.why

    def test_random_numbers_are_drawn_as_without_the_backend(self):
        with uncompiled(), torch.no_grad():
            fast = compiled(lambda x: torch.relu(x + torch.rand_like(x)) * 2)
            torch.manual_seed(1)
            got = fast(torch.zeros(4))
            (graph,) = explained(fast).graphs
        torch.manual_seed(1)
        assert torch.equal(got, torch.rand(4) * 2)
        assert "draws random numbers" in graph.why


def test_planning_leaves_the_callers_random_numbers_as_they_were():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net)
        torch.manual_seed(3)
        fast(x)
        got = torch.rand(3)
        net.load_state_dict({name: tensor + 1 for name, tensor in net.state_dict().items()})
        torch.manual_seed(3)
        fast(x)
        again = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(got, torch.rand(3))
    torch.manual_seed(3)
    assert torch.equal(again, torch.rand(3))


def test_strict_numerics_fold_no_weights_and_use_no_inductor():
    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        fast = compiled(net, numerics="strict")
        close(fast(x), net(x))
        (graph,) = explained(fast).graphs
    assert graph.choice == "plan"
    assert graph.plan is not None
    assert "fold_batch_norm" not in graph.plan.rewrites


def test_strict_numerics_refuse_a_plan_that_is_less_exact_than_eager_execution(monkeypatch):
    """An error of 3e-6 is within the usual bound of 1e-4, and beyond that of eager execution, some 1e-7."""
    from costmodel.execution import regions

    net, x = net_and_input()
    with uncompiled(), torch.no_grad():
        monkeypatch.setattr(
            regions,
            "build_module",
            lambda graph, device=None, make=regions.build_module: (
                lambda *given: [out * (1 + 3e-6) for out in make(graph, device)(*given)]
            ),
        )
        usual = compiled(net)
        usual(x)
        torch._dynamo.reset()
        strict = compiled(net, numerics="strict")
        close(strict(x), net(x))
        assert [graph.choice for graph in explained(usual).graphs] == ["plan"]
        assert [graph.choice for graph in explained(strict).graphs] == ["eager"]


class TestExplanation:
    def test_each_compiled_function_has_its_own_graphs(self):
        def one(x):
            return torch.relu(x + 1)

        def two(x):
            torch._dynamo.graph_break()
            return torch.sin(x) * 2 + torch.relu(x)

        with uncompiled(), torch.no_grad():
            first, second = compiled(one), compiled(two)
            first(torch.ones(3))
            second(torch.ones(3))
            assert len(explained(first).graphs) == 1
            assert len(explained(second).graphs) == 1
            assert len(costmodel.explain_backend().graphs) >= 2

    def test_a_module_compiled_in_place(self):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            expected = net(x)
            net.compile(backend="costmodel", options=CPU)
            close(net(x), expected)
            assert [graph.choice for graph in explained(net).graphs] == ["plan"]

    @pytest.mark.parametrize("other", [3, None.__class__, nn.ReLU(), torch.compile(nn.ReLU(), backend="eager")])
    def test_anything_else_is_refused(self, other):
        with pytest.raises(RequestError, match="is no result of torch"):
            costmodel.explain_backend(other)

    def test_before_the_first_call_there_is_nothing_to_say(self):
        assert "call it first" in str(explained(compiled(nn.ReLU())))

    def test_the_log_says_the_same_in_a_line_a_graph(self, caplog):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad(), caplog.at_level(logging.INFO, "costmodel.backend"):
            fast = compiled(net)
            fast(x)
            assert caplog.messages == [str(explained(fast))]


class TestLaterProcesses:
    """A later process is played by a reset of Dynamo: it finds what was kept, and plans nothing."""

    @pytest.fixture
    def planned(self, monkeypatch):
        """Number of plans made, in a list."""
        made = []
        plan = planning_step._planned

        def counted(*arguments):
            made.append(arguments)
            return plan(*arguments)

        monkeypatch.setattr(planning_step, "_planned", counted)
        return made

    def run(self, net, x, **options):
        torch._dynamo.reset()
        fast = torch.compile(net, backend="costmodel", options=options or None)
        close(fast(x), net(x))
        return explained(fast).graphs[0]

    def test_a_plan_is_found(self, planned):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            first, second = (self.run(net, x, **CPU) for _ in range(2))
            assert len(planned) == 1
            assert (first.choice, first.plan, first.times_ms) == (second.choice, second.plan, second.times_ms)
            assert "as an earlier process found" in str(second)
            self.run(net, x, **CPU, calls=10)
            assert len(planned) == 2

    def test_what_was_measured_is_found(self, planned):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad():
            first, second = (self.run(net, x) for _ in range(2))
        assert len(planned) == 1
        assert first.measured
        assert second.measured
        assert first.times_ms == second.times_ms

    def test_where_inductor_keeps_nothing_neither_does_the_backend(self, planned):
        net, x = net_and_input()
        with uncompiled(), torch.no_grad(), torch._inductor.config.patch(fx_graph_cache=False):
            for _ in range(2):
                self.run(net, x, **CPU)
        assert len(planned) == 2


def test_a_graph_is_planned_for_the_matmul_precision_of_the_process():
    """A float32 product of 2048 x 2048 on a GPU is over three times as fast with its operands rounded to TF32."""
    graph = capture_exactly(nn.Linear(2048, 2048).eval(), (torch.randn(2048, 2048),), "linear").graph
    profile, wanted = load_profile("nvidia-h200"), BackendOptions()
    exact, rounded = (
        plan_graph(graph, profile, wanted, "a GPU", Arithmetic(matmul_precision=precision))
        for precision in ("highest", "high")
    )
    assert rounded.times_ms["plan"] < exact.times_ms["plan"] / 3
    assert (rounded.plan.matmul_precision, exact.plan.matmul_precision) == ("high", "highest")
