"""What the processes of a sweep share: dying with their parent, naming their end, being pinned to one device."""

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
    """From here on this process is killed when its parent ends, however that ends.

    Without it, a worker outlives a supervisor that was killed and disturbs the measurements of the next one.

    Args:
        parent: the parent's process id, as the parent knows it; if it is gone already, this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def interruptions() -> int:
    """How often so far a thread of this process had to leave its core to another process; 0 where nobody counts."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def describe_exit(returncode: int) -> str:
    """How a process ended, in words: `killed by SIGSEGV`, `exit status 1`."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def pinned(device: str) -> tuple[dict[str, str], str]:
    """Environment variables that show a child process only one device, and what the child is to call it.

    Of a CPU they say how many threads run a kernel: as many as here.

    Raises:
        RequestError: the name is none of `cpu`, `cuda`, `cuda:N`.
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
    """A process in a group of its own, writing to `log`; the whole group is gone when the block ends.

    Args:
        command: the program and its arguments.
        environment: variables that it has beside this process's.
        log: the file that both its outputs are appended to.
        descriptors: of open files that it shares with this process.
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
    """Kills a process and all that it started, and waits for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_words(log: Path) -> str:
    """The last line of a log that says anything."""
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
