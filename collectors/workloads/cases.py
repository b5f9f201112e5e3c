"""Cases of units: a graph to measure and the way to run it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from costmodel import files
from costmodel.errors import DatasetError
from costmodel.ir import DTYPE_BYTES, Graph
from costmodel.kernels.kernel import TF32_RUNNER
from costmodel.records import Count, Text, convert, parse_json, read_regular

MOST_TENSOR_BYTES = 3 << 30
"""Size of all tensors of a case above which it is not measured."""

Runner = Literal["aten", "aten_tf32", "inductor", "autotune"]
MOST_FILE_BYTES = 1 << 30
"""Size of the largest case file that is read."""


@dataclass(frozen=True, slots=True)
class UnitCase:
    """One graph to measure and the way to run it.

    Attributes:
        graph: text of an `ir.Graph` with canonical names.
        runner: `aten` (eager execution), `aten_tf32` (eager, float32 matmuls in TF32), `inductor` (compiled as one
            graph) or `autotune` (compiled, with Triton templates timed beside the library's kernels).
        unit: cases of one unit run the same operators in different ways (eager, folded, fused); "" for a single kernel.
        way: name of the way of running the unit.
        position: relative depth in the model, from 0 (input) to 1 (output); None for a synthetic unit.
        source: model or workload that the unit comes from.
        uses: number of calls in the models that units are taken from; 1 for a synthetic unit.
    """

    graph: str
    runner: Runner
    unit: str = ""
    way: str = ""
    position: float | None = None
    source: str = ""
    uses: int = 1

    @property
    def key(self) -> str:
        """Identifier of graph and runner, independent of the source."""
        return hashlib.sha256(f"{self.runner}\n{self.graph}".encode()).hexdigest()[:24]

    @property
    def compiled(self) -> bool:
        """Whether Inductor has to compile it before it can be measured."""
        return self.runner not in ("aten", TF32_RUNNER)


class CaseLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `UnitCase` as a line of a file."""

    graph: str
    runner: Runner
    unit: Text = ""
    way: Text = ""
    position: Annotated[float, Meta(ge=0, le=1)] | None = None
    source: Text = ""
    uses: Count = 1


def write_cases(path: Path, cases: Iterable[UnitCase]) -> None:
    """Write cases as JSON lines; the file appears whole or not at all."""
    write_whole(path, "".join(json.dumps(asdict(case)) + "\n" for case in cases))


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        DatasetError: it cannot be written.
    """
    try:
        files.write_whole(path, text)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}") from error


def read_cases(path: Path) -> Iterator[UnitCase]:
    """Read the cases of a JSON-lines file.

    Raises:
        DatasetError: the file cannot be read, or a line is not a case; the message has its number.
    """
    try:
        content = read_regular(path, MOST_FILE_BYTES)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(content.splitlines(), 1):
        try:
            yield UnitCase(**msgspec.structs.asdict(convert(parse_json(line), CaseLine)))
        except ValueError as error:
            raise DatasetError(f"{path}:{number}: not a case: {error}") from error


def draw_distinct(count: int, draw: Callable[[], Iterable[UnitCase]]) -> list[UnitCase]:
    """Draw a number of different cases, in the order of their first appearance.

    Args:
        count: number of cases.
        draw: returns some cases, or none, at every call.
    """
    found: dict[str, UnitCase] = {}
    while len(found) < count:
        for case in draw():
            found.setdefault(case.key, case)
    return list(found.values())[:count]


def distinct(cases: Iterable[UnitCase]) -> list[UnitCase]:
    """Remove cases that measure the same as an earlier one; all members of a unit are kept."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for case in cases:
        mark = (case.key, case.unit)
        if mark not in seen:
            seen.add(mark)
            kept.append(case)
    return kept


def size_bytes(graph: Graph) -> int:
    """Size of all tensors of a graph together."""
    kinds = [value.type for value in graph.values] + [kind for op in graph.ops for kind in op.types]
    return sum(kind.numel * DTYPE_BYTES[kind.dtype] for kind in kinds)


def lone_convolution(graph: Graph) -> bool:
    """Whether a graph consists of one convolution."""
    return [op.base for op in graph.ops] == ["convolution"]
