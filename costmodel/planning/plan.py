"""Plans: a backend for each region of a model, and their file format. Loading a plan runs no code.

A plan identifies its model by the hash of the captured graph, and operators by their names in the rewritten graph.
`costmodel.apply` captures and rewrites the graph again, and checks that the plan fits it.
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
from costmodel.planning.stream_assignment import MOST_STREAMS
from costmodel.prediction.arithmetic import AMP, HIGHEST, MATMUL_PRECISIONS, Arithmetic
from costmodel.records import Count, Format, Text, Time

SCHEMA = 4
Backend = Literal["eager", "inductor", "cudnn"]
Launch = Literal["stream", "graph"]
BACKENDS: tuple[str, ...] = get_args(Backend)
LAUNCHES: tuple[str, ...] = get_args(Launch)


@dataclass(frozen=True, slots=True)
class Region:
    """Operators that one backend runs.

    Attributes:
        backend: `eager` (ATen calls), `inductor` (compiled together), `cudnn` (one fused convolution).
        ops: names of the operators, in execution order.
        layers: names of the modules that they belong to.
        us: predicted device time, microseconds.
        why: reason for the choice, for the reader of a report.
        stream: index of the CUDA stream inside the CUDA graph; regions on different streams may run side by side.
    """

    backend: str
    ops: tuple[str, ...]
    layers: tuple[str, ...]
    us: float
    why: str = ""
    stream: int = 0

    @property
    def span(self) -> str:
        """Names of the modules in short: the only one, or the first and the last."""
        names = self.layers
        return "" if not names else names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan for running a model.

    Attributes:
        model: name of the model.
        graph: hash of the captured graph, which depends on model, input shapes, precision and layout.
        hardware: name of the profile whose predictions were used.
        strategy: name of the oracle.
        rewrites: graph rewrites, in order, as `costmodel.rewrites.registry.apply_rewrites` takes them.
        launch: `graph` (captured once, replayed as one CUDA graph) or `stream` (call after call).
        regions: every operator of the rewritten graph exactly once, in execution order.
        latency_ms: predicted latency of the plan (key `plan`) and of each mode.
        build_s: predicted time to compile the plan's regions.
        torch: version of torch that captured the graph.
        search: whether cuDNN times its algorithms when the plan is applied, instead of using its heuristics.
        memory_bytes: predicted bytes that a call needs, weights and inputs included.
        warnings: one line each, such as a call that needs more memory than the device has.
        graphs: compiled graphs that a call of the model under torch.compile enters; None if that was not checked.
        amp: precision of the autocast region whose casts the plan makes itself; None for none.
        matmul_precision: precision of float32 matmuls that the plan was made for, and runs them in at least.
        cudnn_benchmark: whether the modes were predicted with cuDNN's search; a plan on a GPU searches in any case.
        roofline_ms: least device time of the plan's kernels one after another: of each, the larger of arithmetic at
            peak and traffic at bandwidth; None in a plan of an earlier version.
    """

    model: str
    graph: str
    hardware: str
    strategy: str
    rewrites: tuple[str, ...]
    launch: str
    regions: tuple[Region, ...]
    latency_ms: Mapping[str, float]
    build_s: float
    torch: str
    search: bool = False
    memory_bytes: int | None = None
    warnings: tuple[str, ...] = ()
    graphs: int | None = None
    amp: str | None = None
    matmul_precision: str = HIGHEST
    cudnn_benchmark: bool = False
    roofline_ms: float | None = None

    @property
    def roofline_distance(self) -> float | None:
        """Predicted latency over the roofline; None if that is unknown or 0."""
        return self.latency_ms["plan"] / self.roofline_ms if self.roofline_ms else None

    @property
    def arithmetic(self) -> Arithmetic:
        """Settings of torch that the plan was made for."""
        return Arithmetic(self.amp, self.matmul_precision, self.cudnn_benchmark)

    @property
    def streams(self) -> int:
        """Number of CUDA streams."""
        return 1 + max((region.stream for region in self.regions), default=0)

    def on_one_stream(self) -> Plan:
        """The same plan on one CUDA stream."""
        return replace(self, regions=tuple(replace(region, stream=0) for region in self.regions))

    def check(self, graph: Graph) -> Plan:
        """Return the plan itself if it was made for this captured graph.

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
        """Return the plan itself if its regions hold each operator of the rewritten graph once, after its operands.

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
        """Convert the plan to JSON types."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self) -> str:
        """Convert the plan to the text of its file."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    @checked(PlanError, path=checks.path)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON; the file appears whole or not at all.

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
        """Read a plan that `save` wrote.

        Raises:
            PlanError: the file cannot be read, or is not a plan of this version.
        """
        return cls.from_dict(FORMAT.load(Path(path)), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "the plan") -> Plan:
        """Build a plan from the output of `to_dict`.

        Raises:
            PlanError: something is missing, unknown or of the wrong type; the message names it.
        """
        record = FORMAT.check(data, where)
        fields = {name: getattr(record, name) for name in cls.__dataclass_fields__}
        return cls(**fields | {"regions": tuple(Region(**msgspec.structs.asdict(one)) for one in record.regions)})


class RegionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File format of a `Region`."""

    backend: Backend
    ops: Annotated[tuple[Text, ...], Meta(min_length=1)]
    layers: tuple[Text, ...]
    us: Time
    why: Text
    stream: Annotated[int, Meta(ge=0, lt=MOST_STREAMS)]


class PlanRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """File format of a `Plan`."""

    schema: int
    model: Text
    graph: Text
    hardware: Text
    strategy: Text
    rewrites: tuple[Text, ...]
    launch: Launch
    regions: tuple[RegionRecord, ...]
    latency_ms: dict[str, Time]
    build_s: Time
    torch: Text
    search: bool
    memory_bytes: Count | None
    warnings: tuple[Text, ...]
    graphs: Count | None = None
    amp: Literal[AMP] | None = None  # type: ignore[valid-type]  # its members are listed once, in AMP
    matmul_precision: Literal[MATMUL_PRECISIONS] = "highest"  # type: ignore[valid-type]
    cudnn_benchmark: bool = False
    roofline_ms: Time | None = None


FORMAT = Format(PlanRecord, "a plan", PlanError, "make the plan again", (SCHEMA,))


def fingerprint(graph: Graph) -> str:
    """Hash of a captured graph: operators, types and data flow, independent of any name."""
    text = str(Graph("", graph.values, graph.ops, graph.outputs))
    return hashlib.sha256(text.encode()).hexdigest()
