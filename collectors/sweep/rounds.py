"""Sweep in rounds: the units of each round are chosen by the measurements of earlier rounds, within one time budget.

The choice of the current round is kept beside the ledger, so that the same request resumes where it was interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from collectors.sweep.candidates import Candidate, candidates, rank
from collectors.sweep.ledger import Ledger
from collectors.sweep.settings import Progress, Report, SweepSettings
from collectors.workloads.cases import Runner, UnitCase
from collectors.workloads.catalog import remember, remembered
from costmodel.kernels.kernel import TF32_RUNNER
from costmodel.predictor.predictor import Base

Sweep = Callable[[Sequence[UnitCase], Path, SweepSettings, Report], None]
"""Measures cases into a ledger."""
ROUNDS = 4
"""Number of rounds that share the budget, if each can have LEAST_SECONDS."""
LEAST_SECONDS = 120.0
"""Least length of a round: it starts with choosing and new processes, and a case that hangs must end in it."""
LEAST_CHOSEN = 50
AMPLE = 1.5
"""Factor by which a round is given more than it has time for; cases left over are chosen from again."""


@dataclass(slots=True)
class Watch:
    """Adds the round and the time left of the whole budget to progress; measures the time per case."""

    report: Report
    end: float
    round: int = 0
    compiling: tuple[float, int] = (0.0, 0)
    measuring: tuple[float, int] = (0.0, 0)

    def __call__(self, progress: Progress) -> None:
        """Report progress of a phase of this round."""
        if progress.done:
            spent = (progress.seconds, progress.done)
            if progress.phase == "compiling":
                self.compiling = spent
            else:
                self.measuring = spent
        self.report(replace(progress, round=self.round, budget_left=max(0.0, self.end - time.monotonic())))

    def seconds(self) -> Mapping[Runner, float]:
        """Seconds per case of each runner in the last round; estimates before the first."""
        alone = self.measuring[0] / self.measuring[1] if self.measuring[1] else 0.2
        compiled = self.compiling[0] / self.compiling[1] if self.compiling[1] else 0.4
        return {"aten": alone, TF32_RUNNER: alone, "inductor": alone + compiled}


def sweep_in_rounds(
    cases: Sequence[UnitCase],
    ledger_path: Path,
    choice_path: Path,
    request: Mapping[str, object],
    settings: SweepSettings,
    report: Report,
    sweep: Sweep,
    base: Base | None = None,
) -> None:
    """Measure cases, the most informative first, until all are done or the time is up.

    Args:
        cases: cases to choose from.
        ledger_path: file of the results.
        choice_path: file of the choice of the current round.
        request: request that the cases were made for; a choice for another request is not resumed.
        settings: settings of the sweep; `seconds` is the budget of all rounds together.
        report: receives progress.
        sweep: measures a round.
        base: predictor that the difference is learnt from; None for a profile without a base.

    Raises:
        DatasetError: the ledger is damaged, in use, or of another environment.
        MeasurementError: no process can be started to measure.
    """
    begin = time.monotonic()
    watch = Watch(report, begin + settings.seconds)
    pool = candidates(cases)
    chosen = remembered(choice_path, request)
    ended, all_given = -1, False
    while True:
        rows, finished = _measured(ledger_path)
        unfinished = [one for one in pool if one.open(finished)]
        stuck = len(finished) == ended
        left = watch.end - time.monotonic()
        if not unfinished or left <= 0 or (stuck and all_given):
            return
        ended = len(finished)
        watch.round += 1
        if chosen is None or all((case.key, case.unit) in finished for case in chosen):
            watch(Progress("choosing", 0, len(unfinished), 0.0))
            ranked = rank(unfinished, rows, settings.device, watch.seconds(), base)
            chosen = worth(ranked, AMPLE * share(settings.seconds, left), watch.seconds())
            remember(choice_path, request, chosen)
        left = max(0.0, watch.end - time.monotonic())
        seconds = left if stuck else share(settings.seconds, left)
        all_given = seconds == left
        sweep(chosen, ledger_path, replace(settings, seconds=seconds), watch)
        chosen = None


def share(budget: float, left: float) -> float:
    """Seconds of the next round: an equal part of the budget, or all that is left if too little would remain."""
    part = max(LEAST_SECONDS, budget / ROUNDS)
    return left if left - part < LEAST_SECONDS else part


def worth(ranked: Sequence[Candidate], budget: float, seconds: Mapping[Runner, float]) -> list[UnitCase]:
    """Cases of the first candidates that fit into a time, and of LEAST_CHOSEN candidates at least."""
    spent = accumulate(sum(seconds[case.runner] for case in one.cases) for one in ranked)
    count = max(LEAST_CHOSEN, sum(1 for total in spent if total <= budget))
    return [case for one in ranked[:count] for case in one.cases]


def _measured(ledger_path: Path) -> tuple[list[dict[str, object]], set[tuple[str, str]]]:
    """Rows of the ledger and marks of the cases that have ended; empty if there is no ledger."""
    if not ledger_path.exists():
        return [], set()
    with Ledger(ledger_path) as ledger:
        return list(ledger.rows()), ledger.finished()
