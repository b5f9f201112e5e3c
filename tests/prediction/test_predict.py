"""Reports from the shipped profile: whole, consistent, and never more certain than they may be."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel import zoo
from costmodel.errors import CaptureError, CostmodelError, ProfileError, UnknownHardwareError
from costmodel.ir import Graph, op_table, operators
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles import profile as profile_module
from costmodel.profiles.profile import DEFAULT, Profile, load_profile
from costmodel.report.types import Report
from costmodel.timeline import cost_tables
from costmodel.timeline.issue_trace import compiled_trace, eager_trace

MODELS = ("densenet121", "resnet18", "alexnet", "swin_t")
Graphs = Callable[[str], Graph]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return load_profile(DEFAULT)


@pytest.fixture(scope="module")
def report_of(graph_of: Graphs, profile: Profile) -> Callable[[str], Report]:
    made: dict[str, Report] = {}

    def make(model: str) -> Report:
        if model not in made:
            made[model] = predict_graph(graph_of(model), profile)
        return made[model]

    return make


Reports = Callable[[str], Report]


@pytest.mark.parametrize("model", MODELS)
def test_every_mode_with_its_interval(report_of: Reports, model: str):
    report = report_of(model)
    assert list(report.modes) == ["eager", "default", "reduce-overhead"]
    eager = report.modes["eager"]
    for name, mode in report.modes.items():
        assert 0 < mode.low_ms < mode.latency_ms < mode.high_ms
        assert 0 < mode.device_ms <= mode.latency_ms
        assert mode.latency_ms >= mode.host_ms
        if name == "eager":
            assert mode.speedup is mode.compile_s is mode.break_even_calls is None
            continue
        assert mode.speedup == pytest.approx(eager.latency_ms / mode.latency_ms)
        assert mode.speedup_low < mode.speedup < mode.speedup_high
        assert 0.5 < mode.compile_s_low < mode.compile_s < mode.compile_s_high < 300
        assert 0.1 < mode.compile_warm_s_low < mode.compile_warm_s < mode.compile_warm_s_high < mode.compile_s
        saved = eager.latency_ms - mode.latency_ms
        calls, high = mode.break_even_calls or math.inf, mode.break_even_high or math.inf
        assert calls == (pytest.approx(mode.compile_s * 1e3 / saved, rel=0.05) if saved > 0 else math.inf)  # two digits
        assert mode.break_even_low < calls <= high
    assert report.best_mode == min(report.modes, key=lambda mode: report.modes[mode].latency_ms)
    assert report.verdict in ("compile", "leave", "uncertain")
    assert report.unsupported == ()


@pytest.mark.parametrize("model", MODELS)
def test_the_layers_times_add_up_to_the_kernels(report_of: Reports, graph_of: Graphs, profile: Profile, model: str):
    graph, report = graph_of(model), report_of(model)
    for program, field in ((eager_trace(graph), "eager_us"), (compiled_trace(graph), "compiled_us")):
        estimates = profile.predictor.predict(program.kernels, program.positions)
        assert sum(getattr(layer, field) or 0.0 for layer in report.layers) == pytest.approx(
            sum(estimate.us for estimate in estimates)
        )


@pytest.mark.parametrize("model", MODELS)
def test_layers_are_the_models_own(report_of: Reports, graph_of: Graphs, model: str):
    report, modules = report_of(model), dict(zoo.load(model).module.named_modules())
    assert all(layer.name in modules or layer.name == layer.kind for layer in report.layers)
    computing = [op for op in graph_of(model).ops if operators.lookup(op).role is not op_table.Role.VIEW]
    assert sum(len(layer.ops) for layer in report.layers) == len(computing)
    for layer in report.layers:
        assert layer.kind in layer.ops
        assert layer.speedup_low <= layer.speedup <= layer.speedup_high
        assert layer.speedup == pytest.approx(layer.eager_us / layer.compiled_us)


@pytest.mark.parametrize("model", MODELS)
def test_the_json_is_what_the_interface_promises(report_of: Reports, model: str):
    data: dict[str, Any] = json.loads(json.dumps(report_of(model).to_dict(), allow_nan=False))
    assert data["schema"] == 1
    assert (data["model"], data["hardware"], data["batch_size"]) == (model, DEFAULT, 1)
    assert (data["input_shape"], data["precision"], data["layout"]) == ([1, 3, 224, 224], "float32", "nchw")
    common = {"latency_ms", "low_ms", "high_ms", "host_ms", "device_ms", "roofline_ms", "images_per_s", "tflops"}
    against = {"speedup", "speedup_low", "speedup_high", "break_even_calls", "break_even_low", "break_even_high"}
    against |= {f"{name}{bound}" for name in ("compile_s", "compile_warm_s") for bound in ("", "_low", "_high")}
    assert data["modes"]["eager"].keys() == common
    assert data["modes"]["default"].keys() == data["modes"]["reduce-overhead"].keys() == common | against
    assert data["layers"][0].keys() >= {
        *("name", "kind", "ops", "position", "eager_us", "compiled_us"),
        *("speedup", "speedup_low", "speedup_high", "backend", "in_range"),
        *("shape", "module_type", "flops", "bound", "reason", "modules"),
    }
    assert data.keys() >= {"best_mode", "verdict", "unsupported", "warnings"}


def test_the_public_function_is_the_same(report_of: Reports):
    loaded = zoo.load("resnet18")
    report = costmodel.predict(loaded.module, loaded.inputs, hardware=DEFAULT, model_name="resnet18", check=False)
    assert (
        report.to_dict() | {"host": "", "host_calibrated": None, "assumed_host": ""} == report_of("resnet18").to_dict()
    )
    assert report.host_calibrated is False
    assert report.host == "the least disturbed of 6 machines"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"capture": "guess"}, "capture"), ({"explain": "yes"}, "explain"), ({"shapes": [(0,)]}, "shapes")],
)
def test_a_wrong_argument_is_refused_by_its_name(options: dict[str, Any], said: str):
    with pytest.raises(CostmodelError, match=said):
        costmodel.predict(nn.ReLU(), (torch.empty(2),), hardware=DEFAULT, **options)


def test_without_hardware_and_without_a_gpu_the_default_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(profile_module, "_this_device", lambda: None)
    report = costmodel.predict(nn.Conv2d(3, 8, 3).eval(), [torch.empty(1, 3, 32, 32)])
    assert (report.hardware, report.model) == (DEFAULT, "Conv2d")


def test_an_operator_without_a_rule_is_named_and_widens_the_intervals(
    report_of: Reports, graph_of: Graphs, profile: Profile, monkeypatch: pytest.MonkeyPatch
):
    sure = report_of("resnet18")
    monkeypatch.delitem(operators.TABLE, "relu")
    report = predict_graph(graph_of("resnet18"), profile)
    assert {item.op for item in report.unsupported} == {"relu"}
    assert {"relu", "layer1.0.relu"} <= {item.where for item in report.unsupported}
    assert "without a cost rule" in report.warnings[0]
    assert "relu" in report.warnings[0]
    for name, mode in report.modes.items():
        assert mode.high_ms / mode.low_ms > sure.modes[name].high_ms / sure.modes[name].low_ms


class Bessel(nn.Module):
    """Calls an operator that the table has no row for."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.i0(self.conv(x))


def test_a_module_with_a_rare_operator_is_predicted_with_reserve():
    report = costmodel.predict(Bessel().eval(), [torch.empty(1, 3, 64, 64)], hardware=DEFAULT)
    assert [item.op for item in report.unsupported] == ["i0"]
    assert json.dumps(report.to_dict(), allow_nan=False)


def test_kernels_unlike_any_measured_are_named_by_their_share_of_the_time():
    odd = nn.Conv3d(5, 700, (9, 31, 2), stride=(5, 7, 1), dilation=(1, 9, 3)).eval()
    report = costmodel.predict(odd, [torch.empty(3, 5, 40, 1000, 90)], hardware=DEFAULT)
    assert report.extrapolated_share > 0.5
    assert any(f"extrapolated, {report.extrapolated_share:.1%} of the device time" in text for text in report.warnings)
    assert not all(layer.in_range for layer in report.layers)


class OneOddKernel(nn.Module):
    """A network of ordinary convolutions, and one operator far from any measured one on a tensor of a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(*[nn.Conv2d(64, 64, 3, padding=1) for _ in range(20)])
        self.odd = nn.Conv3d(1, 2, (3, 5, 1), dilation=(1, 3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convs(x).sum() + self.odd(x[:1, :8, :32, :8].unsqueeze(1)).sum()


def test_one_odd_kernel_leaves_the_verdict_to_the_interval():
    report = costmodel.predict(OneOddKernel().eval(), [torch.empty(32, 64, 56, 56, device="meta")], hardware=DEFAULT)
    assert report.extrapolated_share < 0.1
    assert report.leaning in ("compile", "leave")
    lows = [mode.speedup_low > 1 for mode in report.modes.values() if mode.speedup_low]
    highs = [mode.speedup_high < 1 for mode in report.modes.values() if mode.speedup_high]
    expected = "compile" if any(lows) else "leave" if all(highs) else "uncertain"
    assert report.verdict == expected


def test_what_is_assumed_of_the_host_is_said_unless_the_host_is_given():
    module, x = nn.Conv2d(3, 8, 3).eval(), torch.empty(1, 3, 32, 32)
    assumed = costmodel.predict(module, (x,), hardware=DEFAULT)
    assert "undisturbed dedicated machine" in assumed.assumed_host
    assert f"host: {assumed.assumed_host}" in " ".join(str(assumed).split())
    known = costmodel.predict(module, (x,), hardware=DEFAULT, host=1.0)
    assert known.assumed_host == ""
    for name, mode in known.modes.items():
        assert mode.latency_ms == assumed.modes[name].latency_ms
        assert mode.low_ms >= assumed.modes[name].low_ms
        assert mode.high_ms <= assumed.modes[name].high_ms


@pytest.mark.parametrize("module", [nn.Identity(), nn.Flatten(), nn.Sequential()], ids=lambda m: type(m).__name__)
def test_a_model_that_computes_nothing_is_refused(module: nn.Module):
    with pytest.raises(CaptureError) as caught:
        costmodel.predict(module.eval(), [torch.empty(2, 3, 4)], hardware=DEFAULT)
    assert "\n" not in str(caught.value)


def test_unknown_hardware_is_refused():
    with pytest.raises(UnknownHardwareError, match="nvidia-h200"):
        costmodel.predict(nn.ReLU(), [torch.empty(2)], hardware="nvidia-h900")


def test_a_precision_that_nobody_measured_is_named_and_never_in_range():
    module, x = nn.Sequential(nn.Conv2d(64, 64, 3), nn.ReLU()).half(), torch.empty(1, 64, 56, 56).half()
    report = costmodel.predict(module, (x,), hardware="amd-epyc-2-threads")
    said = "float16 was not measured on amd-epyc-2-threads: every figure is extrapolated from other precisions"
    assert report.warnings[0] == said
    assert not any(layer.in_range for layer in report.layers)
    measured = costmodel.predict(module.float(), (x.float(),), hardware="amd-epyc-2-threads")
    assert not any("measured on" in text for text in measured.warnings)
    assert all(layer.in_range for layer in measured.layers)


@pytest.fixture
def copied(profile: Profile, tmp_path: Path) -> Profile:
    """The shipped profile with files of its own."""
    for name in ("predictor.safetensors", "whole_models.safetensors"):
        shutil.copy(profile.path / name, tmp_path)
    return Profile("copy", tmp_path, profile.card)


def test_a_copied_profile_predicts_the_same(copied: Profile, graph_of: Graphs, report_of: Reports):
    assert predict_graph(graph_of("alexnet"), copied).modes == report_of("alexnet").modes


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[:99], lambda data: data + b"\0"])
@pytest.mark.parametrize("name", ["predictor.safetensors", "whole_models.safetensors"])
def test_a_damaged_file_is_refused(copied: Profile, graph_of: Graphs, name: str, change: Callable[[bytes], bytes]):
    path = copied.path / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ProfileError, match="SHA-256"):
        predict_graph(graph_of("alexnet"), copied)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"costs": {}}, "no usable costs"),
        ({"intervals": {}}, "no usable intervals"),
        ({"intervals": {"latency": {"default": 0.1}, "speedup": {"default": 0.1}}}, "no interval for eager"),
    ],
)
def test_a_damaged_card_is_refused(profile: Profile, graph_of: Graphs, change: dict[str, Any], match: str):
    with pytest.raises(ProfileError, match=match):
        predict_graph(graph_of("alexnet"), replace(profile, card={**profile.card, **change}))


def test_a_profile_that_lacks_a_cost_is_refused(profile: Profile, graph_of: Graphs):
    costs = {name: dict.fromkeys(needed, 1.0) for name, needed in cost_tables.COSTS.items()}
    del costs["graph_host"]["module"]
    with pytest.raises(ProfileError, match="costs 'graph_host' lack 'module'"):
        predict_graph(graph_of("alexnet"), replace(profile, card={**profile.card, "costs": costs}))


def test_a_mode_that_the_profile_cannot_predict_is_left_out(profile: Profile, graph_of: Graphs):
    intervals = {"latency": {"eager": 0.1, "default": 0.1}, "speedup": {"default": 0.1}}
    report = predict_graph(graph_of("alexnet"), replace(profile, card={**profile.card, "intervals": intervals}))
    assert list(report.modes) == ["eager", "default"]
    alone = {"latency": {"eager": 0.1}, "speedup": {"default": 0.1}}
    report = predict_graph(graph_of("alexnet"), replace(profile, card={**profile.card, "intervals": alone}))
    assert list(report.modes) == ["eager"]
    assert (report.best_mode, report.verdict) == ("eager", "uncertain")


@pytest.mark.slow
def test_predicting_imports_nothing_that_is_slow_to_import():
    heavy = ("sklearn", "pandas", "pyarrow", "joblib", "torch._inductor", "torch._dynamo", "triton")
    program = (
        "import sys, costmodel; from costmodel import zoo; zoo.load_torchvision();"
        "before = set(sys.modules);"  # releases of torchvision differ in what they import themselves
        "loaded = zoo.load('alexnet');"
        "report = costmodel.predict(loaded.module, loaded.inputs, hardware='nvidia-h200', check=False);"
        f"assert report.modes; print([name for name in {heavy} if name in set(sys.modules) - before])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def detector() -> Report:
    loaded = zoo.load("ssdlite320_mobilenet_v3_large", batch_size=2)
    return costmodel.predict(loaded.module, loaded.inputs, hardware=DEFAULT)


class TestInPart:
    def test_says_so_everywhere(self, detector: Report):
        assert detector.partial
        assert detector.to_dict()["partial"] is True
        assert detector.verdict == "uncertain"
        assert any(text.startswith("captured in part: ") for text in detector.warnings)
        assert "control_flow" in {item.op for item in detector.unsupported}
        assert "(captured in part)" in str(detector)
        assert "only a part of the model was captured" in str(detector)

    def test_is_never_one_cuda_graph(self, detector: Report):
        assert list(detector.modes) == ["eager", "default"]

    def test_counts_the_images_of_a_list(self, detector: Report):
        assert detector.batch_size == 2
        assert detector.input_shape == (3, 320, 320)

    def test_widens_the_interval(self, detector: Report, profile: Profile):
        widths = profile.intervals("latency")
        eager = detector.modes["eager"]
        assert math.log(eager.high_ms / eager.latency_ms) >= widths["eager"] + 0.5  # UNKNOWN_WIDTH whole

    def test_sizes_that_depend_on_data_are_named(self):
        class Masked(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x[x > 0] * 2

        report = costmodel.predict(Masked(), (torch.empty(2, 3, 8, 8, device="meta"),), hardware=DEFAULT)
        assert not report.partial
        assert [item.op for item in report.unsupported] == ["index"]
        assert "results of data-dependent size are counted at their largest: index" in report.warnings


def test_inputs_by_name_and_token_ids_before_images():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 8)

        def forward(self, pixels: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": pixels.mean((2, 3)) + self.words(ids).sum(1)}

    ids = torch.empty(4, 5, dtype=torch.long, device="meta")
    inputs = {"ids": ids, "pixels": torch.empty(4, 8, 16, 16, device="meta")}
    report = costmodel.predict(Both().to("meta").eval(), inputs, hardware=DEFAULT)
    assert (report.batch_size, report.input_shape, report.precision) == (4, (4, 8, 16, 16), "float32")


def test_several_models_in_several_processes_are_those_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    from costmodel.cli import main

    request = ["predict", "alexnet", "nosuchnet", "squeezenet1_1", "-q", "--format", "json"]
    assert main(request) == 2
    alone = capsys.readouterr()
    assert main([*request, "--jobs", "2"]) == 2
    together = capsys.readouterr()
    assert json.loads(together.out) == nearly(json.loads(alone.out))
    assert together.err == alone.err
    assert "nosuchnet" in alone.err


def nearly(value: Any) -> Any:
    """Allow another last digit in every number: fewer threads sum a product of matrices in another order."""
    if isinstance(value, dict):
        return {name: nearly(item) for name, item in value.items()}
    if isinstance(value, list):
        return [nearly(item) for item in value]
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def test_a_host_of_half_the_speed_takes_twice_as_long_to_issue():
    loaded = zoo.load("resnet18")
    own, slow = (costmodel.predict(loaded.module, loaded.inputs, hardware=DEFAULT, host=host) for host in (None, 0.5))
    assert (own.host_speed, slow.host_speed, slow.host) == (1.0, 0.5, "0.5")
    for mode in ("eager", "default", "reduce-overhead"):
        assert slow.modes[mode].host_ms == pytest.approx(2 * own.modes[mode].host_ms)
        assert slow.modes[mode].device_ms == pytest.approx(own.modes[mode].device_ms)
    headline = "ResNet on nvidia-h200, host 0.5 (calibrated, 0.50x the speed of the profile's): "
    assert headline in " ".join(str(slow).split())
