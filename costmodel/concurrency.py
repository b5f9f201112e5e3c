"""Thread safety: one thread at a time captures, applies or measures a module, and records only its own operators.

A capture replaces the module's parameters by meta tensors, patches functions of torch and registers global hooks.
Replaced parameters are visible to every thread that uses the module, so public functions take turns. Patches and hooks
are visible to every thread too, but act only on the thread that records.
"""

from __future__ import annotations

import functools
import os
import sys
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
        recording: recorder of the operators and modules that this thread runs; None if there is none.
    """

    recording: object | None = None


_thread = _Thread()


def takes_turns(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator for functions that only one thread runs at a time.

    A nested call, such as from the forward pass of a module that is being captured, runs at once and is not recorded by
    the outer call. A forward pass must not wait for a call in a thread that it has started.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _turn, recording(None):
            return _untraced(function)(*args, **kwargs)

    return call


@contextmanager
def turn_within(seconds: float) -> Iterator[bool]:
    """Context of a turn that waits for at most some seconds; whether it got one.

    For callers that hold a lock which the thread whose turn it is may wait for, as Dynamo's while it compiles.
    """
    lock = _turn
    got = lock.acquire(timeout=seconds)
    try:
        yield got
    finally:
        if got:
            lock.release()


def _untraced(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which Dynamo leaves out of its graphs if the process uses it."""
    dynamo = sys.modules.get("torch._dynamo")
    return function if dynamo is None else dynamo.disable(function)


@contextmanager
def recording(recorder: object | None) -> Iterator[None]:
    """Context in which `recorder` records this thread, instead of any outer recorder."""
    outer, _thread.recording = _thread.recording, recorder
    try:
        yield
    finally:
        _thread.recording = outer


def is_recording(recorder: object) -> bool:
    """Whether `recorder` records this thread."""
    return _thread.recording is recorder


def _replace_lock() -> None:
    """Replace the lock in a forked process, where the thread that may hold it does not exist."""
    global _turn  # noqa: PLW0603 - a lock that another thread holds cannot be released
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_replace_lock)
