"""How fast the hosts of measured models were: what a probe said, corrected by what the models themselves tell.

Whatever is measured in one session shares a host, and neighbours that use its caches. Where all of a session's models
that wait for the host took a few percent longer than costs and discrepancy say, the host was slower than its probe
told. That is a random effect of the session: the mean of what its models tell, drawn towards nothing by the fewer the
more (Henderson, "Best linear unbiased estimation and prediction under a selection model", 1975).
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
from costmodel.measured import COLUMNS, Measured

DOUBT = 4.0
"""So many models that tell nothing are added to a session's: the variance of models over that of sessions."""
FARTHEST = 0.15
"""No model tells more than this logarithm of its host."""
ALL_HOST = 0.9
"""A model tells of its host if that decides so much of its latency."""
ROUNDS = 2
"""How often costs are fitted anew to the hosts that they told; each time what is still left of a session is told."""
Tables = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What measured models tell: of costs, of others like them, and of the hosts that they were measured on.

    Attributes:
        costs: tables of costs for the profile's own host.
        others: what is left of the models that the costs were fitted to.
        host_speeds: of every case, also of those that nothing was fitted to.
    """

    costs: dict[str, dict[str, float]]
    others: Discrepancy
    host_speeds: tuple[float, ...]


def fit(
    cases: Sequence[Measured],
    known: Sequence[calibrate.Case],
    learns: npt.NDArray[np.bool_],
    on_cpu: bool = False,
) -> Fitted:
    """Costs, discrepancy and speeds of hosts, from some of the cases.

    Args:
        cases: what was measured.
        known: the same with their kernels' times.
        learns: which of them are learnt from, (cases,).
        on_cpu: whether a CPU was measured, which is its own host.
    """
    speeds = [case.host_speed for case in cases]
    found = _fit_at(cases, known, speeds, learns, on_cpu)
    for _ in range(0 if on_cpu else ROUNDS):
        speeds = _told(cases, known, found, learns)
        found = _fit_at(cases, known, speeds, learns, on_cpu)
    return found


def _fit_at(
    cases: Sequence[Measured],
    known: Sequence[calibrate.Case],
    speeds: Sequence[float],
    learns: npt.NDArray[np.bool_],
    on_cpu: bool,
) -> Fitted:
    """Costs and discrepancy, the hosts being so fast."""
    there = [replace(one, host_speed=speed) for one, speed in zip(known, speeds, strict=True)]
    costs = calibrate.fit_tables([one for one, learnt in zip(there, learns, strict=True) if learnt], on_cpu)
    others = discrepancy.fit(unexplained(cases, there, costs).take(learns))
    return Fitted(costs, others, tuple(speeds))


def _told(
    cases: Sequence[Measured], known: Sequence[calibrate.Case], found: Fitted, learns: npt.NDArray[np.bool_]
) -> list[float]:
    """How fast the host of each case was, as the others of its session that are learnt from tell."""
    told: dict[object, list[float]] = defaultdict(list)
    for case, one, speed, learnt in zip(cases, known, found.host_speeds, learns, strict=True):
        latency_us = case.medians.get("eager_us")
        if learnt and latency_us is not None:
            timings = timeline.timings(one.eager, one.compiled, tables_at(found.costs, speed))
            if timings["eager"].host_us > ALL_HOST * timings["eager"].latency_us:
                expected_us = found.others.correct(timings, one.eager, one.compiled)["eager"].latency_us
                log = math.log(latency_us / expected_us)
                told[case.session].append(min(FARTHEST, max(-FARTHEST, log)))
    slower = {session: math.exp(sum(logs) / (len(logs) + DOUBT)) for session, logs in told.items()}
    return [speed / slower.get(case.session, 1.0) for case, speed in zip(cases, found.host_speeds, strict=True)]


def tables_at(tables: Tables, host_speed: float) -> dict[str, Mapping[str, float]]:
    """Tables of costs for a host of some speed."""
    return {name: at_speed(name, table, host_speed) for name, table in tables.items()}


def unexplained(cases: Sequence[Measured], known: Sequence[calibrate.Case], tables: Tables) -> Unexplained:
    """What the timeline leaves of measured cases, each predicted for the host that measured it."""
    properties, logs = [], []
    for case, one in zip(cases, known, strict=True):
        timings = timeline.timings(one.eager, one.compiled, tables_at(tables, one.host_speed))
        properties.append(discrepancy.properties_of(one.eager, one.compiled))
        seen = {mode: case.medians.get(f"{COLUMNS[mode]}_us", math.nan) for mode in timings}
        logs.append({mode: math.log(us / timings[mode].latency_us) for mode, us in seen.items()})
    modes = dict.fromkeys(mode for one in logs for mode in one)  # a pass that was cut lacks one
    columns = {mode: np.array([one.get(mode, math.nan) for one in logs]) for mode in modes}
    return Unexplained(np.array(properties), columns, tuple(case.key for case in cases))
