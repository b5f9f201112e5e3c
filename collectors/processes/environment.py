"""Environment of measurements: versions, device, host. Measurements of two environments are never mixed."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from costmodel.device import Device

FACTS_OF_DEVICE = {"multiprocessors", "memory_bytes"}
"""Fields that older files lack: only the memory size is compared, where both files have it."""
METHOD = "1"
"""Version of the way units are measured; raise it with any change that makes new times differ from old ones."""


def environment(device: str) -> dict[str, str]:
    """Versions, device and host of this machine for a device (`cpu`, `cuda`, `cuda:N`)."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__, "host_cpu": _cpu_name()}
    found |= {"cores": str(available_cores()), "method": METHOD, "python_stack": "with room"}
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


def available_cores() -> int:
    """Number of cores that this process may use: fewer than the machine's under `taskset` or in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def differences(found: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Differences of two environments in words; empty if they are equal. Without a method, it is the first.

    Raises:
        ValueError: a fact of a device is impossible.
    """
    first = {"method": "1"}
    left, right = {**first, **found}, {**first, **here}
    names = [name for name in sorted({*left, *right} - FACTS_OF_DEVICE) if left.get(name) != right.get(name)]
    if left.get("device") == right.get("device") and not Device.of(left).is_like(Device.of(right)):
        names.append("memory_bytes")
    return ", ".join(
        f"{name} was {left.get(name, 'not recorded')} and is {right.get(name, 'not recorded')}" for name in names
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc/cpuinfo").read_text().split("model name")[1].split("\n")[0].strip("\t :")
    return "unknown"


def _driver() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]  # found through PATH
        asked = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
        return asked.stdout.split("\n")[0]
    return "unknown"
