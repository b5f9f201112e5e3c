"""A process that watches the one that runs a command, which a model's code may end as nothing in it can see."""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable

from costmodel.cli.run import WRONG_REQUEST, complain

_UNFINISHED = 255
_RELAYED = frozenset({signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])})


def guarded(command: Callable[[], int]) -> int:
    """Runs a command in a forked process, and returns its exit status.

    Where that process ends before `command` returns (`os._exit`, a crash, a signal), a line says how, and the status is
    that of a wrong request. What it does afterwards, as in exit handlers, leaves the status as it is. Elsewhere than on
    Linux the command runs in this process.
    """
    if sys.platform != "linux":
        return command()
    status = mmap.mmap(-1, 1)  # shared with the child, and no descriptor that it could lose
    status[0] = _UNFINISHED
    parent = os.getpid()
    watched = _RELAYED | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the child's end with it
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _run(command, status, parent)
    end, relayed = _wait(child, watched)
    if relayed and end == -relayed:
        _end_by(relayed)
    if status[0] != _UNFINISHED:
        return status[0]
    complain(f"the process ended before the command was done: {_described(end)}")
    return WRONG_REQUEST


def _run(command: Callable[[], int], status: mmap.mmap, parent: int) -> None:
    """The child's part; leaves by SystemExit, as a process does whose main function has returned."""
    from collectors.processes.process import die_with_parent

    die_with_parent(parent)
    process = os.getpid()
    code = command()
    if os.getpid() == process:
        status[0] = code
    sys.exit(code)


def _wait(child: int, watched: frozenset[signal.Signals]) -> tuple[int, int]:
    """The exit code of the child, or minus the signal that it died of; and the last signal that was passed on to it.

    A terminal sends its signals to the child as well; those of other processes are passed on.
    """
    relayed = 0
    while True:
        came = signal.sigwaitinfo(watched)
        if came.si_signo == signal.SIGCHLD:
            ended, code = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(code), relayed
            continue
        relayed = came.si_signo
        if came.si_pid:
            os.kill(child, relayed)


def _end_by(number: int) -> None:
    """Ends this process as its child ended: whoever sent the signal sees that it was heeded."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _described(end: int) -> str:
    from collectors.processes.process import describe_exit

    return describe_exit(end)
