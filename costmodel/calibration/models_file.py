"""Reading of measured models from a file of collectors' records, with the speeds of their hosts."""

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
    eager_alone_us,
    eager_us,
    is_steady,
    quiet_rounds,
    undisturbed,
    without_disturbed,
    without_slow,
)
from costmodel.errors import DatasetError
from costmodel.records import Count, Duration, Text, convert, one_line, parse_json, read_regular

AROUND = 2
"""Probes on either side of a case whose median, with its own, is the speed of its host: a single one is noisy."""

MOST_BYTES = 1 << 30
"""Largest size of a file that is read."""
Quantiles = Annotated[tuple[Duration, ...], Meta(min_length=3, max_length=100)]
"""Quantiles of a call's time, the median in the third place."""


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Used fields of a record; records have others, and `*_us` fields of other calls.

    Attributes:
        model: name of the model.
        batch_size: images in a call.
        precision: dtype of the parameters.
        layout: layout of the input.
        environment: index of the environment.
        session: identity of the uninterrupted run.
        disturbed: modes whose rounds do not count.
        latency_us: quantiles of each round by mode.
        probe_us: duration of the host probe.
        probes_us: duration of the host probe before each round, and after the last.
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
    """Measured models of a file, and the metadata in its first line; empty in a file without.

    Args:
        path: the file.
        slow: keep calls that took much longer than the same calls elsewhere in the file, and processes on a disturbed
            host.

    Raises:
        DatasetError: the file is missing or a line is not a record.
    """
    try:
        rows = _rows(read_regular(path, MOST_BYTES))
        about = rows.pop(0) if "schema" in rows[0] else {}
        cases = [_measured(row) for row in rows if "error" not in row and not _under_other_settings(row)]
        return _with_speeds(cases) if slow else without_slow(_with_speeds(without_disturbed(cases))), about
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or one_line(str(error))
        raise DatasetError(f"{path}: not a file of whole-model measurements: {reason}") from error


def _under_other_settings(row: Mapping[str, Any]) -> bool:
    """Whether a model ran under autocast, with matmuls in TF32 or with `cudnn.benchmark`: its dtype does not say so."""
    return bool(row.get("amp") or row.get("cudnn_benchmark")) or row.get("matmul_precision", "highest") != "highest"


def _rows(content: bytes) -> list[dict[str, Any]]:
    """Objects in a file's lines, each record checked."""
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
    """Refuse a record with a field of another type or an impossible time."""
    convert(row, CaseRecord)
    for name, times in row.items():
        if name.endswith("_us") and name not in CaseRecord.__struct_fields__:
            convert({name: times}, dict[str, Quantiles | Duration | None])


def _with_speeds(cases: Sequence[MeasuredModel]) -> list[MeasuredModel]:
    """Cases with the speeds of their hosts, by the probes around each on its machine, in order of measurement.

    A process that probed its host between its rounds uses its own probes alone.
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
    """Duration of the probe on the profile's host, to two digits; None without any probe.

    It is the machine with the shortest probe: other programs on a machine only add time, so that one is the nearest to
    an undisturbed dedicated machine.
    """
    machines = machine_probes_us(cases)
    return float(f"{min(machines):.2g}") if machines else None


def machine_probes_us(cases: Sequence[MeasuredModel]) -> list[float]:
    """Duration of the probe on each probed machine, the median of its cases, microseconds."""
    probes: dict[int, list[float]] = {}
    for case in cases:
        if case.probe_us is not None:
            probes.setdefault(case.environment, []).append(case.probe_us)
    return [float(np.median(probes[machine])) for machine in sorted(probes)]


def _measured(record: Mapping[str, Any]) -> MeasuredModel:
    row = quiet_rounds(record) if PROBES in record else record
    disturbed = row.get("disturbed", ())
    medians = {
        name: row[name][2]
        for name in row
        if name.endswith("_us")
        and name != PROBES
        and isinstance(row[name], list)
        and name.replace("_host_us", " host") not in disturbed
        and is_steady(row[name])
    }
    for mode, (wall, eager) in undisturbed(row.get("latency_us", {}), disturbed).items():
        medians[WALLS[mode]], medians[f"eager_us/{mode}"] = wall, eager
    medians |= eager_us(medians) or eager_alone_us(row.get("latency_us", {}))
    return MeasuredModel(row["model"], row["batch_size"], row["precision"], row["layout"], medians, row)


def noise(cases: Sequence[MeasuredModel]) -> dict[str, float]:
    """Spread of a case's rounds by mode: half their range over the middle of it, mean of all cases."""
    spreads: dict[str, list[float]] = {}
    for case in cases:
        for name, rounds in case.record.get("latency_us", {}).items():
            medians = [quantiles[2] for quantiles in rounds]
            spread = (max(medians) - min(medians)) / (max(medians) + min(medians))
            spreads.setdefault("eager" if name.startswith("eager") else name, []).append(spread)
    return {mode: float(np.mean(found)) for mode, found in sorted(spreads.items())}


def spread(cases: Sequence[MeasuredModel], most: int) -> list[MeasuredModel]:
    """At most `most` cases, in order, with equal numbers of each family as far as there are any."""
    if len(cases) <= most:
        return list(cases)
    turn: dict[str, int] = {}
    rank = []
    for index in sorted(range(len(cases)), key=lambda index: _rank(cases[index])):
        family = cases[index].family
        turn[family] = turn.get(family, 0) + 1
        rank.append((turn[family], _rank(cases[index]), index))
    return [cases[index] for index in sorted(index for *_, index in sorted(rank)[:most])]


def _rank(case: MeasuredModel) -> str:
    """Repeatable pseudo-random rank."""
    text = f"{case.model}@{case.batch_size} {case.precision} {case.layout} {case.environment}"
    return hashlib.sha256(text.encode()).hexdigest()
