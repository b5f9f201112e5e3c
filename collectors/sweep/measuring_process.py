"""One process that measures one case after another, and is replaced when it dies, hangs or is unfit to go on."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

from collectors.processes.environment import environment
from collectors.processes.process import describe_exit, die_with_parent, last_words, running
from collectors.sweep.place import CRASHED, Outcome
from collectors.sweep.unit_timing import attempt, make_ready, tidy
from collectors.workloads.cases import UnitCase
from costmodel.errors import MeasurementError
from costmodel.measurement.cpu_determinism import make_cpu_deterministic

START_SECONDS = 180.0
"""Deadline for a process to become ready: a cold disk, the import of torch, the start of the device."""
STARTS = 2
"""Attempts to start a process."""
PREPARE_COMPILER = "prepare compiler"
"""Request to import torch's compiler before a compiled case needs it."""


class MeasuringProcess:
    """Handle of a process that measures on one device; the process starts when it is first needed.

    Args:
        device: `cpu` or `cuda`; CUDA_VISIBLE_DEVICES of the process selects the GPU.
        hang_seconds: deadline of one case.
        log: file that the process writes its output to.
        variables: environment variables that the process gets beside those of this one.
    """

    def __init__(self, device: str, hang_seconds: float, log: Path, variables: Mapping[str, str] | None = None) -> None:
        self._device = device
        self._hang_seconds = hang_seconds
        self._log = log
        self._variables = dict(variables or {})
        self._stack = ExitStack()
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._about: dict[str, Any] = {}
        self._closed = False
        self._lock = Lock()  # close() comes from another thread

    def about(self) -> Mapping[str, Any]:
        """`environment` of the process, and `place`: the host's name and its device.

        Raises:
            MeasurementError: no process can be started; the message has its last line of output.
        """
        self._ready()
        return self._about

    def prepare_compiler(self) -> None:
        """Import torch's compiler in the process, so that its first compiled case does not wait for that.

        Raises:
            MeasurementError: no process can be started; the message has its last line of output.
        """
        self._ask(PREPARE_COMPILER, START_SECONDS)

    def measure(self, case: UnitCase) -> Outcome:
        """Measure a case; a process that dies, hangs or becomes unfit is stopped, and the next case gets a new one.

        Raises:
            MeasurementError: no process can be started; the message has its last line of output.
        """
        status, record, healthy = self._ask(case, self._hang_seconds)
        if not healthy:
            self._stop()
        return Outcome(status, record, self._about)

    def close(self) -> None:
        """End the process, also in the middle of a case; nothing can be measured afterwards."""
        self._closed = True
        self._stop()

    def _ask(self, request: UnitCase | str, seconds: float) -> tuple[str, dict[str, Any], bool]:
        process, pipe = self._ready()
        try:
            pipe.send(request)
            if pipe.poll(seconds):
                status, record, healthy = pipe.recv()
                return status, record, healthy
        except (EOFError, OSError):
            return CRASHED, {"error": describe_exit(process.wait())}, False
        return "timeout", {"error": f"did not end in {seconds:g} s, and was killed"}, False

    def _ready(self) -> tuple[subprocess.Popen[bytes], Connection]:
        why = ""
        for _ in range(STARTS):
            if self._running is not None:
                return self._running
            why = self._start()
        if self._running is None:
            raise MeasurementError(f"the measuring process ends before it is ready: {why}; see {self._log}")
        return self._running

    def _start(self) -> str:
        """Start a process and wait until it is ready; returns why it is not, or nothing."""
        ours, theirs = Pipe()
        command = [sys.executable, "-m", "collectors.sweep.measuring_process", str(theirs.fileno())]
        command += ["--device", self._device, "--parent", str(os.getpid())]
        with self._lock, theirs:
            if self._closed:
                raise MeasurementError("this measuring process is closed")
            process = self._stack.enter_context(running(command, self._variables, self._log, [theirs.fileno()]))
            self._stack.enter_context(ours)
        try:
            if ours.poll(START_SECONDS):
                self._about, self._running = ours.recv(), (process, ours)
                return ""
            why = f"it took longer than {START_SECONDS:g} s"
        except (EOFError, OSError):
            why = f"{describe_exit(process.wait())}: {last_words(self._log)}"
        self._stop()
        return why

    def _stop(self) -> None:
        with self._lock:
            self._running = None
            self._stack.close()


def main() -> None:
    """Send `about`, then measure each case that comes through the pipe, until it is closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("descriptor", type=int, help="of the open pipe to the parent")
    parser.add_argument("--device", required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args()
    die_with_parent(args.parent)
    make_cpu_deterministic(args.device)
    warnings.filterwarnings("ignore")
    with Connection(args.descriptor) as pipe:
        about = {"environment": environment(args.device), "place": _place(args.device)}
        importlib.import_module("collectors.processes.run_graph")  # no case's deadline should include this import
        tidy(0, args.device)
        pipe.send(about)
        for count in itertools.count(1):
            try:
                request = pipe.recv()
            except EOFError:
                return
            pipe.send(_answer(request, args.device))
            tidy(count, args.device)


def _answer(request: UnitCase | str, device: str) -> tuple[str, dict[str, Any], bool]:
    """Status, record, and whether this process can measure another case."""
    if isinstance(request, UnitCase):
        return attempt(request, device)
    make_ready(device)
    return "ok", {}, True


def _place(device: str) -> str:
    """Name of the host and the GPU; two processes must not measure in one place at a time."""
    import torch

    name = socket.gethostname()
    return f"{name} {torch.cuda.get_device_properties(device).uuid}" if device.startswith("cuda") else name


if __name__ == "__main__":
    main()
