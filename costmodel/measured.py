"""Whole models as they were measured: records of collectors, what they tell of hosts and families."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.errors import DatasetError

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
WALLS: Mapping[str, str] = {"default": "default_us", "reduce-overhead": "graph_us"}
"""Modes of torch.compile, and what the latency in each is called."""
UNSTABLE = 1.25
"""A round that took longer than a call's fastest by more was disturbed: it counts neither in scores nor in training."""
AGREEING = 2
"""So many undisturbed rounds make a latency; a single one may be the disturbed one's twin."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A whole-model case as it was measured: what it is, and medians in microseconds by name.

    `host_speed` is how fast the host was then, against `usual_probe_us` of all cases; 1 where it was not probed.
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


def read_measured(path: Path) -> tuple[list[Measured], dict[str, Any]]:
    """The cases of a whole-model file that were measured, and what its first line says about them; a sweep's has none.

    Raises:
        DatasetError: the file is missing or a line is not a case.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        about = rows.pop(0) if "schema" in rows[0] else {}
        rows = [row for row in rows if "error" not in row]
        cases = _prefer_room([_measured(row) for row in rows], about.get("environments", []))
        usual = usual_probe_us(cases)
        speeds = [usual / float(row.get("probe_us", usual)) if usual else 1.0 for row in rows]
        return [replace(case, host_speed=speed) for case, speed in zip(cases, speeds, strict=True)], about
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DatasetError(f"{path}: not a file of whole-model measurements: {error}") from error


def _prefer_room(cases: Sequence[Measured], environments: Sequence[Mapping[str, str]]) -> list[Measured]:
    """The cases, where a mode was measured with room on Python's stack only as it was then, whatever the machine.

    Without room (`costmodel.python_stack`) one case in ten has a host time that no other depth of the stack has.
    """
    roomy = [index for index, one in enumerate(environments) if "python_stack" in one]
    modes = [{mode for mode in WALLS if WALLS[mode] in case.medians and case.environment in roomy} for case in cases]
    with_room: dict[tuple[object, ...], set[str]] = {}
    for case, found in zip(cases, modes, strict=True):
        with_room.setdefault(case.key, set()).update(found)
    return [_without(case, with_room[case.key] - found) for case, found in zip(cases, modes, strict=True)]


def _without(case: Measured, modes: Collection[str]) -> Measured:
    """A case as if some modes of it had not been timed; device times do not depend on a stack and stay."""
    gone = {name for mode in modes for name in (WALLS[mode], f"eager_us/{mode}", f"{mode}_host_us")}
    gone |= {"eager_us", "eager_host_us"} if "default" in modes else set()
    return replace(case, medians={name: us for name, us in case.medians.items() if name not in gone})


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
        if "probe_us" in case.record:
            probes.setdefault(case.environment, []).append(float(case.record["probe_us"]))
    return [float(np.median(probes[machine])) for machine in sorted(probes)]


def _measured(row: Mapping[str, Any]) -> Measured:
    disturbed = row.get("disturbed", ())
    medians = {
        name: row[name][2]
        for name in row
        if name.endswith("_us") and isinstance(row[name], list) and name.replace("_host_us", " host") not in disturbed
    }
    walls = _undisturbed(row.get("latency_us", {}), disturbed)
    for mode, (wall, eager) in walls.items():
        medians[WALLS[mode]], medians[f"eager_us/{mode}"] = wall, eager
    if walls:
        medians["eager_us"] = float(np.median([eager for _, eager in walls.values()]))
    return Measured(row["model"], row["batch_size"], row["precision"], row["layout"], medians, row)


def _undisturbed(
    latency_us: Mapping[str, Sequence[Sequence[float]]], disturbed: Collection[str]
) -> dict[str, tuple[float, float]]:
    """Latency of each mode and of the eager calls in turn with it, medians of the rounds that nothing disturbed.

    A mode is left out where its collector says that it was disturbed, or too few rounds agree with the fastest.
    """
    rounds = {name: [quantiles[2] for quantiles in found] for name, found in latency_us.items()}
    eager = [us for name, found in rounds.items() if name.startswith("eager") for us in found]
    walls = {}
    for mode in WALLS:
        if mode in rounds and mode not in disturbed:
            own, beside = _near(rounds[mode], rounds[mode]), _near(rounds[f"eager/{mode}"], eager)
            if min(len(own), len(_near(eager, eager))) >= AGREEING and beside:
                walls[mode] = float(np.median(own)), float(np.median(beside))
    return walls


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
    return bool(latency_us) and not _undisturbed(latency_us, case.record.get("disturbed", ()))


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
