"""Child processes: ended with their parent, pinned to one device, their exit described."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from costmodel.errors import RequestError

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have this process killed when its parent thread ends, in whatever way.

    Otherwise a measuring process outlives a sweep that was killed, and disturbs the measurements of the next one.

    Args:
        parent: the parent's process id; if the parent is gone already, this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def interruptions() -> int:
    """Number of involuntary context switches of this process so far; 0 on systems that do not count them."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def describe_exit(returncode: int) -> str:
    """Describe how a process ended: `killed by SIGSEGV`, `exit status 1`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def pinned(device: str) -> tuple[dict[str, str], str]:
    """Environment variables that show a child process only one device, and the device's name in the child.

    For a CPU they set the number of threads of a kernel, as in this process.

    Raises:
        RequestError: the device is none of `cpu`, `cuda`, `cuda:N`.
    """
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if match is None:
        raise RequestError(f"unknown device {device!r}; choose cpu, cuda or cuda:N")
    if device == "cpu":
        import torch

        return {"OMP_NUM_THREADS": str(torch.get_num_threads())}, device
    if match[1] is None:
        return {}, device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else []
    number = int(match[1])
    if names and number >= len(names):
        raise RequestError(f"there is no {device}: CUDA_VISIBLE_DEVICES is {visible}")
    return {"CUDA_VISIBLE_DEVICES": names[number] if names else match[1]}, "cuda"


@contextmanager
def running(
    command: Sequence[str], environment: dict[str, str], log: Path, descriptors: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Process in a group of its own that writes to `log`; the whole group is killed when the block ends.

    Args:
        command: program and arguments.
        environment: variables that it gets beside those of this process.
        log: file that standard output and standard error are appended to.
        descriptors: descriptors of open files that it shares with this process.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter on our own modules
            list(command),
            env={**os.environ, **environment},
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=descriptors,
        )
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, and wait for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_words(log: Path) -> str:
    """Last line of a log that is not blank."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
