"""Settings of a process that make CPU timings independent of earlier work in the process."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def make_cpu_deterministic(device: str) -> None:
    """Keep freed memory and flush denormals in this process, if it measures a CPU.

    Random weights may produce denormal values, which slow arithmetic down many times. Libraries of Inductor flush them
    to zero once loaded, so timings would depend on whether a model was compiled before.
    """
    if device == "cpu":
        import torch

        keep_memory()
        torch.set_flush_denormal(True)


def keep_memory() -> None:
    """Make the C library keep memory that this process frees, as PyTorch's allocator does on a GPU.

    By default, earlier frees decide whether the memory of large tensors returns to the system. Page faults alone then
    change the time of mobilenet_v2 on one thread from 16 to 25 ms. `mallopt` exists in the GNU C library only.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, -1)
