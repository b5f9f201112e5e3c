"""Checkpointing plans: which modules compute their feature maps again, as a file of data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from costmodel import checks
from costmodel.checks import checked
from costmodel.errors import CheckpointPlanError
from costmodel.files import read_json, write_whole
from costmodel.memory.regions import Regions

SCHEMA = 1
KIND = "costmodel checkpointing plan"


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """What to checkpoint in a model; `costmodel.checkpointed` applies it.

    Attributes:
        model: the model that it was made for, as the user named it.
        modules: names as in `named_modules()`; none lies in another.
        stashed_before, stashed_after: predicted bytes of feature maps without and with it.
        added_us: predicted device time that it costs a training step.
    """

    model: str
    modules: tuple[str, ...]
    stashed_before: int
    stashed_after: int
    added_us: float

    def to_json(self) -> str:
        """The plan as the text of its file."""
        return json.dumps({"kind": KIND, "schema": SCHEMA, **dataclasses.asdict(self)}, indent=1) + "\n"

    @checked(CheckpointPlanError, path=checks.path)
    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON; the file appears whole or not at all.

        Raises:
            CheckpointPlanError: the path cannot be written.
        """
        try:
            write_whole(Path(path), self.to_json())
        except OSError as error:
            raise CheckpointPlanError(f"{path}: cannot be written: {error.strerror}") from error

    @staticmethod
    @checked(CheckpointPlanError, path=checks.path)
    def load(path: str | Path) -> CheckpointPlan:
        """The plan that `save` wrote.

        Raises:
            CheckpointPlanError: the file cannot be read, is no such plan, or is of another version.
        """
        try:
            record = read_json(Path(path))
        except (OSError, ValueError) as error:
            raise CheckpointPlanError(f"{path}: cannot be read as JSON: {error}") from error
        try:
            return parse_plan(record)
        except CheckpointPlanError as error:
            raise CheckpointPlanError(f"{path}: {error}") from error


def make_plan(model: str, regions: Regions) -> CheckpointPlan:
    """The plan for a choice of modules."""
    return CheckpointPlan(model, regions.modules, regions.stashed_before, regions.stashed_after, regions.added_us)


def parse_plan(record: Any) -> CheckpointPlan:
    """The plan in a JSON object.

    Raises:
        CheckpointPlanError: it is no plan of this version; the message says what is wrong.
    """
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise CheckpointPlanError("not a checkpointing plan; `costmodel memory MODEL --save-plan FILE` makes one")
    if record.get("schema") != SCHEMA:
        raise CheckpointPlanError(f"schema {record.get('schema')!r}, this version reads {SCHEMA}; make the plan again")
    fields = [field.name for field in dataclasses.fields(CheckpointPlan)]
    if odd := sorted((set(record) - {"kind", "schema"}) ^ set(fields)):
        raise CheckpointPlanError(f"missing or unknown: {', '.join(odd)}; make the plan again")
    modules = record["modules"]
    if not isinstance(modules, list) or not all(isinstance(name, str) and name for name in modules):
        raise CheckpointPlanError("modules must be a list of module names")
    if nested := _nested(modules):
        raise CheckpointPlanError(
            f"the module {nested} is listed twice or lies in another that is listed; leave it out"
        )
    numbers = [record[name] for name in ("stashed_before", "stashed_after", "added_us")]
    if not all(isinstance(number, (int, float)) and 0 <= number < float("inf") for number in numbers):
        raise CheckpointPlanError("bytes and times must be numbers of at least 0")
    return CheckpointPlan(str(record["model"]), tuple(modules), *numbers)


def _nested(modules: list[str]) -> str | None:
    """A module that is listed twice, or that lies in another that is listed.

    In sorted order whatever lies in a module follows it, with nothing in between but what lies in it too.
    """
    paths = sorted(name.split(".") for name in modules)
    return next((".".join(path) for before, path in pairwise(paths) if path[: len(before)] == before), None)
