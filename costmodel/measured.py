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
"""A case whose rounds differ by more is marked, and kept out of scores and of training."""


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
    modes = [
        {mode for mode in WALLS if WALLS[mode] in case.medians and case.environment in roomy and not unstable(case)}
        for case in cases
    ]
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
    medians = {name: row[name][2] for name in row if name.endswith("_us") and isinstance(row[name], list)}
    latency = row.get("latency_us", {})
    for mode, name in WALLS.items():
        if mode in latency:
            medians[name] = float(np.median([quantiles[2] for quantiles in latency[mode]]))
            eager = [quantiles[2] for quantiles in latency[f"eager/{mode}"]]
            medians[f"eager_us/{mode}"] = float(np.median(eager))
    if latency:
        medians["eager_us"] = float(np.median([medians[f"eager_us/{mode}"] for mode in WALLS if mode in latency]))
    return Measured(row["model"], row["batch_size"], row["precision"], row["layout"], medians, row)


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
    """Whether the host was disturbed: its collector says so, or the rounds of a mode differ too much."""
    if case.record.get("disturbed"):
        return True
    rounds = case.record.get("latency_us", {})
    medians = [[quantiles[2] for quantiles in found] for found in rounds.values()]
    eager = [value for name, found in zip(rounds, medians, strict=True) if name.startswith("eager") for value in found]
    return any(max(found) > UNSTABLE * min(found) for found in (*medians, eager or [1.0]))


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
