"""Measurements of another device than the profile's, also of one with another memory size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.calibration.same_device import check_same_device, device_of
from costmodel.device import Device
from costmodel.errors import DatasetError, ProfileError

H100 = "NVIDIA H100 80GB HBM3"  # 85,017,493,504 bytes, which are 79 GiB, where they were not recorded


def write_card(directory: Path, environment: dict[str, str]) -> None:
    (directory / "card.json").write_text(json.dumps({"schema": 1, "environment": environment}))


def check(directory: Path, environment: dict[str, str]) -> None:
    check_same_device(directory, "mine", device_of(environment, directory), directory / "ledger.sqlite")


@pytest.mark.parametrize(
    "environment",
    [
        {"device": H100},
        {"device": H100, "memory_bytes": str(80 << 30)},  # 1 % more, as another driver reports
        {"device": H100, "multiprocessors": "114"},
    ],
)
def test_measurements_of_the_same_device(tmp_path: Path, environment: dict[str, str]):
    check(tmp_path, environment)  # no profile yet
    write_card(tmp_path, {"device": H100})
    check(tmp_path, environment)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"device": "NVIDIA H100 PCIe"}, f"NVIDIA H100 PCIe, but the profile mine is of {H100}"),
        ({"device": "cpu", "threads": "2"}, f"cpu, but the profile mine is of {H100}"),
        (
            {"device": H100, "memory_bytes": str(94 << 30)},
            f"{H100} of 94 GiB, but the profile mine is of {H100} of 79 GiB",
        ),
    ],
)
def test_measurements_of_another_device(tmp_path: Path, environment: dict[str, str], said: str):
    write_card(tmp_path, {"device": H100})
    with pytest.raises(DatasetError) as caught:
        check(tmp_path, environment)
    name = tmp_path / "ledger.sqlite"
    assert str(caught.value) == f"{name}: measured on {said}; give the measurements another --hardware name"


def test_a_memory_size_that_is_not_known_is_not_compared():
    assert Device("NVIDIA T4", 40).is_like(Device("NVIDIA T4", 40, 16 << 30))
    assert not Device("NVIDIA T4", 40, 8 << 30).is_like(Device("NVIDIA T4", 40, 16 << 30))


def test_impossible_devices_and_damaged_profiles(tmp_path: Path):
    with pytest.raises(DatasetError, match="ledger: impossible memory_bytes in its environment; collect again"):
        device_of({"device": H100, "memory_bytes": "many"}, Path("ledger"))
    (tmp_path / "card.json").write_text("{")
    with pytest.raises(ProfileError, match=r"card\.json"):
        check(tmp_path, {"device": H100})
