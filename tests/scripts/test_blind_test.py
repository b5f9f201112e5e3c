"""Predictions for models that a profile has no latency of: which models, and figures derived by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from costmodel.calibration.models_file import read_measured
from costmodel.profiles.profile import shipped_directory
from tests.support.scripts import load_script

SHIPPED = shipped_directory() / "nvidia-h200"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("blind_test")


def test_only_models_without_a_latency_in_the_profile_are_predicted(script: ModuleType, tmp_path: Path):
    for name in ("card.json", "predictor.safetensors", "whole_models.safetensors"):
        (tmp_path / name).symlink_to(SHIPPED / name)
    lines = (SHIPPED / "models.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    new = [line for line in lines[1:] if json.loads(line)["model"] == "alexnet"]
    (tmp_path / "models.jsonl").write_text("".join(line for line in lines if line not in new), encoding="utf-8")
    frame = script.predict_new(tmp_path, SHIPPED / "models.jsonl")
    assert set(frame["model"]) == {"alexnet"}
    judged = [case for case in read_measured(SHIPPED / "models.jsonl")[0] if case.model == "alexnet"]
    assert 10 <= len(frame) == len(judged) <= len(new)  # processes on disturbed hosts are left out
    ratio = frame["probed_eager_us"] / frame["probed_default_us"] / frame["probed_speedup/default"]
    assert ratio.to_numpy() == pytest.approx(1.0)
    usual_us = json.loads((SHIPPED / "card.json").read_text(encoding="utf-8"))["host"]["probe_us"]
    record = json.loads(new[0])
    host_bound = frame["eager_host_us"] > frame["eager_device_us"]
    slower = record["probe_us"] > usual_us  # host-bound models are slower on a slower host
    assert bool((frame["probed_eager_us"] > frame["eager_us"])[host_bound].iloc[0]) is slower


def test_errors_by_hand(script: ModuleType):
    rows = [("timm:a1", "a", 2.0, 2.1), ("b1", "b", 3.0, 3.0)]
    frame = pd.DataFrame(rows, columns=["model", "family", "measured_speedup/default", "probed_speedup/default"])
    frame["speedup/default"] = [2.4, 3.0]
    frame["precision"] = ["float16", "float32"]
    frame["measured_speedup/reduce-overhead"] = 4.0
    frame["speedup/reduce-overhead"] = frame["probed_speedup/reduce-overhead"] = [3.0, 5.0]
    assert script.table_markdown(frame).splitlines()[2:] == [
        "| `default` | all | 10.0 %; 50 % | 2.5 %; 100 % | 41.7 % | 2 |",  # baselines 3 and 2: errors 1/2 and 1/3
        "| `default` | float16 | 20.0 %; 0 % | 5.0 %; 100 % | 50.0 % | 1 |",  # no other family: the baseline is 1
        "| `default` | float32 | 0.0 %; 100 % | 0.0 %; 100 % | 66.7 % | 1 |",
        "| `reduce-overhead` | all | 25.0 %; 0 % | 25.0 %; 0 % | 0.0 % | 2 |",
        "| `reduce-overhead` | float16 | 25.0 %; 0 % | 25.0 %; 0 % | 75.0 % | 1 |",
        "| `reduce-overhead` | float32 | 25.0 %; 0 % | 25.0 %; 0 % | 75.0 % | 1 |",
    ]
