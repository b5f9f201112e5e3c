"""GPU utilisation while a call runs again and again, by NVML (the optional package nvidia-ml-py)."""

from __future__ import annotations

import statistics
import threading
import time

import torch

from study.experiment import SkippedError
from study.models import Call

SECONDS = 1.0
INTERVAL_S = 0.05


def gpu_utilisation(call: Call, seconds: float = SECONDS) -> list[float]:
    """Samples of the share of time in which the GPU runs a kernel, percent, while calls are queued.

    Raises:
        SkippedError: NVML cannot be used here.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    except ImportError:
        raise SkippedError("GPU utilisation needs NVML: pip install nvidia-ml-py") from None
    except Exception as error:  # pynvml raises its own errors, and torch others
        raise SkippedError(f"GPU utilisation needs NVML, which fails here: {error}") from error
    samples: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERVAL_S):
            samples.append(float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    watcher = threading.Thread(target=watch, daemon=True)
    end = time.monotonic() + seconds
    watcher.start()
    try:
        while time.monotonic() < end:
            call()
            torch.cuda.synchronize()
    finally:
        done.set()
        watcher.join()
        pynvml.nvmlShutdown()
    later = samples[len(samples) // 2 :]  # NVML averages over up to a second
    return later or [statistics.fmean(samples or [0.0])]
