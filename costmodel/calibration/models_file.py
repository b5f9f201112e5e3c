"""Whole models as they were measured: records of collectors, what they tell of hosts and families."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from costmodel.calibration.measured_model import PROBES, WALLS, MeasuredModel
from costmodel.calibration.outliers import (
    _eager_alone_us,
    _eager_us,
    _of_quiet_rounds,
    _steady,
    _undisturbed,
    _without_disturbed,
    _without_slow,
)
from costmodel.errors import DatasetError
from costmodel.records import Count, Duration, Text, convert, one_line, parse_json, read_regular

AROUND = 2
"""So many probes before and after a case's own tell, with it, how fast the host was: a single one is of a moment."""


MOST_BYTES = 1 << 30
"""Size of the largest file of measured models that is read."""
Quantiles = Annotated[tuple[Duration, ...], Meta(min_length=3, max_length=100)]
"""Times of a call, the median in the third place."""


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a measured case that are used; a file's records have others, and `*_us` fields of other calls.

    Attributes:
        model: its name.
        batch_size: of the input.
        precision: of the parameters.
        layout: of the input.
        environment: index of the environment that it was measured in.
        session: its measurements in one go share this.
        disturbed: modes whose rounds do not count.
        latency_us: quantiles of each round by what was called.
        probe_us: duration of the host probe.
        probes_us: the same before each round, and after the last.
    """

    model: Text
    batch_size: Annotated[int, Meta(ge=1, le=10**9)]
    precision: Text
    layout: Text
    environment: Count = 0
    session: Text | None = None
    disturbed: tuple[Text, ...] = ()
    latency_us: dict[str, Annotated[tuple[Quantiles, ...], Meta(min_length=1)]] = {}
    probe_us: Duration | msgspec.UnsetType = msgspec.UNSET
    probes_us: Annotated[tuple[Duration, ...], Meta(min_length=2)] | msgspec.UnsetType = msgspec.UNSET


def read_measured(path: Path, slow: bool = False) -> tuple[list[MeasuredModel], dict[str, Any]]:
    """The cases of a whole-model file that were measured, and what its first line says about them; a sweep's has none.

    Args:
        path: the file.
        slow: keep calls that took much longer than the same calls elsewhere in the file, and processes on a host that
            others disturbed.

    Raises:
        DatasetError: the file is missing or a line is not a case.
    """
    try:
        rows = _rows(read_regular(path, MOST_BYTES))
        about = rows.pop(0) if "schema" in rows[0] else {}
        cases = [_measured(row) for row in rows if "error" not in row]
        return _with_speeds(cases) if slow else _without_slow(_with_speeds(_without_disturbed(cases))), about
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or one_line(str(error))
        raise DatasetError(f"{path}: not a file of whole-model measurements: {said}") from error


def _rows(content: bytes) -> list[dict[str, Any]]:
    """The objects of a file's lines, each case among them checked."""
    rows = []
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            row = convert(parse_json(line, constants=True), dict[str, Any])  # an error may be NaN
            if "error" not in row and not (number == 1 and "schema" in row):
                _check(row)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        rows.append(row)
    return rows


def _check(row: Mapping[str, Any]) -> None:
    """Refuses a record of a case with a field of another type, or a time that nothing takes."""
    convert(row, CaseRecord)
    for name, times in row.items():
        if name.endswith("_us") and name not in CaseRecord.__struct_fields__:
            convert({name: times}, dict[str, Quantiles | Duration | None])


def _with_speeds(cases: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """The cases, each with its host's speed by the probes around it on that machine, in the order they were taken.

    A process that probed its host between its rounds knows better than its neighbours do.
    """
    usual = usual_probe_us(cases)
    own = {place: case.probe_us for place, case in enumerate(cases) if PROBES in case.record}
    speeds = {place: usual / us for place, us in own.items() if usual and us}
    for machine in {case.environment for case in cases}:
        places = [place for place, case in enumerate(cases) if case.environment == machine and place not in own]
        for rank, place in enumerate(places):
            around = (cases[near].probe_us for near in places[max(0, rank - AROUND) : rank + AROUND + 1])
            probes = [us for us in around if us is not None]
            speeds[place] = usual / float(np.median(probes)) if usual and probes else 1.0
    return [replace(case, host_speed=speeds[place]) for place, case in enumerate(cases)]


def usual_probe_us(cases: Sequence[MeasuredModel]) -> float | None:
    """What a launch takes on the middle one of the machines, to two digits, as it is no steadier: a profile's own host.

    None where no case was probed.
    """
    machines = machine_probes_us(cases)
    return float(f"{np.median(machines):.2g}") if machines else None


def machine_probes_us(cases: Sequence[MeasuredModel]) -> list[float]:
    """What a launch took on each machine that was probed: the medians of its cases' probes, microseconds."""
    probes: dict[int, list[float]] = {}
    for case in cases:
        if case.probe_us is not None:
            probes.setdefault(case.environment, []).append(case.probe_us)
    return [float(np.median(probes[machine])) for machine in sorted(probes)]


def _measured(record: Mapping[str, Any]) -> MeasuredModel:
    row = _of_quiet_rounds(record) if PROBES in record else record
    disturbed = row.get("disturbed", ())
    medians = {
        name: row[name][2]
        for name in row
        if name.endswith("_us")
        and name != PROBES
        and isinstance(row[name], list)
        and name.replace("_host_us", " host") not in disturbed
        and _steady(row[name])
    }
    for mode, (wall, eager) in _undisturbed(row.get("latency_us", {}), disturbed).items():
        medians[WALLS[mode]], medians[f"eager_us/{mode}"] = wall, eager
    medians |= _eager_us(medians) or _eager_alone_us(row.get("latency_us", {}))
    return MeasuredModel(row["model"], row["batch_size"], row["precision"], row["layout"], medians, row)


def noise(cases: Sequence[MeasuredModel]) -> dict[str, float]:
    """How far the rounds of a case differ, by mode: half their range over their middle, mean of all cases."""
    spreads: dict[str, list[float]] = {}
    for case in cases:
        for name, rounds in case.record.get("latency_us", {}).items():
            medians = [quantiles[2] for quantiles in rounds]
            spread = (max(medians) - min(medians)) / (max(medians) + min(medians))
            spreads.setdefault("eager" if name.startswith("eager") else name, []).append(spread)
    return {mode: float(np.mean(found)) for mode, found in sorted(spreads.items())}


def spread(cases: Sequence[MeasuredModel], most: int) -> list[MeasuredModel]:
    """At most so many cases, in order: of every family as many as of the others, as far as it has them."""
    if len(cases) <= most:
        return list(cases)
    turn: dict[str, int] = {}
    rank = []
    for index in sorted(range(len(cases)), key=lambda index: _lot(cases[index])):
        family = cases[index].family
        turn[family] = turn.get(family, 0) + 1
        rank.append((turn[family], _lot(cases[index]), index))
    return [cases[index] for index in sorted(index for *_, index in sorted(rank)[:most])]


def _lot(case: MeasuredModel) -> str:
    """A repeatable lot."""
    said = f"{case.model}@{case.batch_size} {case.precision} {case.layout} {case.environment}"
    return hashlib.sha256(said.encode()).hexdigest()
