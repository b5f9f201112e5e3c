"""Handle of a process that prepares a case, is held until its turn, and measures; each step has a deadline."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collectors.processes.process import describe_exit, kill_group, last_words
from collectors.whole_models.case_process import READY, Job
from collectors.whole_models.records import Record, failure

ROOT = Path(__file__).parents[2]
_SKIPPED = re.compile(r"skipping cudagraphs?.*", re.IGNORECASE)
"""Inductor's message where it does not use a CUDA graph."""


@dataclass(slots=True)
class HeldProcess:
    """A process with a job, its log, and the output read so far.

    Attributes:
        job: its job.
        process: the process.
        log: file of its standard error.
        ready_by: deadline for being ready, monotonic seconds.
        ready: whether it is ready for its turn.
        record: its record, once it has ended.
    """

    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    ready_by: float
    ready: bool = False
    record: Record | None = None
    _output: bytes = b""
    _stopped: bool = False

    def settled(self, end: float) -> bool:
        """Whether the process is ready or has ended. One that is late is stopped; after `end` it leaves no record."""
        line = self._line(0.0)
        if line is None and time.monotonic() < min(self.ready_by, end):
            return False
        self.ready = line == READY
        if not self.ready:
            if line or time.monotonic() < end or time.monotonic() > self.ready_by:
                self.record = json.loads(line) if line else self._failure("preparing", line is None)
            self.stop()
        return True

    def start_turn(self) -> None:
        """Let a ready process measure."""
        assert self.process.stdin
        with suppress(BrokenPipeError):
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()

    def finish_turn(self, seconds: float) -> Record:
        """Wait for the record of a process in its turn; the process is gone afterwards."""
        line = self._line(time.monotonic() + seconds)
        record: Record = json.loads(line) if line else self._failure("measuring", line is None)
        self.stop()
        self.record = self._with_skip_reasons(record)
        return self.record

    def stop(self) -> None:
        """Kill the process and all that it started, once."""
        if self._stopped:
            return
        self._stopped = True
        kill_group(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]

    def _line(self, deadline: float) -> str | None:
        """Next line of output; None at the deadline, empty at the end of output."""
        assert self.process.stdout
        while b"\n" not in self._output:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return ""
            self._output += more
        first, _, self._output = self._output.partition(b"\n")
        return first.decode() + "\n"

    def _failure(self, step: str, late: bool) -> Record:
        """Record of a process that wrote none: it was late, or it died."""
        if late:
            return failure(self.job.case, f"deadline exceeded while {step}", "timeout")
        ended = describe_exit(self.process.wait())
        return failure(self.job.case, f"its process ended while {step}: {ended}: {last_words(self.log)}", ended)

    def _with_skip_reasons(self, record: Record) -> Record:
        skipped = any(details["cudagraph_skips"] for details in record.get("compiled", {}).values())
        if not skipped or not self.log.exists():
            return record
        text = self.log.read_text(errors="replace")
        return record | {"skip_reasons": list(dict.fromkeys(found.group()[:300] for found in _SKIPPED.finditer(text)))}


def start(job: Job, log: Path, variables: Mapping[str, str], ready_s: float) -> HeldProcess:
    """Start a process that prepares a job.

    The process ends with the thread that started it, so all processes are started by one thread.

    Args:
        job: its job.
        log: file of its standard error.
        variables: environment variables that it gets beside those of this process.
        ready_s: deadline for being ready.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "collectors.whole_models.case_process", job.dumps(), str(os.getpid())]
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter on our own module
            command,
            env={**os.environ, **variables, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    return HeldProcess(job, process, log, time.monotonic() + ready_s)
