"""Rounds and modes taken on a disturbed host, and how they are recognised."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.calibration.measured_model import EAGER_ALONE, HOST_TIMES, PROBES, REPLAYED, WALLS, MeasuredModel

UNSTABLE = 1.25
"""A round that took longer than a call's fastest by more was disturbed: it counts neither in scores nor in training. So
was one whose median is as much above its own 10 % quantile, and a call that took as much longer than on another
machine, at equal speed of the hosts."""
AGREEING = 2
"""So many undisturbed rounds make a latency; a single one may be the disturbed one's twin."""
QUIET = 1.1
"""Of a process that probed its host between its rounds, those rounds count beside which no probe took longer than the
fastest by more; the QUIETEST at least, as its rounds are told for the host that they found."""
QUIETEST = 3
QUIET_TENTH = 10.0
"""Percentile of what the processes of a session found their host to be: a quiet host. A process whose own rounds found
it slower by more than UNSTABLE was disturbed all along."""
HOST_BOUND = 0.8
"""If the host takes more than this part of a call's latency, it decides how long that is."""


def _without_disturbed(cases: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """The cases but for those of processes that probed their host and never found it nearly as quiet as others did."""
    found: dict[object, list[float]] = {}
    for case in cases:
        if PROBES in case.record:
            found.setdefault(case.session, []).append(case.record["probe_us"])
    slowest_us = {session: UNSTABLE * float(np.percentile(probes, QUIET_TENTH)) for session, probes in found.items()}
    return [case for case in cases if PROBES not in case.record or case.record["probe_us"] <= slowest_us[case.session]]


def _without_slow(cases: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """The cases without the calls that took much longer than on another machine whose host is as fast.

    The host was disturbed all along then, or a call was made at an unlucky depth of the stack (`python_stack`), as one
    in ten is that has no room there.
    """
    alike: dict[tuple[object, ...], list[MeasuredModel]] = {}
    for case in cases:
        alike.setdefault(case.key, []).append(case)
    found = []
    for case in cases:
        slow = {name for name in case.medians if _slow(case, name, alike[case.key])}
        modes = {mode for mode, wall in WALLS.items() if slow & {wall, f"eager_us/{mode}"}}
        calls = {*HOST_TIMES.values()} if _eager_us(case.medians) else {*HOST_TIMES.values(), "eager_us"}
        found.append(_without(case, modes, slow & calls))
    return found


def _slow(case: MeasuredModel, name: str, alike: Sequence[MeasuredModel]) -> bool:
    """Whether a call took much longer than elsewhere; at equal speed of the hosts, where the host decides."""
    others = [other for other in alike if name in other.medians]
    by_host = any(_host_bound(other, name) for other in others)
    took = [one.medians[name] * (one.host_speed if by_host else 1.0) for one in (case, *others)]
    return took[0] > UNSTABLE * min(took)


def _host_bound(case: MeasuredModel, name: str) -> bool:
    """Whether the host decided how long a call took; a graph's replay it hardly does."""
    if name == WALLS[REPLAYED]:
        return False
    host = HOST_TIMES["eager" if name.startswith("eager") else "default"]
    return name in HOST_TIMES.values() or case.medians.get(host, 0.0) > HOST_BOUND * case.medians[name]


def _without(case: MeasuredModel, modes: Collection[str], names: Collection[str]) -> MeasuredModel:
    """A case as if some modes and some calls of it had not been timed."""
    gone = {*names, *(name for mode in modes for name in (WALLS[mode], f"eager_us/{mode}"))}
    beside = {"eager_us"} if _eager_us(case.medians) else set()  # is told anew by the modes that are left
    medians = {name: us for name, us in case.medians.items() if name not in gone | beside}
    return replace(case, medians=medians | _eager_us(medians))


def _eager_us(medians: Mapping[str, float]) -> dict[str, float]:
    """Latency of eager calls, the middle of what was found beside the modes; nothing where none was timed."""
    beside = [medians[f"eager_us/{mode}"] for mode in WALLS if f"eager_us/{mode}" in medians]
    return {"eager_us": float(np.median(beside))} if beside else {}


def _of_quiet_rounds(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a process that probed its host before each round and after the last: its quiet rounds and probes.

    Host times it took after all rounds, on a host that may have been another; they are left out.
    """
    beside = list(itertools.pairwise(record[PROBES]))
    order = sorted(range(len(beside)), key=lambda place: max(beside[place]))
    count = sum(max(pair) <= QUIET * min(record[PROBES]) for pair in beside)
    kept = sorted(order[: max(QUIETEST, count)])
    rounds = {name: [found[place] for place in kept] for name, found in record["latency_us"].items()}
    probe_us = float(np.median([sum(beside[place]) / 2 for place in kept]))
    kept_fields = {name: value for name, value in record.items() if name not in HOST_TIMES.values()}
    return kept_fields | {"latency_us": rounds, "probe_us": probe_us}


def _eager_alone_us(latency_us: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, float]:
    """Latency of eager calls that were measured beside no mode of torch.compile; nothing where they were, or varied."""
    if set(latency_us) != {EAGER_ALONE}:
        return {}
    steady = [found[2] for found in latency_us[EAGER_ALONE] if _steady(found)]
    near = _near(steady, steady)
    return {"eager_us": float(np.median(near))} if len(near) >= AGREEING else {}


def _undisturbed(
    latency_us: Mapping[str, Sequence[Sequence[float]]], disturbed: Collection[str]
) -> dict[str, tuple[float, float]]:
    """Latency of each mode and of the eager calls in turn with it, medians of the rounds that nothing disturbed.

    A mode is left out where its collector says that it was disturbed, or too few rounds agree with the fastest.
    """
    rounds = {name: [found[2] for found in several if _steady(found)] for name, several in latency_us.items()}
    eager = [us for name, found in rounds.items() if name.startswith("eager") for us in found]
    walls = {}
    for mode in WALLS:
        if mode in rounds and mode not in disturbed:
            own, beside = _near(rounds[mode], rounds[mode]), _near(rounds[f"eager/{mode}"], eager)
            if min(len(own), len(_near(eager, eager))) >= AGREEING and beside:
                walls[mode] = float(np.median(own)), float(np.median(beside))
    return walls


def _steady(quantiles: Sequence[float]) -> bool:
    """Whether half of the calls of a round took hardly longer than a tenth of them."""
    return quantiles[2] <= UNSTABLE * quantiles[0]


def _near(rounds: Sequence[float], alike: Sequence[float]) -> list[float]:
    """The rounds that are near the fastest of all alike."""
    return [us for us in rounds if us <= UNSTABLE * min(alike)]


def unstable(case: MeasuredModel) -> bool:
    """Whether it was timed, and the host was disturbed in every mode."""
    latency_us = case.record.get("latency_us", {})
    steady = _undisturbed(latency_us, case.record.get("disturbed", ())) or _eager_alone_us(latency_us)
    return bool(latency_us) and not steady
