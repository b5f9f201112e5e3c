"""Checkpointing plans: names of the modules that recompute their activations, and their file format."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from costmodel import checks
from costmodel.checks import checked
from costmodel.errors import CheckpointPlanError
from costmodel.files import write_whole
from costmodel.memory.checkpoint_regions import CheckpointedModules
from costmodel.records import Count, Format, Text, Time

SCHEMA = 1
KIND = "costmodel checkpointing plan"


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Modules of a model to checkpoint; `costmodel.checkpointed` applies the plan.

    Attributes:
        model: name of the model that it was made for.
        modules: names as in `named_modules()`; none is inside another.
        stashed_before, stashed_after: predicted bytes of saved activations without and with the plan.
        added_us: predicted device time that it adds to a training step.
    """

    model: str
    modules: tuple[str, ...]
    stashed_before: int
    stashed_after: int
    added_us: float

    def to_json(self) -> str:
        """Convert the plan to the text of its file."""
        return json.dumps({"kind": KIND, "schema": SCHEMA, **dataclasses.asdict(self)}, indent=1) + "\n"

    @checked(CheckpointPlanError, path=checks.path)
    def save(self, path: str | Path) -> None:
        """Write the plan as JSON; the file appears whole or not at all.

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
        """Read a plan that `save` wrote.

        Raises:
            CheckpointPlanError: the file cannot be read, is not such a plan, or is of another version.
        """
        return _plan_of(FORMAT.read(Path(path)), f"{path}: ")


class CheckpointPlanRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File format of a `CheckpointPlan`."""

    kind: Literal["costmodel checkpointing plan"]
    schema: int
    model: Text
    modules: tuple[Annotated[Text, Meta(min_length=1)], ...]
    stashed_before: Count
    stashed_after: Count
    added_us: Time


FORMAT = Format(
    CheckpointPlanRecord,
    "a checkpointing plan",
    CheckpointPlanError,
    "`costmodel memory MODEL --save-plan FILE` makes one",
    (SCHEMA,),
)


def make_plan(model: str, chosen: CheckpointedModules) -> CheckpointPlan:
    """Make the plan for a choice of modules."""
    return CheckpointPlan(model, chosen.modules, chosen.stashed_before, chosen.stashed_after, chosen.added_us)


def parse_plan(record: Any) -> CheckpointPlan:
    """Build a plan from a JSON object.

    Raises:
        CheckpointPlanError: the object is not a plan of this version.
    """
    return _plan_of(FORMAT.check(record, "the plan"), "")


def _plan_of(record: CheckpointPlanRecord, where: str) -> CheckpointPlan:
    if nested := _nested(record.modules):
        raise CheckpointPlanError(
            f"{where}the module {nested} is listed twice or is inside another listed module; leave it out"
        )
    return CheckpointPlan(**{name: getattr(record, name) for name in CheckpointPlan.__dataclass_fields__})


def _nested(modules: tuple[str, ...]) -> str | None:
    """Name of a module that is listed twice, or that is inside another listed module.

    In sorted order the modules inside a module follow it directly.
    """
    paths = sorted(name.split(".") for name in modules)
    return next((".".join(path) for before, path in pairwise(paths) if path[: len(before)] == before), None)
