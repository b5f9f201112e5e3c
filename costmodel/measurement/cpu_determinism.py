"""What a process does before it measures a CPU, so that it measures the same whatever it has run before."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def make_cpu_deterministic(device: str) -> None:
    """Makes this process measure a CPU alike whatever it has run before: memory is kept, tiny numbers are zero.

    With random weights values may become denormal, which slows arithmetic down many times; and Inductor's libraries
    flush them to zero from when they are loaded.
    """
    if device == "cpu":
        import torch

        keep_memory()
        torch.set_flush_denormal(True)


def keep_memory() -> None:
    """From here on the C library keeps what this process frees, as PyTorch's allocator does on a GPU.

    By default it gives large tensors back to the system, or not, by what was freed before: mobilenet_v2 took 16 or 25
    ms on the same thread, for page faults alone. `mallopt` is the GNU C library's.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, -1)
