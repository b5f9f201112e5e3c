"""One device of this machine: compiles in parallel processes, measures in one process."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from pathlib import Path

from collectors.processes.environment import environment
from collectors.processes.process import pinned
from collectors.sweep.measuring_process import MeasuringProcess
from collectors.sweep.place import Outcome
from collectors.sweep.precompile import precompile
from collectors.sweep.settings import SweepSettings
from collectors.workloads.cases import UnitCase, write_whole


class LocalPlace:
    """A device of this machine, with one measuring process that starts when it is first needed.

    Keys of compiled cases are kept in a file beside the ledger, so that a resumed sweep does not compile them again.
    """

    def __init__(self, settings: SweepSettings, ledger_path: Path) -> None:
        variables, name = pinned(settings.device)
        self.environment: Mapping[str, str] = environment(settings.device)
        self._settings = settings
        self._compiled_path = ledger_path.with_suffix(".compiled")
        self._process = MeasuringProcess(name, settings.hang_seconds, ledger_path.with_suffix(".log"), variables)
        self._thread = ThreadPoolExecutor(1)  # one for all: a child process ends with the thread that started it
        self._flying: dict[Future[Outcome], UnitCase] = {}

    def __enter__(self) -> LocalPlace:
        return self

    def __exit__(self, *_details: object) -> None:
        self._process.close()
        self._thread.shutdown(cancel_futures=True)

    def uncompiled(self, cases: Sequence[UnitCase]) -> list[UnitCase]:
        """Cases to compile that the file of compiled keys does not name."""
        known = self._compiled()
        return [case for case in cases if case.compiled and case.key not in known]

    def compile(self, cases: Sequence[UnitCase], end: float) -> Iterator[UnitCase]:
        """Compiles in parallel processes, while the measuring process starts and imports the compiler."""
        if not cases:
            return
        self._thread.submit(self._process.prepare_compiler)
        known, made = self._compiled(), set()
        try:
            for case in precompile(cases, self._settings.device, self._settings.processes, end):
                made.add(case.key)
                yield case
        finally:
            write_whole(self._compiled_path, "\n".join(sorted(known | made)))

    def capacity(self) -> int:
        """One case at a time: nothing else is done while it is measured."""
        return 1

    def submit(self, case: UnitCase) -> None:
        """Queues a case for the measuring process."""
        self._flying[self._thread.submit(self._process.measure, case)] = case

    def ended(self, seconds: float) -> list[tuple[UnitCase, Outcome]]:
        """The case that ended within `seconds`, if one did."""
        done, _ = concurrent.futures.wait(self._flying, seconds, FIRST_COMPLETED)
        return [(self._flying.pop(future), future.result()) for future in done]

    def _compiled(self) -> set[str]:
        return set(self._compiled_path.read_text().split()) if self._compiled_path.exists() else set()
