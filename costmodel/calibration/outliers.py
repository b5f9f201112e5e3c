"""Recognition of rounds, calls and processes that were measured on a disturbed host."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.calibration.measured_model import EAGER_ALONE, HOST_TIMES, PROBES, REPLAYED, WALLS, MeasuredModel

UNSTABLE = 1.25
"""Ratio from which a time counts as disturbed.

Compared are a round's median with the call's fastest round, a round's median with its own 10 % quantile, and a call
with the same call on another machine, at equal host speed. Disturbed times are used neither for scores nor for
training."""
AGREEING = 2
"""Fewest undisturbed rounds for a latency, as a single round may itself be disturbed."""
QUIET = 1.1
"""Ratio of a probe to the process's fastest up to which the rounds beside it count."""
QUIETEST = 3
"""Fewest rounds of a process that count, the ones with the fastest probes."""
QUIET_TENTH = 10.0
"""Percentile of a session's probes that stands for a quiet host.

A process whose probe is slower by more than UNSTABLE was disturbed throughout."""
HOST_BOUND = 0.8
"""Share of a call's latency in host time from which the call is host-bound."""


def without_disturbed(cases: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """Cases without the processes whose probes are much slower than others of their session."""
    found: dict[object, list[float]] = {}
    for case in cases:
        if PROBES in case.record:
            found.setdefault(case.session, []).append(case.record["probe_us"])
    slowest_us = {session: UNSTABLE * float(np.percentile(probes, QUIET_TENTH)) for session, probes in found.items()}
    return [case for case in cases if PROBES not in case.record or case.record["probe_us"] <= slowest_us[case.session]]


def without_slow(cases: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """Cases without the calls that took much longer than on another machine at equal host speed.

    Either the host was disturbed throughout, or the call was made at an unfavourable depth of the Python stack
    (`costmodel.measurement.frame_padding`), as one in ten is without padding.
    """
    alike: dict[tuple[object, ...], list[MeasuredModel]] = {}
    for case in cases:
        alike.setdefault(case.key, []).append(case)
    found = []
    for case in cases:
        slow = {name for name in case.medians if _slow(case, name, alike[case.key])}
        modes = {mode for mode, wall in WALLS.items() if slow & {wall, f"eager_us/{mode}"}}
        calls = {*HOST_TIMES.values()} if eager_us(case.medians) else {*HOST_TIMES.values(), "eager_us"}
        found.append(_without(case, modes, slow & calls))
    return found


def _slow(case: MeasuredModel, name: str, alike: Sequence[MeasuredModel]) -> bool:
    """Whether a call took much longer than elsewhere; at equal host speed if it is host-bound."""
    others = [other for other in alike if name in other.medians]
    by_host = any(_host_bound(other, name) for other in others)
    took = [one.medians[name] * (one.host_speed if by_host else 1.0) for one in (case, *others)]
    return took[0] > UNSTABLE * min(took)


def _host_bound(case: MeasuredModel, name: str) -> bool:
    """Whether a call was host-bound; a graph's replay never counts as such."""
    if name == WALLS[REPLAYED]:
        return False
    host = HOST_TIMES["eager" if name.startswith("eager") else "default"]
    return name in HOST_TIMES.values() or case.medians.get(host, 0.0) > HOST_BOUND * case.medians[name]


def _without(case: MeasuredModel, modes: Collection[str], names: Collection[str]) -> MeasuredModel:
    """A case without some modes and some calls."""
    gone = {*names, *(name for mode in modes for name in (WALLS[mode], f"eager_us/{mode}"))}
    beside = {"eager_us"} if eager_us(case.medians) else set()  # computed anew from the remaining modes
    medians = {name: us for name, us in case.medians.items() if name not in gone | beside}
    return replace(case, medians=medians | eager_us(medians))


def eager_us(medians: Mapping[str, float]) -> dict[str, float]:
    """Median latency of the eager calls that were timed beside compiled modes; empty without any."""
    beside = [medians[f"eager_us/{mode}"] for mode in WALLS if f"eager_us/{mode}" in medians]
    return {"eager_us": float(np.median(beside))} if beside else {}


def quiet_rounds(record: Mapping[str, Any]) -> dict[str, Any]:
    """The quiet rounds and probes of a record whose process probed its host before each round and after the last.

    Host times, which were measured after all rounds on a host that may have changed, are left out.
    """
    beside = list(itertools.pairwise(record[PROBES]))
    order = sorted(range(len(beside)), key=lambda place: max(beside[place]))
    count = sum(max(pair) <= QUIET * min(record[PROBES]) for pair in beside)
    kept = sorted(order[: max(QUIETEST, count)])
    rounds = {name: [found[place] for place in kept] for name, found in record["latency_us"].items()}
    probe_us = float(np.median([sum(beside[place]) / 2 for place in kept]))
    kept_fields = {name: value for name, value in record.items() if name not in HOST_TIMES.values()}
    return kept_fields | {"latency_us": rounds, "probe_us": probe_us}


def eager_alone_us(latency_us: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, float]:
    """Latency of eager calls without any compiled mode; empty if there was one, or too few rounds agree."""
    if set(latency_us) != {EAGER_ALONE}:
        return {}
    steady = [found[2] for found in latency_us[EAGER_ALONE] if is_steady(found)]
    near = _near(steady, steady)
    return {"eager_us": float(np.median(near))} if len(near) >= AGREEING else {}


def undisturbed(
    latency_us: Mapping[str, Sequence[Sequence[float]]], disturbed: Collection[str]
) -> dict[str, tuple[float, float]]:
    """Latency of each mode and of the eager calls that alternate with it, medians of the undisturbed rounds.

    A mode is left out if its collector marked it as disturbed, or too few rounds agree with the fastest.
    """
    rounds = {name: [found[2] for found in several if is_steady(found)] for name, several in latency_us.items()}
    eager = [us for name, found in rounds.items() if name.startswith("eager") for us in found]
    walls = {}
    for mode in WALLS:
        if mode in rounds and mode not in disturbed:
            own, beside = _near(rounds[mode], rounds[mode]), _near(rounds[f"eager/{mode}"], eager)
            if min(len(own), len(_near(eager, eager))) >= AGREEING and beside:
                walls[mode] = float(np.median(own)), float(np.median(beside))
    return walls


def is_steady(quantiles: Sequence[float]) -> bool:
    """Whether a round's median is near its 10 % quantile."""
    return quantiles[2] <= UNSTABLE * quantiles[0]


def _near(rounds: Sequence[float], alike: Sequence[float]) -> list[float]:
    """Rounds near the fastest of comparable ones."""
    return [us for us in rounds if us <= UNSTABLE * min(alike)]


def unstable(case: MeasuredModel) -> bool:
    """Whether a case was timed, but every mode was disturbed."""
    latency_us = case.record.get("latency_us", {})
    steady = undisturbed(latency_us, case.record.get("disturbed", ())) or eager_alone_us(latency_us)
    return bool(latency_us) and not steady
