"""Accuracy of the shipped profiles: errors of speedup may not grow unnoticed.

`--update-golden` writes tests/golden/accuracy.json anew; a commit that does so says why predictions got worse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from costmodel.ir import Graph
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import Profile, shipped_directory
from tests.conftest import GOLDEN

FIGURES = GOLDEN / "accuracy.json"
MARGIN = 0.003
"""0.3 points of mean relative error."""
HELD_OUT = [
    ("nvidia-h200", "default"),
    ("nvidia-h200", "reduce-overhead"),
    ("amd-epyc-2-threads", "default"),
    ("intel-xeon-16-threads", "default"),
]
MODELS = (
    *("alexnet", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small"),
    *("regnet_y_400mf", "resnet18", "resnet50", "resnet34", "squeezenet1_1", "swin_t", "vgg11", "vit_b_16"),
)
BATCHES = (1, 32)


@pytest.fixture
def ratchet(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """Compare an error with the one that was written down; --update-golden writes it."""

    def check(name: str, error: float) -> None:
        known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
        if request.config.getoption("--update-golden"):
            known[name] = round(error, 5)
            FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        assert error <= known[name] + MARGIN, f"{name}: {error:.2%} mean error, {known[name]:.2%} before"

    return check


def shipped_measurements(profile: str) -> pd.DataFrame:
    """Cases that a profile was calibrated with: measured, and predicted with their families held out."""
    return pd.read_csv(Path(shipped_directory()) / profile / "validation.csv")


@pytest.mark.parametrize(("profile", "mode"), HELD_OUT)
def test_with_families_held_out(ratchet: Callable[[str, float], None], profile: str, mode: str):
    frame = shipped_measurements(profile).dropna(subset=[f"measured_speedup/{mode}"])
    assert len(frame) > 20
    errors = (frame[f"probed_speedup/{mode}"] / frame[f"measured_speedup/{mode}"] - 1).abs()
    ratchet(f"{profile}, {mode}, families held out", float(errors.mean()))


@pytest.mark.slow
def test_predicted_now(ratchet: Callable[[str, float], None], graph_of: Callable[..., Graph], h200: Profile):
    """30 cases in float32, predicted by the code and the profile as they are; several measurements count once.

    The host is that which measured a case.
    """
    frame = shipped_measurements("nvidia-h200")
    frame = frame[(frame["precision"] == "float32") & (frame["layout"] == "nchw")]
    measured = frame.groupby(["model", "batch_size"]).median(numeric_only=True)
    errors: dict[str, list[float]] = {"default": [], "reduce-overhead": []}
    for model in MODELS:
        for batch_size in BATCHES:
            if (model, batch_size) not in measured.index:
                continue
            speed = float(measured.loc[(model, batch_size), "host_speed"])
            host = replace(h200, host_speed=speed, host_calibrated=True).using(h200.predictor)
            modes = predict_graph(graph_of(model, batch_size), host).modes
            for mode, found in errors.items():
                speedup = modes[mode].speedup
                assert speedup is not None
                found.append(abs(speedup / measured.loc[(model, batch_size), f"measured_speedup/{mode}"] - 1))
    for mode, found in errors.items():
        known = pd.Series(found).dropna()
        assert len(known) >= 20
        ratchet(f"nvidia-h200, {mode}, predicted now", float(known.mean()))
