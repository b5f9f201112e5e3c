"""Datasets that no profile can be made of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costmodel.calibration.make_profile import LEAST_UNITS, make_profile
from costmodel.errors import DatasetError
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


def test_measurements_of_another_device_than_the_profiles_are_refused(tmp_path: Path):
    path = write_units(tmp_path, LEAST_UNITS, {"device": "NVIDIA H100 PCIe", "multiprocessors": "114"})
    (tmp_path / "card.json").write_text('{"schema": 1, "environment": {"device": "NVIDIA H100 80GB HBM3"}}')
    said = "measured on NVIDIA H100 PCIe, but the profile mine is of NVIDIA H100 80GB HBM3"
    expected = rf"^{re.escape(f'{path}: {said}; give the measurements another --hardware name')}$"
    with pytest.raises(DatasetError, match=expected):
        make_profile(tmp_path, "mine", TrainingSettings(), lambda _: None)
