"""What numbers were taken on: versions, device, host. Numbers of two environments are never mixed."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

FACTS_OF_DEVICE = {"multiprocessors", "memory_bytes"}
"""Fields that follow from the device's name, and that files recorded before lack: they are not compared."""
METHOD = "1"
"""How units are measured; to be raised with any change that makes new numbers differ from old ones."""


def environment(device: str) -> dict[str, str]:
    """The fingerprint of this machine as seen from `device` (`cpu`, `cuda`, `cuda:N`)."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__, "host_cpu": _cpu_name()}
    found |= {"cores": str(os.cpu_count()), "method": METHOD, "python_stack": "with room"}
    with contextlib.suppress(ImportError):
        import triton

        found["triton"] = triton.__version__
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(torch.device(device))
        return found | {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
            "driver": _driver(),
            "multiprocessors": str(properties.multi_processor_count),
            "memory_bytes": str(properties.total_memory),
        }
    return found | {
        "device": "cpu",
        "threads": str(torch.get_num_threads()),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "freed_memory": "kept",
        "denormals": "flushed",
    }


def differences(found: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What two environments differ in, in words; empty if they are the same. One without a method used the first."""
    first = {"method": "1"}
    left, right = {**first, **found}, {**first, **here}
    return ", ".join(
        f"{name} was {left.get(name, 'not recorded')} and is {right.get(name, 'not recorded')}"
        for name in sorted({*left, *right} - FACTS_OF_DEVICE)
        if left.get(name) != right.get(name)
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0].strip("\t :")
    return "unknown"


def _driver() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]  # found by PATH, as users find it
        asked = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
        return asked.stdout.split("\n")[0]
    return "unknown"
