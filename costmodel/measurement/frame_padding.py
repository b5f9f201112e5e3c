"""Padding of Python's stack, so that the depth of a caller does not change the time of its calls.

CPython 3.11 to 3.13 keep frames in chunks of 16 KiB and return a chunk to the system as soon as its first frame
returns (github.com/python/cpython/issues/142183). A function whose frame ends just before the end of a chunk pays an
`mmap` and a `munmap` for every call that it makes: 5 to 10 us instead of 0.05. The depth of the stack decides which
function that is. A compiled model launched its kernels in 3 or in 5 ms depending on the line that called it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

PADDING_SLOTS = 16_000
"""Slots of the padding frame, 8 bytes each. A chunk of 128 KiB cannot hold them and the 1,000 slots that CPython keeps
spare, so CPython allocates one of 256 KiB, half of which stays free."""

P = ParamSpec("P")
R = TypeVar("R")


def padded(function: Callable[P, R], slots: int) -> Callable[P, R]:
    """Wrap a function, so that it is called from a frame of so many slots of Python's stack."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=slots)
    return functools.wraps(function)(call)


def with_frame_padding(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function, so that its callees have about 130 KiB of one chunk of Python's stack.

    Each call of the wrapper itself pays an `mmap` and a `munmap`, so it should last more than a few microseconds.
    """
    return padded(function, PADDING_SLOTS)
