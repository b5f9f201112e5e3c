"""Datasets that no profile can be made of, and the parts of a profile's summary by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats  # noqa: F401 - `host_range` imports it when called, in the time of a test

from costmodel.calibration import make_profile as module
from costmodel.calibration.host_range import host_range
from costmodel.calibration.make_profile import (
    LEAST_UNITS,
    make_profile,
    score_groups,
    unit_counts,
    write_card,
)
from costmodel.calibration.whole_models import interval_scores
from costmodel.errors import DatasetError
from costmodel.features import Roofline
from costmodel.training.dataset import units_frame, write_frame
from costmodel.training.kernel_models import TrainingSettings


def write_units(directory: Path, count: int, environment: dict[str, str]) -> Path:
    """A dataset of as many units, all alike."""
    row = {"graph": "graph", "runner": "aten", "status": "ok", "device_us": [1, 2, 3, 4, 5], "unit": "", "way": ""}
    rows = [row | {"key": str(number)} for number in range(count)]
    path = directory / "units.parquet"
    write_frame(units_frame(rows), path, {"environment": environment})
    return path


@pytest.mark.parametrize(
    ("count", "environment", "said"),
    [
        (LEAST_UNITS - 1, {}, f"{LEAST_UNITS - 1} usable units; at least {LEAST_UNITS} are needed"),
        (
            LEAST_UNITS,
            {"device": "cpu", "threads": "0"},
            "impossible multiprocessors in its environment; collect again",
        ),
    ],
)
def test_a_dataset_that_is_too_small_or_of_an_impossible_device_is_refused(
    tmp_path: Path, count: int, environment: dict[str, str], said: str
):
    path = write_units(tmp_path, count, environment)
    with pytest.raises(DatasetError, match=rf"^{re.escape(f'{path}: {said}')}$"):
        make_profile(tmp_path, "mine", TrainingSettings(), lambda _: None)
    assert list(tmp_path.iterdir()) == [path]


def test_a_summary_is_written_in_five_digits(tmp_path: Path):
    inner = {"share": 0.000123456789, "rows": [1234567.0, 1.5, "x", None], "pair": (0.1234564, 123456)}
    write_card(tmp_path / "card.json", {"a": 1.23456789, "deep": inner, "flag": True, "count": 123456789})
    assert json.loads((tmp_path / "card.json").read_text()) == {
        "a": 1.2346,
        "deep": {"share": 0.00012346, "rows": [1234600.0, 1.5, "x", None], "pair": [0.12346, 123456]},
        "flag": True,
        "count": 123456789,
    }
    with pytest.raises(ValueError, match="Out of range float"):
        write_card(tmp_path / "card.json", {"a": float("nan")})


def test_units_are_counted_by_their_status_and_kept_ones_by_their_noise():
    frame = pd.DataFrame({"status": ["ok", "ok", "failed", "ok"]})
    # quarters 1 and 3 around 4, 2 and 3 around 2, 1 and 1 around 9: apart by half, a half, and nothing
    kept = pd.DataFrame(
        {"device_us_p25": [1.0, 2.0, 1.0], "device_us_p50": [4.0, 2.0, 9.0], "device_us_p75": [3, 3, 1]}
    )
    expected = {"measured": 4, "trained_on": 3, "status": {"ok": 3, "failed": 1}, "noise": 0.5}
    assert unit_counts(frame, kept) == expected


@pytest.mark.parametrize(("errors", "best"), [((0.3, 0.2, 0.1), "guess 0.100"), ((0.1, 0.2, 0.3), "predictor 0.100")])
def test_the_best_way_of_a_group_is_named_beside_the_predictor(
    monkeypatch: pytest.MonkeyPatch, errors: tuple[float, ...], best: str
):
    predictor, network, guess = errors
    monkeypatch.setattr(module, "cross_validate", lambda table, folds, baseline, jobs: guess)
    monkeypatch.setattr(module, "score_group", lambda table, error: {"mean_error": error})
    fit: Any = SimpleNamespace(out_of_fold={"conv": predictor}, networks_alone={"conv": network})
    tables: Any = {"conv": SimpleNamespace(time_us=np.zeros(7))}
    said: list[str] = []
    guesses: Any = {"guess": None}
    rows = score_groups(tables, {"conv": None}, fit, said.append, jobs=1, baselines=guesses)
    assert said == [f"conv: 7 kernels, mean error {predictor:.3f} (best: {best})"]
    assert rows == [
        {"group": "conv", "way": way, "mean_error": error}
        for way, error in zip(("predictor", "without neighbours", "guess"), errors, strict=True)
    ]


def validation(environments: int) -> pd.DataFrame:
    """Held-out cases of two families on each machine, as fast as predicted on the first and slower on others."""
    row = {"batch_size": 1, "eager_us": 20.0, "eager_host_us": 20.0, "eager_device_us": 1.0}
    row |= {"default_us": 10.0, "default_host_us": 1.0, "default_device_us": 10.0, "speedup/default": 2.0}
    return pd.DataFrame(
        [
            row
            | {"family": family, "environment": number, "host_speed": 1.0 / (1 + number / 10)}
            | {"measured_speedup/default": 2.0 * (1 + number / 10)}
            for number in range(environments)
            for family in "ab"
        ]
    )


def test_without_a_range_of_hosts_intervals_are_those_of_the_host_that_measured():
    assert interval_scores(validation(1), {}, {}) == {"coverage": {"default": 1.0}}


@pytest.mark.parametrize(("machines", "by_machine"), [(2, False), (3, True)])
def test_coverage_on_machines_left_out_takes_three_of_them(machines: int, by_machine: bool):
    us = [5.0 * (1 + number / 10) for number in range(machines)]
    host = {"probe_us": 5.0, "machines_us": us, "range_us": host_range(us)}
    found = interval_scores(validation(machines), host, {"speedup": {"default": 0.01}, "latency": {}})
    assert found["coverage"] == {"default": 1.0}  # within the range of speeds
    assert ("coverage_by_machine" in found) is by_machine
    if by_machine:
        assert {row["machine"] for row in found["coverage_by_machine"]} == {0, 1, 2}


def test_a_roofline_is_described_in_the_fields_units():
    """3.2 GB/us are 3,200 GB/s; 45 million operations a microsecond 45 TFLOP/s."""
    roofline = Roofline(bytes_per_us=3.2e6, peak={"float32": 45.04e6, "bfloat16": 810.06e6}, floor_us=1.236)
    found = module._describe(roofline)
    assert found == {
        "bandwidth_gb_s": 3200.0,
        "peak_tflop_s": {"bfloat16": 810.1, "float32": 45.0},
        "smallest_kernel_us": 1.24,
    }
    assert list(found["peak_tflop_s"]) == ["bfloat16", "float32"]


def test_measurements_of_another_device_than_the_profiles_are_refused(tmp_path: Path):
    path = write_units(tmp_path, LEAST_UNITS, {"device": "NVIDIA H100 PCIe", "multiprocessors": "114"})
    (tmp_path / "card.json").write_text('{"schema": 1, "environment": {"device": "NVIDIA H100 80GB HBM3"}}')
    said = "measured on NVIDIA H100 PCIe, but the profile mine is of NVIDIA H100 80GB HBM3"
    expected = rf"^{re.escape(f'{path}: {said}; give the measurements another --hardware name')}$"
    with pytest.raises(DatasetError, match=expected):
        make_profile(tmp_path, "mine", TrainingSettings(), lambda _: None)
