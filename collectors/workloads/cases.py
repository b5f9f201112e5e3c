"""What can be measured: a graph and how it is run."""

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
from costmodel.records import Count, Text, convert, parse_json, read_regular

MOST_BYTES = 3 << 30
"""Cases whose tensors take more are not measured."""

Runner = Literal["aten", "inductor", "autotune"]
MOST_BYTES = 1 << 30
"""Size of the largest file of cases that is read."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    Attributes:
        graph: the text of an `ir.Graph` with canonical names.
        runner: `aten` (operator after operator), `inductor` (compiled as one graph) or `autotune` (likewise, Triton
            templates timed beside the library's kernels).
        unit: cases of one unit run the same layer in different ways (eager, folded, fused); "" for a lone kernel.
        way: which way of running the unit this is.
        position: where in its model the unit lies, from 0 (input) to 1 (output); None for a synthetic one.
        source: the model, or the workload, that it was taken from.
        uses: how often the models at hand call it; 1 for a synthetic one.
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
        """Identifies what is measured, whatever it was taken from."""
        return hashlib.sha256(f"{self.runner}\n{self.graph}".encode()).hexdigest()[:24]

    @property
    def compiled(self) -> bool:
        """Whether it has to be compiled before it can be measured."""
        return self.runner != "aten"


class CaseLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Case` as a line of a file."""

    graph: str
    runner: Runner
    unit: Text = ""
    way: Text = ""
    position: Annotated[float, Meta(ge=0, le=1)] | None = None
    source: Text = ""
    uses: Count = 1


def write_cases(path: Path, cases: Iterable[Case]) -> None:
    """Writes cases as JSON lines; the file appears whole or not at all."""
    write_whole(path, "".join(json.dumps(asdict(case)) + "\n" for case in cases))


def write_whole(path: Path, text: str) -> None:
    """Writes a file of a collection.

    Raises:
        DatasetError: it cannot be written.
    """
    try:
        files.write_whole(path, text)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}") from error


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of a JSON-lines file.

    Raises:
        DatasetError: the file cannot be read, or a line is not a case; the message says which.
    """
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    for number, line in enumerate(content.splitlines(), 1):
        try:
            yield Case(**msgspec.structs.asdict(convert(parse_json(line), CaseLine)))
        except ValueError as error:
            raise DatasetError(f"{path}:{number}: not a case: {error}") from error


def draw_distinct(count: int, draw: Callable[[], Iterable[Case]]) -> list[Case]:
    """So many different cases, in the order in which they are drawn first.

    Args:
        count: of cases.
        draw: makes some cases, or none, at every call.
    """
    found: dict[str, Case] = {}
    while len(found) < count:
        for case in draw():
            found.setdefault(case.key, case)
    return list(found.values())[:count]


def distinct(cases: Iterable[Case]) -> list[Case]:
    """The cases without those that measure the same as an earlier one; the members of a unit are all kept."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for case in cases:
        mark = (case.key, case.unit)
        if mark not in seen:
            seen.add(mark)
            kept.append(case)
    return kept


def size_bytes(graph: Graph) -> int:
    """Bytes of every tensor of a graph together."""
    kinds = [value.type for value in graph.values] + [kind for op in graph.ops for kind in op.types]
    return sum(kind.numel * DTYPE_BYTES[kind.dtype] for kind in kinds)


def lone_convolution(graph: Graph) -> bool:
    """Whether a graph is one convolution and nothing else."""
    return [op.base for op in graph.ops] == ["convolution"]
