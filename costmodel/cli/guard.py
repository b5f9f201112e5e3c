"""Guard process of a command: reports an end that the command's process cannot report itself."""

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
    """Run a command in a forked process, and return its exit status.

    If the process ends before `command` returns (`os._exit`, a crash, a signal), an error line says how it ended, and
    the status is that of a wrong request. Exit handlers that run after the command cannot change the status. On systems
    other than Linux the command runs in this process.
    """
    if sys.platform != "linux":
        return command()
    status = mmap.mmap(-1, 1)  # shared with the child, without a descriptor that it could close
    status[0] = _UNFINISHED
    parent = os.getpid()
    watched = _RELAYED | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, the child's exit status would be lost
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
    """Run the command in the child; ends with SystemExit, so that exit handlers run."""
    from collectors.processes.process import die_with_parent

    die_with_parent(parent)
    process = os.getpid()
    code = command()
    if os.getpid() == process:
        status[0] = code
    sys.exit(code)


def _wait(child: int, watched: frozenset[signal.Signals]) -> tuple[int, int]:
    """Wait for the child: its exit code, or minus the signal that killed it; and the last signal relayed to it.

    A terminal sends its signals to the child as well; signals of other processes are relayed.
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
    """End this process by the signal that ended the child, so that the sender sees its effect."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _described(end: int) -> str:
    from collectors.processes.process import describe_exit

    return describe_exit(end)
