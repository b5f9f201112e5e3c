"""A CPU's profile from a dataset made by a formula: trained, scored on families left out, and predicted with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import costmodel.profiles.profile
from collectors.workloads.cases import UnitCase, distinct
from collectors.workloads.from_models import harvest
from costmodel.calibration.make_profile import make_profile
from costmodel.capture.trace import capture
from costmodel.features import anchor_flops
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import load_profile
from costmodel.timeline.gpu import serial_timing
from costmodel.timeline.issue_trace import compiled_trace, eager_trace
from costmodel.timeline.timed_trace import TimedTrace
from costmodel.training.dataset import kernel_of, units_frame, write_frame
from costmodel.training.kernel_models import TrainingSettings
from costmodel.zoo import load

ENVIRONMENT = {"device": "cpu", "host_cpu": "A Processor", "cores": "4", "threads": "4", "freed_memory": "kept"}
MODELS = ("resnet18", "squeezenet1_1", "mobilenet_v3_small", "alexnet", "vgg11_bn", "shufflenet_v2_x0_5")
SIZE = 64
COSTS = {
    "eager_serial": dict.fromkeys(("convolution", "matmul", "fused", "other"), 1.1)
    | {"loop": 0.0, "call": 2.0, "view": 1.0, "module": 2.0, "start": 30.0},
    "default_serial": dict.fromkeys(("convolution", "matmul", "fused", "other"), 1.1)
    | {"loop": -2.0, "call": 3.0, "parameter": 0.4, "module": 0.5, "start": 80.0},
}


def alone_us(kernel: Kernel) -> float:
    """A CPU of 100 GFLOP/s and 10 GB/s that takes 5 us for a call, slower on channels-first convolutions."""
    slower = 1.3 if kernel.anchor.base == "convolution" and kernel.anchor.type.layout == "nchw" else 1.0
    return 5.0 + slower * max(anchor_flops(kernel) / 1e5, traffic_bytes(kernel.graph) / 1e4)


def unit_row(case: UnitCase) -> dict[str, Any]:
    us = alone_us(kernel_of(case.graph, case.runner))
    quantiles = [us * share for share in (0.98, 0.99, 1.0, 1.01, 1.02)]
    about = {"key": case.key, "graph": case.graph, "runner": case.runner, "source": case.source}
    return {**about, "unit": "", "way": "", "position": 0.5, "status": "ok", "device_us": quantiles}


def model_record(model: str, batch: int, graph: Any) -> dict[str, Any]:
    """As a sweep records it; three rounds, 1 % apart."""
    latency = {}
    programs = {"eager/default": eager_trace(graph, on_cpu=True), "default": compiled_trace(graph, on_cpu=True)}
    for (name, program), table in zip(programs.items(), COSTS, strict=True):
        alone = [alone_us(kernel) for kernel in program.kernels]
        us = serial_timing(TimedTrace(program, alone, alone), table, COSTS).latency_us
        latency[name] = [[us * share] * 5 for share in (0.99, 1.0, 1.01)]
    case = {"model": model, "batch_size": batch, "precision": "float32", "layout": "nchw", "img_size": SIZE}
    return {
        **case,
        "input_shape": [batch, 3, SIZE, SIZE],
        "latency_us": latency,
        "contended_compile_s": {"default": 9.0},
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collected dataset."""
    directory = tmp_path_factory.mktemp("data") / "a-cpu"
    directory.mkdir()
    cases, records = [], []
    for model in MODELS:
        for batch in (1, 8):
            loaded = load(model, batch_size=batch, img_size=SIZE)
            graph = capture(loaded.module, loaded.inputs, model)
            cases += harvest(graph, f"{model}@{batch} float32", "cpu")
            records.append(model_record(model, batch, graph))
    write_frame(units_frame(map(unit_row, distinct(cases))), directory / "units.parquet", {"environment": ENVIRONMENT})
    (directory / "models.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return directory


@pytest.mark.slow
def test_a_cpu_is_trained_scored_and_predicted_with(directory: Path, monkeypatch: pytest.MonkeyPatch):
    card = make_profile(
        directory, "a-cpu", TrainingSettings(hidden=(32, 16), epochs=40, ensemble=2), lambda _: None, jobs=1
    )
    assert set(card["intervals"]["latency"]) == {"eager", "default"}
    assert set(card["intervals"]["speedup"]) == {"default"}
    assert card["models"]["noise"] == pytest.approx({"default": 0.01, "eager": 0.01})
    assert card["units"]["noise"] == pytest.approx(0.02, rel=1e-3)
    assert card["host"] == {}
    scores = {row["cases_of"]: row for row in card["scores"]["models"]}
    common = "float32, batch 1 and 8"
    sets = {
        common,
        f"timeline alone: {common}",
        f"family not held out: {common}",
        "float32, batch 1",
        "float32, batch 8",
    }
    assert sets | {"all"} == set(scores)
    assert (directory / "whole_models.safetensors").exists()
    assert scores["all"]["mean_error"] < min(0.15, 0.6 * scores["all"]["constant_mean_error"])
    assert [row["mode"] for row in card["scores"]["latency"]] == ["eager", "default"]
    monkeypatch.setattr(costmodel.profiles.profile, "user_directory", lambda: directory.parent)
    profile = load_profile("a-cpu")
    assert profile.predictor.multiprocessors == 4
    loaded = load("resnet18", batch_size=8, img_size=SIZE)
    graph = capture(loaded.module, loaded.inputs, "resnet18")
    report = predict_graph(graph, profile)
    assert set(report.modes) == {"eager", "default"}
    truth = model_record("resnet18", 8, graph)["latency_us"]
    for mode, name in (("eager", "eager/default"), ("default", "default")):
        found = report.modes[mode]
        assert found.latency_ms == pytest.approx(truth[name][1][2] / 1e3, rel=0.1)
        assert found.latency_ms == pytest.approx(found.host_ms + found.device_ms)
        assert math.log(found.high_ms / found.latency_ms) >= card["intervals"]["latency"][mode] * 0.999
