"""What measured models tell of the session that they were measured in: how fast its host was, how long replays took.

Whatever is measured in one session shares a host, and neighbours that use its caches. Where all of a session's models
that wait for the host took a few percent longer than costs and discrepancy say, the host was slower than its probe
told. Replays of CUDA graphs differ from session to session likewise, whatever the host does: in processes that run one
model they take less than in those that have run many before. Both are random effects of the session: the mean of what
its models tell, drawn towards nothing by the fewer the more (Henderson, "Best linear unbiased estimation and prediction
under a selection model", 1975).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from costmodel import calibrate, discrepancy, timeline
from costmodel.discrepancy import Discrepancy, Unexplained
from costmodel.hardware import at_speed
from costmodel.measured import COLUMNS, REPLAYED, Measured

DOUBT = 4.0
"""So many models that tell nothing are added to a session's: the variance of models over that of sessions."""
FARTHEST = 0.15
"""No model tells more than this logarithm of its session."""
ALL_HOST = 0.9
"""A model tells of its host if that decides so much of its latency."""
ROUNDS = 2
"""How often costs are fitted anew to the sessions that they told; each time what is still left of one is told."""
Tables = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What measured models tell: of costs, of others like them, and of the sessions that they were measured in.

    Attributes:
        costs: tables of costs for the profile's own host.
        others: what is left of the models that the costs were fitted to.
        there: every case, also those that nothing was fitted to, with its session's host speed and replays.
    """

    costs: dict[str, dict[str, float]]
    others: Discrepancy
    there: tuple[calibrate.Case, ...]


def fit(
    cases: Sequence[Measured],
    known: Sequence[calibrate.Case],
    learns: npt.NDArray[np.bool_],
    on_cpu: bool = False,
) -> Fitted:
    """Costs, discrepancy and what sessions were like, from some of the cases.

    Args:
        cases: what was measured.
        known: the same with their kernels' times, and the host as its probe told it.
        learns: which of them are learnt from, (cases,).
        on_cpu: whether a CPU was measured, which is its own host and replays nothing.
    """
    found = _fit_at(cases, known, learns, on_cpu)
    for _ in range(0 if on_cpu else ROUNDS):
        found = _fit_at(cases, _told(cases, found, learns), learns, on_cpu)
    return found


def _fit_at(
    cases: Sequence[Measured], there: Sequence[calibrate.Case], learns: npt.NDArray[np.bool_], on_cpu: bool
) -> Fitted:
    """Costs and discrepancy, sessions being as the cases have them."""
    costs = calibrate.fit_tables([one for one, learnt in zip(there, learns, strict=True) if learnt], on_cpu)
    others = discrepancy.fit(unexplained(cases, there, costs).take(learns))
    return Fitted(costs, others, tuple(there))


def _told(cases: Sequence[Measured], found: Fitted, learns: npt.NDArray[np.bool_]) -> list[calibrate.Case]:
    """The cases in sessions as the others of each that are learnt from tell it."""
    hosts, replays = _Effects(), _Effects()
    for case, one, learnt in zip(cases, found.there, learns, strict=True):
        if learnt:
            timings = timings_there(one, found.costs)
            expected = found.others.correct(timings, one.eager, one.compiled)
            if timings["eager"].host_us > ALL_HOST * timings["eager"].latency_us:
                hosts.add(case, "eager", expected)
            if REPLAYED in expected:
                replays.add(case, REPLAYED, expected)
    return [
        replace(one, host_speed=one.host_speed / hosts.of(case), replay=one.replay * replays.of(case))
        for case, one in zip(cases, found.there, strict=True)
    ]


class _Effects:
    """How much longer than expected a mode's calls took, by session."""

    def __init__(self) -> None:
        self.told: dict[object, list[float]] = defaultdict(list)

    def add(self, case: Measured, mode: str, expected: Mapping[str, timeline.Timing]) -> None:
        """Counts a case, if the mode was timed."""
        latency_us = case.medians.get(f"{COLUMNS[mode]}_us")
        if latency_us is not None:
            log = math.log(latency_us / expected[mode].latency_us)
            self.told[case.session].append(min(FARTHEST, max(-FARTHEST, log)))

    def of(self, case: Measured) -> float:
        """A factor; 1 for a session that nothing tells of."""
        logs = self.told.get(case.session, ())
        return math.exp(sum(logs) / (len(logs) + DOUBT))


def timings_there(case: calibrate.Case, tables: Tables) -> dict[str, timeline.Timing]:
    """What a measured case takes in every mode in a session like its own, by the timeline alone."""
    timings = timeline.timings(case.eager, case.compiled, tables_at(tables, case.host_speed))
    return {mode: timing.times(case.replay if mode == REPLAYED else 1.0) for mode, timing in timings.items()}


def describe(cases: Sequence[Measured], found: Fitted) -> list[dict[str, object]]:
    """What each session was like, as a card shows it: how fast its hosts were, how much longer its replays took."""
    sessions: dict[tuple[int, str], list[calibrate.Case]] = defaultdict(list)
    for case, one in zip(cases, found.there, strict=True):
        sessions[case.environment, case.record.get("session") or ""].append(one)
    return [
        {
            "environment": environment,
            "session": session,
            "cases": len(there),
            "host_speed": float(np.median([one.host_speed for one in there])),
            "replay": there[0].replay,
        }
        for (environment, session), there in sorted(sessions.items(), key=lambda item: item[0])
    ]


def tables_at(tables: Tables, host_speed: float) -> dict[str, Mapping[str, float]]:
    """Tables of costs for a host of some speed."""
    return {name: at_speed(name, table, host_speed) for name, table in tables.items()}


def unexplained(cases: Sequence[Measured], known: Sequence[calibrate.Case], tables: Tables) -> Unexplained:
    """What the timeline leaves of measured cases, each predicted for the session that measured it."""
    properties, logs = [], []
    for case, one in zip(cases, known, strict=True):
        timings = timings_there(one, tables)
        properties.append(discrepancy.properties_of(one.eager, one.compiled))
        seen = {mode: case.medians.get(f"{COLUMNS[mode]}_us", math.nan) for mode in timings}
        logs.append({mode: math.log(us / timings[mode].latency_us) for mode, us in seen.items()})
    modes = dict.fromkeys(mode for one in logs for mode in one)  # a pass that was cut lacks one
    columns = {mode: np.array([one.get(mode, math.nan) for one in logs]) for mode in modes}
    return Unexplained(np.array(properties), columns, tuple(case.key for case in cases))
