"""Measured compile times of a profile: one JSON line a model and mode, with the counts of what was compiled."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from costmodel.errors import DatasetError
from costmodel.records import Text, Time, convert, one_line, parse_json, read_regular
from costmodel.timeline.compile_time import COLD, WARM
from costmodel.training.families import family_of

COMPILE_TIMES = "compile_times.jsonl"
"""Name of the file in a profile."""
MOST_BYTES = 1 << 26
"""Largest size of the file."""


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """One process that compiled: seconds of its steps.

    Attributes:
        import_s: importing Dynamo, which a process does once; 0 where it was not timed.
        wrap_s: the call of torch.compile.
        calls_s: the first calls of the compiled model; the last one is steady.
    """

    calls_s: Annotated[tuple[Time, ...], Meta(min_length=2)]
    wrap_s: Time = 0.0
    import_s: Time = 0.0

    @property
    def seconds(self) -> float:
        """Seconds until calls are steady, beyond those that steady calls take."""
        return self.wrap_s + sum(self.calls_s) - len(self.calls_s) * self.calls_s[-1]


class CompileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model compiled in one mode by a cold process, then by a warm one.

    Attributes:
        model, batch_size, precision, layout: the case.
        mode: mode of torch.compile.
        graphs: number of graphs that Dynamo compiled.
        cores: number of cores that the processes ran on.
        device: name of the device; empty where it is unknown.
        counts: counts of `costmodel.timeline.compile_time.compile_counts`, with the measured number of graphs.
        cold: the process with an empty cache.
        warm: the process after it, with the cache that it left; None where it failed.
    """

    model: Text
    batch_size: int
    precision: Text
    layout: Text
    mode: Text
    graphs: int
    cores: int
    device: Text = ""
    counts: dict[str, Annotated[float, Meta(ge=0, le=1e9)]]
    cold: Calls
    warm: Calls | None = None

    @property
    def family(self) -> str:
        """Family that is held out when this model is predicted."""
        return family_of(self.model)

    def seconds(self, table: str) -> float | None:
        """Measured seconds of the cold or the warm process."""
        process = {COLD: self.cold, WARM: self.warm}[table]
        return None if process is None else process.seconds


def read_compile_records(path: Path) -> tuple[list[CompileRecord], dict[str, Any]]:
    """Records of a file, and the metadata in its first line.

    Raises:
        DatasetError: the file is missing, or a line is no record; the message names it.
    """
    try:
        lines = read_regular(path, MOST_BYTES).removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            row = convert(parse_json(line), dict[str, Any])
            if number == 1:
                about = row
            else:
                records.append(convert(row, CompileRecord))
        except ValueError as error:
            fault = f"line {number} is no record of compile times: {one_line(str(error))}"
            raise DatasetError(f"{path}: {fault}") from error
    return records, about


def describe(records: Sequence[CompileRecord]) -> Mapping[str, Any]:
    """Summary of records: models, processes, cores, and the median seconds of importing Dynamo."""
    processes = [one for record in records for one in (record.cold, record.warm) if one is not None]
    imports = [one.import_s for one in processes if one.import_s]
    return {
        "models": len({record.model for record in records}),
        "records": len(records),
        "devices": sorted({record.device for record in records if record.device}),
        "cores": statistics.median(record.cores for record in records),
        "import_s": statistics.median(imports) if imports else None,
    }
