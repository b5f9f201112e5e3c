"""Whole models as they were measured: records of collectors, what they tell of hosts and families."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from costmodel.errors import DatasetError
from costmodel.records import Count, Duration, Text, convert, one_line, parse_json, read_regular

FOLDS = 8
"""Into how many parts datasets are cut, each predicted by what was learnt from the others."""
FAMILIES = (
    (r"inception|xception|googlenet", "inception"),
    (r"vgg", "vgg"),
    (r"botnet|halonet|res2ne|resne", "resnet"),
    (r"squeezenet", "squeezenet"),
    (r"densenet|rdnet", "densenet"),
    (r"mobilenet|m?nasnet|hardcorenas|fbnet|ghost|mixnet|rexnet|efficientnet|tinynet|lcnet", "mobilenet"),
    (r"regnet", "regnet"),
    (r"^(vit|deit|cait|beit|eva)", "vit"),
    (r"^(mixer|gmlp|resmlp)", "mlp"),
    (r"mobilevit", "mobilevit"),
    (r"efficientformer", "efficientformer"),
    (r"convnext", "convnext"),
    (r"darknet", "darknet"),
    (r"nfnet", "nfnet"),
    (r"vovnet", "vovnet"),
    (r"^dla", "dla"),
)
"""What a model's name contains -> its family, the first that fits; any other is named after its first letters, without
the number of a version."""
REPLAYED = "reduce-overhead"
"""The mode whose calls replay a CUDA graph: the host hardly decides how long they take, and a process that issues
slowly is slow in the others alone."""
WALLS: Mapping[str, str] = {"default": "default_us", REPLAYED: "graph_us"}
"""Modes of torch.compile, and what the latency in each is called."""
COLUMNS: Mapping[str, str] = {"eager": "eager", "default": "default", REPLAYED: "graph"}
"""Begin the names of what was measured and predicted in each mode."""
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
AROUND = 2
"""So many probes before and after a case's own tell, with it, how fast the host was: a single one is of a moment."""
EAGER_ALONE = "eager"
"""What rounds of eager calls are called that were measured beside no mode."""
PROBES = "probes_us"
"""What the host was found to be before each round of a record and after its last, where a process probed it itself."""
HOST_TIMES: Mapping[str, str] = {mode: f"{mode}_host_us" for mode in ("eager", *WALLS)}
"""What the time is called that the host takes for a call in each mode."""
HOST_BOUND = 0.8
"""If the host takes more than this part of a call's latency, it decides how long that is."""


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


@dataclass(frozen=True, slots=True)
class Measured:
    """A whole-model case as it was measured: what it is, and medians in microseconds by name.

    `host_speed` is how fast the host was around then, against `usual_probe_us` of all cases; 1 where nobody probed it.
    """

    model: str
    batch_size: int
    precision: str
    layout: str
    medians: Mapping[str, float]
    record: Mapping[str, Any]
    host_speed: float = 1.0

    @property
    def family(self) -> str:
        """The family that is left out when this model is predicted."""
        return family_of(self.model)

    @property
    def key(self) -> tuple[object, ...]:
        """What was measured, wherever it was."""
        return self.model, self.batch_size, self.precision, self.layout, self.record.get("img_size")

    @property
    def environment(self) -> int:
        """Which of the file's environments, or machines, it was measured in."""
        return int(self.record.get("environment", 0))

    @property
    def session(self) -> object:
        """What was measured with it in one go, on one host; a machine's whole file where nobody noted it."""
        return self.environment, self.record.get("session")

    @property
    def probe_us(self) -> float | None:
        """What a launch took on the host then; None where nobody probed it."""
        return float(self.record["probe_us"]) if "probe_us" in self.record else None

    @property
    def fold(self) -> int:
        """The fold that its family is tested in."""
        return fold_of(self.family)


def fold_of(family: str) -> int:
    """The fold that a family falls into, by a hash of its name."""
    return int(hashlib.sha256(family.encode()).hexdigest(), 16) % FOLDS


def family_of(model: str) -> str:
    """The family of a model by its name, with or without its library: `timm:seresnet50` is a `resnet`."""
    name = model.rpartition(":")[2].lower()
    named = (family for pattern, family in FAMILIES if re.search(pattern, name))
    letters = re.match(r"[a-z]*?(?=v?\d|[^a-z]|$)", name)
    return next(named, letters[0] if letters else "")


def read_measured(path: Path, slow: bool = False) -> tuple[list[Measured], dict[str, Any]]:
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


def _with_speeds(cases: Sequence[Measured]) -> list[Measured]:
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


def _without_disturbed(cases: Sequence[Measured]) -> list[Measured]:
    """The cases but for those of processes that probed their host and never found it nearly as quiet as others did."""
    found: dict[object, list[float]] = {}
    for case in cases:
        if PROBES in case.record:
            found.setdefault(case.session, []).append(case.record["probe_us"])
    slowest_us = {session: UNSTABLE * float(np.percentile(probes, QUIET_TENTH)) for session, probes in found.items()}
    return [case for case in cases if PROBES not in case.record or case.record["probe_us"] <= slowest_us[case.session]]


def _without_slow(cases: Sequence[Measured]) -> list[Measured]:
    """The cases without the calls that took much longer than on another machine whose host is as fast.

    The host was disturbed all along then, or a call was made at an unlucky depth of the stack (`python_stack`), as one
    in ten is that has no room there.
    """
    alike: dict[tuple[object, ...], list[Measured]] = {}
    for case in cases:
        alike.setdefault(case.key, []).append(case)
    found = []
    for case in cases:
        slow = {name for name in case.medians if _slow(case, name, alike[case.key])}
        modes = {mode for mode, wall in WALLS.items() if slow & {wall, f"eager_us/{mode}"}}
        calls = {*HOST_TIMES.values()} if _eager_us(case.medians) else {*HOST_TIMES.values(), "eager_us"}
        found.append(_without(case, modes, slow & calls))
    return found


def _slow(case: Measured, name: str, alike: Sequence[Measured]) -> bool:
    """Whether a call took much longer than elsewhere; at equal speed of the hosts, where the host decides."""
    others = [other for other in alike if name in other.medians]
    by_host = any(_host_bound(other, name) for other in others)
    took = [one.medians[name] * (one.host_speed if by_host else 1.0) for one in (case, *others)]
    return took[0] > UNSTABLE * min(took)


def _host_bound(case: Measured, name: str) -> bool:
    """Whether the host decided how long a call took; a graph's replay it hardly does."""
    if name == WALLS[REPLAYED]:
        return False
    host = HOST_TIMES["eager" if name.startswith("eager") else "default"]
    return name in HOST_TIMES.values() or case.medians.get(host, 0.0) > HOST_BOUND * case.medians[name]


def _without(case: Measured, modes: Collection[str], names: Collection[str]) -> Measured:
    """A case as if some modes and some calls of it had not been timed."""
    gone = {*names, *(name for mode in modes for name in (WALLS[mode], f"eager_us/{mode}"))}
    beside = {"eager_us"} if _eager_us(case.medians) else set()  # is told anew by the modes that are left
    medians = {name: us for name, us in case.medians.items() if name not in gone | beside}
    return replace(case, medians=medians | _eager_us(medians))


def _eager_us(medians: Mapping[str, float]) -> dict[str, float]:
    """Latency of eager calls, the middle of what was found beside the modes; nothing where none was timed."""
    beside = [medians[f"eager_us/{mode}"] for mode in WALLS if f"eager_us/{mode}" in medians]
    return {"eager_us": float(np.median(beside))} if beside else {}


def usual_probe_us(cases: Sequence[Measured]) -> float | None:
    """What a launch takes on the middle one of the machines, to two digits, as it is no steadier: a profile's own host.

    None where no case was probed.
    """
    machines = machine_probes_us(cases)
    return float(f"{np.median(machines):.2g}") if machines else None


def machine_probes_us(cases: Sequence[Measured]) -> list[float]:
    """What a launch took on each machine that was probed: the medians of its cases' probes, microseconds."""
    probes: dict[int, list[float]] = {}
    for case in cases:
        if case.probe_us is not None:
            probes.setdefault(case.environment, []).append(case.probe_us)
    return [float(np.median(probes[machine])) for machine in sorted(probes)]


def _measured(record: Mapping[str, Any]) -> Measured:
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
    return Measured(row["model"], row["batch_size"], row["precision"], row["layout"], medians, row)


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


def noise(cases: Sequence[Measured]) -> dict[str, float]:
    """How far the rounds of a case differ, by mode: half their range over their middle, mean of all cases."""
    spreads: dict[str, list[float]] = {}
    for case in cases:
        for name, rounds in case.record.get("latency_us", {}).items():
            medians = [quantiles[2] for quantiles in rounds]
            spread = (max(medians) - min(medians)) / (max(medians) + min(medians))
            spreads.setdefault("eager" if name.startswith("eager") else name, []).append(spread)
    return {mode: float(np.mean(found)) for mode, found in sorted(spreads.items())}


def unstable(case: Measured) -> bool:
    """Whether it was timed, and the host was disturbed in every mode."""
    latency_us = case.record.get("latency_us", {})
    steady = _undisturbed(latency_us, case.record.get("disturbed", ())) or _eager_alone_us(latency_us)
    return bool(latency_us) and not steady


def spread(cases: Sequence[Measured], most: int) -> list[Measured]:
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


def _lot(case: Measured) -> str:
    """A repeatable lot."""
    said = f"{case.model}@{case.batch_size} {case.precision} {case.layout} {case.environment}"
    return hashlib.sha256(said.encode()).hexdigest()
