"""One process that measures the case that it is given, and is replaced when it dies, hangs, or is unfit to go on.

What `collectors.sweep.supervisor` does for a list of cases and a ledger, this does for one case after the other.
"""

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
from collectors.sweep.ledger import MOST_ATTEMPTS
from collectors.sweep.supervisor import STARTS_WITHOUT_PROGRESS
from collectors.sweep.worker import attempt, tidy
from collectors.workloads.cases import Case
from costmodel.errors import MeasurementError

START_SECONDS = 180.0
"""How long a process may take until it is ready: a cold disk, an import of torch, the device's start."""


class Measurer:
    """Measures on one device, in a process of its own.

    Args:
        device: `cpu` or `cuda`; which GPU, CUDA_VISIBLE_DEVICES of this process says.
        hang_seconds: a case that takes longer is given up.
        log: where the process writes.
    """

    def __init__(self, device: str, hang_seconds: float, log: Path) -> None:
        self._device = device
        self._hang_seconds = hang_seconds
        self._log = log
        self._stack = ExitStack()
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._about: dict[str, Any] = {}
        self._closed = False
        self._lock = Lock()  # close() comes from another thread

    def about(self) -> Mapping[str, Any]:
        """The `environment` of the process, and the `place` that it measures on: a host's name and its device.

        Raises:
            MeasurementError: no process can be brought to measure; the message has its last words.
        """
        self._ready()
        return self._about

    def measure(self, case: Case) -> tuple[str, dict[str, Any]]:
        """Status and record of a case; one that kills its process is tried once more.

        Raises:
            MeasurementError: no process can be brought to measure; the message has its last words.
        """
        for number in range(1, MOST_ATTEMPTS + 1):
            status, record, healthy = self._ask(case)
            if not healthy:
                self._stop()
            if status != "crashed":
                break
            record["attempt"] = number
        return status, record

    def close(self) -> None:
        """Ends the process, also in the middle of a case; nothing can be measured afterwards."""
        self._closed = True
        self._stop()

    def _ask(self, case: Case) -> tuple[str, dict[str, Any], bool]:
        process, pipe = self._ready()
        try:
            pipe.send(case)
            if pipe.poll(self._hang_seconds):
                status, record, healthy = pipe.recv()
                return status, record, healthy
        except (EOFError, OSError):
            return "crashed", {"error": describe_exit(process.wait())}, False
        return "timeout", {"error": f"did not end in {self._hang_seconds:g} s, and was killed"}, False

    def _ready(self) -> tuple[subprocess.Popen[bytes], Connection]:
        why = ""
        for _ in range(STARTS_WITHOUT_PROGRESS):
            if self._running is not None:
                return self._running
            why = self._start()
        if self._running is None:
            raise MeasurementError(f"the process that measures ends before it is ready: {why}")
        return self._running

    def _start(self) -> str:
        """Starts a process and waits until it is ready; why it is not, or nothing."""
        ours, theirs = Pipe()
        command = [sys.executable, "-m", "collectors.sweep.measuring_process", str(theirs.fileno())]
        command += ["--device", self._device, "--parent", str(os.getpid())]
        with self._lock, theirs:
            if self._closed:
                raise MeasurementError("nothing more is to be measured here")
            process = self._stack.enter_context(running(command, {}, self._log, [theirs.fileno()]))
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
    """Says what it measures on; then receives cases and sends what came of each, until nobody sends any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("descriptor", type=int, help="of the open pipe to the parent")
    parser.add_argument("--device", required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args()
    die_with_parent(args.parent)
    warnings.filterwarnings("ignore")
    with Connection(args.descriptor) as pipe:
        about = {"environment": environment(args.device), "place": _place(args.device)}
        importlib.import_module(
            "collectors.processes.run_graph"
        )  # so that no case is taken to hang for what it is the first to need
        tidy(0, args.device)
        pipe.send(about)
        for count in itertools.count(1):
            try:
                case = pipe.recv()
            except EOFError:
                return
            pipe.send(attempt(case, args.device))
            tidy(count, args.device)


def _place(device: str) -> str:
    """No two processes of one place measure at the same time; on a CPU that is for who starts them to see to."""
    import torch

    name = socket.gethostname()
    return f"{name} {torch.cuda.get_device_properties(device).uuid}" if device.startswith("cuda") else name


if __name__ == "__main__":
    main()
