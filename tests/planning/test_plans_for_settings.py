"""Plans made for settings of torch: costs of regions, refusals, and what documents and commands say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.trace import capture
from costmodel.cli import main
from costmodel.errors import RequestError
from costmodel.planning.plan_report import render_plan
from costmodel.planning.region_costs import RegionCosts
from costmodel.prediction.arithmetic import Arithmetic
from costmodel.profiles.profile import load_profile
from tests.support.sample_reports import plan

GPU, CPU = "nvidia-h200", "intel-xeon-16-threads"
WIDE = (torch.empty(4096, 2048, device="meta"),)


def wide_net() -> nn.Module:
    return nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).eval()


def planned(**options: Any) -> costmodel.Plan:
    return costmodel.plan(wide_net(), WIDE, hardware=GPU, check=False, **options)


@pytest.mark.parametrize("options", [{"matmul_precision": "high"}, {"amp": "float16"}])
def test_a_plan_is_predicted_under_its_settings(options: dict[str, str]) -> None:
    plain, other = planned(), planned(**options)
    report = costmodel.predict(wide_net(), WIDE, hardware=GPU, check=False, **options)
    for mode, found in report.modes.items():
        assert other.latency_ms[mode] == found.latency_ms
    assert other.latency_ms["plan"] < plain.latency_ms["plan"] / 1.5
    assert other.latency_ms["plan"] <= min(mode.latency_ms for mode in report.modes.values())


def test_the_other_precision_is_another_graph() -> None:
    assert len({planned(amp=amp).graph for amp in (None, "float16", "bfloat16")}) == 3
    assert planned().graph == planned(matmul_precision="high").graph


def test_regions_have_matmuls_in_tf32_where_the_profile_has() -> None:
    graph = capture(wide_net(), WIDE)
    names = [op.name for op in graph.ops]
    for is_high in (False, True):
        profile = Arithmetic(matmul_precision="high" if is_high else "highest").on(load_profile(GPU))
        for backend in ("eager", "inductor"):
            kernels = RegionCosts(graph, profile).kernels(backend, names)
            matmuls = [kernel for kernel in kernels if kernel.anchor.base in ("mm", "addmm")]
            assert [kernel.tf32 for kernel in matmuls] == [is_high] * 2


@pytest.mark.parametrize("options", [{"amp": "bfloat16"}, {"matmul_precision": "high"}, {"cudnn_benchmark": True}])
def test_a_cpu_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"is predicted for GPUs, and {CPU} is a CPU"):
        costmodel.plan(wide_net(), WIDE, hardware=CPU, **options)


@pytest.mark.parametrize("command", ["plan", "validate", "memory"])
@pytest.mark.parametrize(
    "options", ["--amp float16 --precision float16", f"--amp bfloat16 --hardware {CPU}", "--amp int8"]
)
def test_one_line_and_exit_status_2(command: str, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "resnet18", "-q", *options.split()]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"costmodel: error: [^\n]+\n", error)


@pytest.mark.parametrize("command", ["plan", "validate"])
@pytest.mark.parametrize(
    "options", ["--matmul-precision high --precision bfloat16", f"--cudnn-benchmark --hardware {CPU}"]
)
def test_process_wide_settings_are_checked_too(command: str, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "resnet18", "-q", *options.split()]) == 2
    assert re.fullmatch(r"costmodel: error: [^\n]+\n", capsys.readouterr().err)


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_every_format_says_the_settings(form: str) -> None:
    text = render_plan(replace(plan(), amp="float16"), form)
    assert ('"amp": "float16"' if form == "json" else "amp float16") in text
