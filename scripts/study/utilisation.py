"""GPU utilisation while a call runs again and again, by NVML: the package nvidia-ml-py, or else `nvidia-smi`."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from study.experiment import SkippedError
from study.models import Call

INTERVAL_S = 0.05


def gpu_utilisation(call: Call, seconds: float) -> list[float]:
    """Samples of the share of time in which the GPU runs a kernel, percent, while calls run one after another.

    NVML averages over up to a second, so the first half of the samples is left out.

    Raises:
        SkippedError: neither the package nor the program is there.
    """
    with _watching() as samples:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            call()
            torch.cuda.synchronize()
    later = samples[len(samples) // 2 :]
    if not later:
        raise SkippedError("NVML gave no GPU utilisation in that time")
    return later


@contextmanager
def _watching() -> Iterator[list[float]]:
    """Samples that are complete at the end of the block."""
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    try:
        import pynvml
    except ImportError:
        with _by_program(uuid) as samples:
            yield samples
        return
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    samples = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(INTERVAL_S):
            samples.append(float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        done.set()
        watcher.join()
        pynvml.nvmlShutdown()


@contextmanager
def _by_program(uuid: str) -> Iterator[list[float]]:
    samples: list[float] = []
    options = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", f"-lms={round(1e3 * INTERVAL_S)}"]
    command = ["nvidia-smi", "-i", uuid, *options]  # found through PATH
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError:
        raise SkippedError("GPU utilisation needs NVML: pip install nvidia-ml-py") from None
    try:
        yield samples
    finally:
        program.terminate()
        written, _ = program.communicate()
        samples += [float(line) for line in written.split() if line.isdigit()]
