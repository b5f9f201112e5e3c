"""Plans for calls under autocast and for matmuls in TF32, applied on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.executable import capture_exactly
from costmodel.errors import CaptureError, PlanError
from costmodel.execution import numerics
from costmodel.execution.cuda_graph import Replay
from costmodel.execution.planned_module import Planned
from costmodel.execution.regions import PlannedProgram
from costmodel.execution.torch_settings import matmul_precision, under_autocast
from costmodel.ir import Graph
from costmodel.planning.blocks import find_blocks
from costmodel.planning.plan import Plan, Region, fingerprint
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import REWRITES, apply_rewrites

X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def net() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 5),
        nn.GELU(),
        nn.Linear(5, 5),
    )
    return nn.Sequential(*layers).eval()


def planned_graph(module: nn.Module, amp: str | None) -> tuple[Graph, Graph]:
    """The captured graph, and what each call runs of it."""
    graph = capture_exactly(module, (X,), "net", amp).graph
    return graph, hoist_constants(apply_rewrites(graph, tuple(REWRITES))).main


def plan_for(module: nn.Module, amp: str | None = None, precision: str = "highest") -> Plan:
    """Plan of eager regions."""
    graph, main = planned_graph(module, amp)
    regions = tuple(Region("eager", block.ops, (), 1.0) for block in find_blocks(main))
    made = ("net", fingerprint(graph), "nvidia-h200", "exact", tuple(REWRITES), "graph", regions)
    return Plan(*made, {"plan": 1.0}, 0.0, "2.11", amp=amp, matmul_precision=precision)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Precision of matmuls at each run of a program."""
    seen: list[str] = []
    run = PlannedProgram.run

    def noted(self: PlannedProgram, inputs: Any) -> Any:
        seen.append(torch.get_float32_matmul_precision())
        return run(self, inputs)

    monkeypatch.setattr(PlannedProgram, "run", noted)
    return seen


@pytest.fixture
def region_of_a_gpu() -> Iterator[None]:
    """State that `torch.autocast("cuda", torch.bfloat16)` makes, also without a GPU."""
    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    yield
    torch.set_autocast_enabled("cuda", False)
    torch.set_autocast_dtype("cuda", before)


class TestAutocast:
    @pytest.mark.parametrize("amp", ["float16", "bfloat16"])
    def test_a_plan_computes_what_autocast_does(self, amp: str) -> None:
        module = net()
        fast = costmodel.apply(module, plan_for(module, amp), (X,))
        with torch.no_grad():
            expected = under_autocast(module, "cpu", amp)(X)
            got = fast(X)
            plain = module(X)
        assert got.dtype is expected.dtype is getattr(torch, amp)
        tolerance = 4 * torch.finfo(got.dtype).eps
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
        assert not torch.equal(got.float(), plain)

    def test_weights_are_cast_and_folded_once(self) -> None:
        """Of seven casts (input, three weights, three biases) a call keeps the input's; batch norm is folded."""
        graph, main = planned_graph(net(), "float16")
        assert [op.base for op in graph.ops].count("_to_copy") == 7
        assert [op.base for op in main.ops].count("_to_copy") == 1
        assert "native_batch_norm" not in {op.base for op in main.ops}

    def test_within_a_region_of_its_own_precision_the_plan_runs(self, programs: list[str]) -> None:
        module = net()
        fast = costmodel.apply(module, plan_for(module, "bfloat16"), (X,))
        programs.clear()
        with torch.no_grad():
            outside = fast(X)
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(fast(X), outside)
                assert torch.is_autocast_enabled("cpu")
            assert len(programs) == 2
            with torch.autocast("cpu", torch.float16):  # another region: as the original, without the plan
                assert torch.equal(fast(X), module(X))
        assert len(programs) == 2

    def test_what_runs_eagerly_is_under_autocast_too(self) -> None:
        """As where a call has parameters of its own."""
        module, own = net(), {"4.bias": torch.ones(5)}
        fast = costmodel.apply(module, plan_for(module, "bfloat16"), (X,))
        with torch.no_grad():
            got = torch.func.functional_call(fast, own, (X,))
            with torch.autocast("cpu", torch.bfloat16):
                expected = torch.func.functional_call(module, own, (X,))
        assert got.dtype is torch.bfloat16
        assert torch.equal(got, expected)

    def test_a_plan_is_not_one_for_calls_without_autocast(self) -> None:
        module = net()
        with pytest.raises(PlanError, match="make a plan for this model and these inputs"):
            costmodel.apply(module, replace(plan_for(module, "float16"), amp=None), (X,))

    @pytest.mark.usefixtures("region_of_a_gpu")
    def test_applying_within_a_region(self) -> None:
        module = net()
        fast = costmodel.apply(module, plan_for(module, "bfloat16"), (X,))
        assert torch.is_autocast_enabled("cuda")
        assert fast.replaced == ()

    @pytest.mark.usefixtures("region_of_a_gpu")
    def test_a_region_around_planning_is_named(self) -> None:
        with pytest.raises(CaptureError, match=r"Sequential is called under autocast, .* say which it was by amp"):
            capture_exactly(net(), (X,), "net")

    def test_outputs_may_differ_as_the_precision_does(self) -> None:
        """A float32 result of half operands: two units of float16, where there is no float64 run to compare with."""
        expected = [torch.ones(4)]
        near = [torch.full((4,), 1 + 1.5e-3)]
        assert not numerics.passes(lambda: near, expected, None)
        assert numerics.passes(lambda: near, expected, None, (torch.float16,))
        far = [torch.full((4,), 1 + 2.5e-3)]
        assert not numerics.passes(lambda: far, expected, None, (torch.float16,))


class TestMatmulPrecision:
    @pytest.mark.parametrize(
        ("plan", "process", "expected"),
        [("high", "highest", "high"), ("highest", "high", "high"), ("high", "medium", "medium")],
    )
    def test_regions_run_in_at_least_that_of_the_plan(
        self, plan: str, process: str, expected: str, programs: list[str]
    ) -> None:
        module = net()
        with matmul_precision(process), torch.no_grad():
            fast = costmodel.apply(module, plan_for(module, precision=plan), (X,))
            fast(X)
            assert isinstance(fast, Planned)
            fast.region_times((X,), lambda *_: programs.append(torch.get_float32_matmul_precision()))
            assert torch.get_float32_matmul_precision() == process
        assert set(programs) == {expected}
        assert len(programs) > 2

    def test_a_replay_needs_no_setting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kernels of a CUDA graph are chosen, so that a call sets nothing."""
        module = net()
        fast = costmodel.apply(module, plan_for(module, precision="high"), (X,))
        (runner,) = [value for name, value in vars(fast).items() if name == "_costmodel_runner"]
        ((signature, (exact, program)),) = runner.ready.items()
        seen: list[str] = []

        class Recorded(Replay):
            def __init__(self) -> None:
                pass

            def run(self, inputs: Any) -> list[torch.Tensor]:
                seen.append(torch.get_float32_matmul_precision())
                return program.run(inputs)

        runner.ready[signature] = exact, Recorded()
        monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda _: pytest.fail("set within a call"))
        with torch.no_grad():
            fast(X)
        assert seen == ["highest"]

    def test_it_is_restored_after_a_failing_preparation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = net()
        plan = plan_for(module, precision="high")

        def fails(*_: object) -> None:
            assert torch.get_float32_matmul_precision() == "high"
            raise PlanError("no")

        monkeypatch.setattr("costmodel.execution.runner.Trial.of", fails)
        with pytest.raises(PlanError, match="no"):
            costmodel.apply(module, plan, (X,))
        assert torch.get_float32_matmul_precision() == "highest"


def test_a_file_keeps_the_settings(tmp_path: Path) -> None:
    plan = replace(plan_for(net(), "bfloat16", "high"), cudnn_benchmark=True)
    plan.save(tmp_path / "plan.json")
    found = Plan.load(tmp_path / "plan.json")
    assert found == plan
    assert found.arithmetic.words == "amp bfloat16, matmuls in TF32, cudnn.benchmark"


def test_a_file_of_before_is_for_torchs_defaults() -> None:
    record = plan_for(net()).to_dict()
    for name in ("amp", "matmul_precision", "cudnn_benchmark"):
        del record[name]
    assert Plan.from_dict(record).arithmetic.words == ""


@pytest.mark.parametrize("field", [{"amp": "float32"}, {"matmul_precision": "tf32"}, {"cudnn_benchmark": 1}])
def test_other_settings_in_a_file_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=next(iter(field))):
        Plan.from_dict({**plan_for(net()).to_dict(), **field})
