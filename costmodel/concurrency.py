"""Threads: one of them at a time captures, applies or measures a module, and records what it runs itself, nothing else.

A capture puts meta tensors in the place of the module's parameters, patches functions of torch and registers global
hooks. The first is visible to every thread that uses the same module, so the public functions take turns. The others
are in place for every thread, but act only on the thread that records: other threads run as they always do.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_turn = threading.RLock()


class _Thread(threading.local):
    """State of one thread.

    Attributes:
        recording: whatever records the operators and modules that this thread runs; None while nothing does.
    """

    recording: object | None = None


_thread = _Thread()


def takes_turns(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run by one thread at a time.

    A call from inside another, as from the forward pass of a module that is being captured, goes ahead, and is no part
    of what the outer one records. A forward pass must not wait for a call made by a thread that it has started.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _turn, recording(None):
            return function(*args, **kwargs)

    return call


@contextmanager
def recording(recorder: object | None) -> Iterator[None]:
    """Inside, `recorder` is what records this thread, in the place of the one outside."""
    outer, _thread.recording = _thread.recording, recorder
    try:
        yield
    finally:
        _thread.recording = outer


def is_recording(recorder: object) -> bool:
    """Whether `recorder` is what records this thread."""
    return _thread.recording is recorder


def _start_anew() -> None:
    """Gives a forked process a lock of its own: the thread that holds the parent's does not exist in it."""
    global _turn  # noqa: PLW0603 - a lock that another thread holds cannot be released
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_start_anew)
