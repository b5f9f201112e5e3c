"""Facts of devices: recorded ones, those of a device's name, and impossible ones."""

from __future__ import annotations

import pytest

from costmodel.device import Device
from costmodel.profiles.profile import load_profile


@pytest.mark.parametrize(
    ("environment", "device"),
    [
        ({"device": "NVIDIA H200"}, Device("NVIDIA H200", 132, 150_754_820_096)),  # 143,771 MiB
        ({"device": "NVIDIA H200", "multiprocessors": "60"}, Device("NVIDIA H200", 60, 150_754_820_096)),
        ({"device": "NVIDIA T4", "multiprocessors": "40", "memory_bytes": "16000"}, Device("NVIDIA T4", 40, 16_000)),
        ({"device": "cpu", "threads": "16"}, Device("cpu", 16)),
        ({"device": "NVIDIA T4"}, Device("NVIDIA T4", 1)),
        ({}, Device("", 1)),
    ],
)
def test_recorded_facts_take_precedence_over_those_of_the_name(environment: dict[str, str], device: Device):
    assert Device.of(environment) == device
    assert device.is_cpu == (environment.get("device") == "cpu")


@pytest.mark.parametrize("fact", ["multiprocessors", "memory_bytes"])
@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "1e3", "٣", "9" * 19, "many"])
def test_impossible_facts_are_refused(fact: str, value: str):
    with pytest.raises(ValueError, match=f"impossible {fact}"):
        Device.of({"device": "NVIDIA H200", fact: value})


@pytest.mark.parametrize("name", ["nvidia-h200", "nvidia-h100", "amd-epyc-2-threads", "intel-xeon-16-threads"])
def test_the_predictor_of_a_shipped_profile_was_trained_for_its_device(name: str):
    profile = load_profile(name)
    assert profile.predictor.multiprocessors == profile.device.multiprocessors
