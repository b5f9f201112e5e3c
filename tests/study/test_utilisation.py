"""Samples of GPU utilisation: by NVML's package, by its program, or refused."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from study import utilisation
from study.experiment import SkippedError


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="u"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_without_nvml_the_reason_names_the_package(device: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SkippedError, match="pip install nvidia-ml-py"):
        utilisation.gpu_utilisation(lambda: None, 0.0)


def test_the_package_is_asked_again_and_again(device: None, monkeypatch: pytest.MonkeyPatch):
    rates = iter(range(10_000))
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=next(rates) if handle == "GPU-u" else -1),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(utilisation, "INTERVAL_S", 0.001)
    found = utilisation.gpu_utilisation(lambda: time.sleep(0.01), 0.1)
    assert found == sorted(found)
    assert found[0] >= len(found) - 1  # the first half is left out


def test_the_program_is_read_to_its_end(device: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho 10\necho "[N/A]"\necho 90\nexec sleep 60\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert utilisation.gpu_utilisation(lambda: time.sleep(0.2), 1.0) == [90.0]
