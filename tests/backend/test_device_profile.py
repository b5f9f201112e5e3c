"""Profiles of devices: the device's own decides, another is only used to plan."""

from __future__ import annotations

import pytest
import torch

from costmodel.backend.device_profile import profile_for
from costmodel.errors import UnknownHardwareError

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "profile", "is_own", "note"),
    [
        ("NVIDIA H200", "nvidia-h200", True, "this machine has an NVIDIA H200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100", True, "this machine has an NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100 PCIe", "nvidia-h100", True, "measured on an NVIDIA H100 80GB HBM3"),
        ("NVIDIA L4", "nvidia-h200", False, "there is no profile of an NVIDIA L4"),
    ],
)
def test_gpus(monkeypatch, name, profile, is_own, note):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    found = profile_for(GPU, None)
    assert (found.profile.name, found.is_own) == (profile, is_own)
    assert found.note.startswith(note)


@pytest.mark.parametrize(("threads", "profile"), [(1, "amd-epyc-2-threads"), (12, "intel-xeon-16-threads")])
def test_a_cpu_has_none_of_its_own(monkeypatch, threads, profile):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found = profile_for(CPU, None)
    assert (found.profile.name, found.is_own) == (profile, False)


def test_a_named_profile_decides_on_devices_of_its_kind(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    assert profile_for(CPU, "intel-xeon-16-threads").is_own
    assert profile_for(GPU, "nvidia-h100").is_own
    assert profile_for(GPU, "nvidia-h100").profile.name == "nvidia-h100"
    assert not profile_for(GPU, "intel-xeon-16-threads").is_own
    assert profile_for(GPU, "intel-xeon-16-threads").profile.name == "nvidia-h200"
    assert not profile_for(CPU, "nvidia-h100").is_own


def test_an_unknown_one_is_refused():
    with pytest.raises(UnknownHardwareError, match="no hardware profile is called 'x'"):
        profile_for(CPU, "x")
