"""Plans kept on disk beside Inductor's cache, so that a second process neither predicts nor chooses again.

A file is JSON that is read as checked data. One that is damaged, or that another version wrote, counts as absent.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch

from costmodel.errors import CostmodelError, PlanError
from costmodel.files import write_whole
from costmodel.planning.plan import Plan
from costmodel.profiles.profile import Profile
from costmodel.records import Format, Text, Time

SCHEMA = 1
DIRECTORY = "costmodel"
"""Directory inside Inductor's cache."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """Plan with what led to it.

    Attributes:
        plan: the plan, with the regions that passed their trial.
        times_ms: predicted latency by way to run the graph.
        build_s: predicted time to build by way to run it.
        measured_ms: measured latency by way to run it; empty if predictions decide.
    """

    plan: Plan
    times_ms: Mapping[str, float] = field(default_factory=dict)
    build_s: Mapping[str, float] = field(default_factory=dict)
    measured_ms: Mapping[str, float] = field(default_factory=dict)


class KeptPlanRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File format of a `KeptPlan`; `Plan.from_dict` checks the plan."""

    schema: int
    key: Text
    plan: dict[str, Any]
    times_ms: dict[str, Time]
    build_s: dict[str, Time]
    measured_ms: dict[str, Time]


FORMAT = Format(KeptPlanRecord, "a kept plan", PlanError, "it is made again", (SCHEMA,))


def key_of(fingerprint: str, profile: Profile, device: str, wanted: Mapping[str, object]) -> str:
    """Key of a plan: graph with its shapes, profile, device with its settings, request, and all versions.

    Args:
        fingerprint: hash of the captured graph.
        profile: profile that predicts.
        device: name of the device that runs.
        wanted: further arguments of planning, by name.
    """
    facts = {
        "graph": fingerprint,
        "profile": json.dumps(profile.card, sort_keys=True, default=str),
        "host": profile.host_speed,
        "device": device,
        "tf32": _tf32_settings(),
        "wanted": {name: str(value) for name, value in wanted.items()},
        "torch": torch.__version__,
        "costmodel": _source_hash(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _tf32_settings() -> tuple[bool, ...] | str:
    """Whether convolutions and matmuls may use TF32; torch does not say where older and newer settings are mixed."""
    try:
        return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:
        return "mixed"


def load_kept(key: str) -> KeptPlan | None:
    """Plan kept under a key; None if there is none, or its file is damaged."""
    try:
        path = _path(key)
        record = FORMAT.read(path)
        if record.key != key:
            return None
        plan = Plan.from_dict(record.plan, str(path))
    except (CostmodelError, OSError):
        return None
    return KeptPlan(plan, record.times_ms, record.build_s, record.measured_ms)


def keep_plan(key: str, found: KeptPlan) -> None:
    """Keep a plan under a key; where nothing can be written, it is made again next time."""
    data = {
        "schema": SCHEMA,
        "key": key,
        "plan": found.plan.to_dict(),
        "times_ms": dict(found.times_ms),
        "build_s": dict(found.build_s),
        "measured_ms": dict(found.measured_ms),
    }
    with suppress(OSError, ValueError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(data, allow_nan=False))


def is_keeping() -> bool:
    """Whether Inductor's caches on disk are in use, and with them this one."""
    from torch._inductor import config

    return bool(config.fx_graph_cache) and not config.force_disable_caches


def _path(key: str) -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir()) / DIRECTORY / f"{key}.json"


@functools.cache
def _source_hash() -> str:
    """Hash of this package's source: another version may plan otherwise."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
