"""Plans: what was decided for a model, region by region, and the file that holds it. Loading one runs no code.

A plan names its model by the hash of its captured graph, its moves by their names, and its operators by theirs in the
graph that the moves make. Whoever applies it makes that graph anew and checks that everything fits.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from costmodel import checks
from costmodel.checks import checked
from costmodel.errors import PlanError
from costmodel.files import write_whole
from costmodel.ir import Graph
from costmodel.planning.stream_assignment import MOST_LANES
from costmodel.records import Count, Format, Text, Time

SCHEMA = 4
Backend = Literal["eager", "inductor", "cudnn"]
Launch = Literal["stream", "graph"]
BACKENDS: tuple[str, ...] = get_args(Backend)
LAUNCHES: tuple[str, ...] = get_args(Launch)


@dataclass(frozen=True, slots=True)
class Region:
    """Operators that run the same way.

    Attributes:
        backend: `eager` (ATen calls), `inductor` (compiled together), `cudnn` (one fused convolution).
        ops: their names, in the order in which they run.
        layers: the modules that they belong to.
        us: predicted device time, microseconds.
        why: the reason for the choice, for people.
        lane: the stream that it is issued to inside the CUDA graph; regions of different lanes may run side by side.
    """

    backend: str
    ops: tuple[str, ...]
    layers: tuple[str, ...]
    us: float
    why: str = ""
    lane: int = 0

    @property
    def span(self) -> str:
        """The modules that it belongs to, in short: the only one, or the first and the last."""
        names = self.layers
        return "" if not names else names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is to run.

    Attributes:
        model: what it is called.
        graph: hash of the captured graph that the plan was made for: model, input shapes, precision and layout.
        hardware: the profile whose predictions decided.
        strategy: the oracle that decided.
        moves: rewrites of the whole graph, in order.
        launch: `graph` (captured once, replayed as one CUDA graph) or `stream` (call after call).
        regions: every operator of the rewritten graph exactly once, in the order in which they run.
        latency_ms: predicted latency of the plan, and of each mode that it was compared with.
        build_s: predicted time to compile the plan's regions.
        torch: version of torch that the plan was made with.
        search: whether cuDNN's algorithms are searched for when the plan is applied, in place of its heuristics.
        memory_bytes: predicted bytes that a call needs, weights and inputs included.
        warnings: one line each; first, where it is so, that a call needs more memory than the device has.
    """

    model: str
    graph: str
    hardware: str
    strategy: str
    moves: tuple[str, ...]
    launch: str
    regions: tuple[Region, ...]
    latency_ms: Mapping[str, float]
    build_s: float
    torch: str
    search: bool = False
    memory_bytes: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def lanes(self) -> int:
        """How many streams the regions are issued to."""
        return 1 + max((region.lane for region in self.regions), default=0)

    def in_a_row(self) -> Plan:
        """The same plan on one lane."""
        return replace(self, regions=tuple(replace(region, lane=0) for region in self.regions))

    def check(self, graph: Graph) -> Plan:
        """The plan itself, if it was made for this captured graph.

        Raises:
            PlanError: it was made for another model, shape, precision or layout.
        """
        if fingerprint(graph) != self.graph:
            raise PlanError(
                f"the plan was made for {self.model} with other weights' shapes, inputs or precision than "
                f"{graph.name or 'this model'}; make a plan for this model and these inputs"
            )
        return self

    def check_regions(self, main: Graph) -> Plan:
        """The plan itself, if its regions hold each operator of the rewritten graph once, none before its operands.

        Raises:
            PlanError: an operator is missing, unknown, repeated, or comes too early.
        """
        planned = [name for region in self.regions for name in region.ops]
        made = {op.name: op for op in main.ops}
        odd = sorted(set(planned) ^ made.keys()) or sorted(name for name, uses in Counter(planned).items() if uses > 1)
        if odd:
            raise PlanError(f"the plan's regions do not fit the model at operator {odd[0]}; make the plan again")
        done = {value.name for value in main.values}
        for name in planned:
            if any(ref.name not in done for ref in made[name].refs()):
                raise PlanError(f"the plan runs operator {name} before its operands; make the plan again")
            done.add(name)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON's types."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self) -> str:
        """The plan as the text of its file."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    @checked(PlanError, path=checks.path)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as JSON; the file appears whole or not at all.

        Raises:
            PlanError: it cannot be written.
        """
        target = Path(path)
        try:
            write_whole(target, self.to_json())
        except OSError as error:
            raise PlanError(f"{target}: the plan cannot be written: {error.strerror}") from error

    @classmethod
    @checked(PlanError, path=checks.path)
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """The plan that `save` wrote.

        Raises:
            PlanError: the file cannot be read, or is no plan of this version.
        """
        return cls.from_dict(FORMAT.load(Path(path)), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "the plan") -> Plan:
        """The plan that `to_dict` made.

        Raises:
            PlanError: something is missing, unknown or of the wrong type; the message names it.
        """
        record = FORMAT.check(data, where)
        fields = {name: getattr(record, name) for name in cls.__dataclass_fields__}
        return cls(**fields | {"regions": tuple(Region(**msgspec.structs.asdict(one)) for one in record.regions)})


class RegionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Region` in a file."""

    backend: Backend
    ops: Annotated[tuple[Text, ...], Meta(min_length=1)]
    layers: tuple[Text, ...]
    us: Time
    why: Text
    lane: Annotated[int, Meta(ge=0, lt=MOST_LANES)]


class PlanRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Plan` in a file."""

    schema: int
    model: Text
    graph: Text
    hardware: Text
    strategy: Text
    moves: tuple[Text, ...]
    launch: Launch
    regions: tuple[RegionRecord, ...]
    latency_ms: dict[str, Time]
    build_s: Time
    torch: Text
    search: bool
    memory_bytes: Count | None
    warnings: tuple[Text, ...]


FORMAT = Format(PlanRecord, "a plan", PlanError, "make the plan again", (SCHEMA,))


def fingerprint(graph: Graph) -> str:
    """What identifies a captured graph: a hash of its operators, types and wiring, not of any name in it."""
    text = str(Graph("", graph.values, graph.ops, graph.outputs))
    return hashlib.sha256(text.encode()).hexdigest()
