"""Merge datasets of one kind of hardware that were measured in several runs or on several devices.

A later file's row replaces an earlier one's for the same case, unless only the earlier one is trusted. Whole models are
kept by environment, as hosts differ, and by process where records name it (`--times` of
`collectors.whole_models.collect`); or as every process measured them, one process a file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.workloads.cases import write_whole
from collectors.workloads.model_cases import case_key
from costmodel.calibration.same_device import device_of
from costmodel.errors import DatasetError
from costmodel.training.dataset import ALIGNED, TRUSTED, read_frame, write_frame

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
ISSUED = "24 calls among others, for a host that launches in 7 us"
"""Samples that host times are quantiles of (`costmodel.measurement.timers.issue_time`)."""
CASE, ORIGIN = ["key", "unit"], ["source", "position"]
"""Columns that identify a case, and columns of its origin."""
SAME = ("device", "capability", "torch", "cuda", "cudnn", "triton", "method")
"""Environment fields that merged runs must share; host and driver may differ, and are kept in `environments`."""
SAME_CPU = ("host_cpu", "threads", "vectors", "freed_memory", "denormals")
"""Fields that runs on a CPU must share too."""


def merge_units(paths: Sequence[Path], out: Path) -> int:
    """Merge datasets of units; returns the number of cases.

    Raises:
        DatasetError: a file is not a dataset, or has other hardware or software than the first.
    """
    import pandas as pd

    frames, environments = [], []
    dates: list[str] = []
    aligned: dict[str, Any] = {}
    for path in paths:
        frame, about = read_frame(path)
        frames.append(frame)
        if ALIGNED in about:
            aligned = {ALIGNED: about[ALIGNED]}
        dates += about.get("dates", [])
        environments += about.get("environments", [about.get("environment", {})])
        check_same(path, environments[0], environments[-1])
    rows = pd.concat(frames, ignore_index=True)
    rows["trusted"] = rows["status"] == TRUSTED
    rows["run"] = range(len(rows))
    rows[ORIGIN] = _origins(rows)
    rows = rows.sort_values(["trusted", "run"]).drop_duplicates(CASE, keep="last").sort_values("run")
    on_cpu = environments[0].get("device") == "cpu"
    taken = f"5 rounds of CUDA-graph replays (device) and of {ISSUED} (host)"
    about = {
        "environment": environments[0],
        "environments": _distinct(environments),
        "cases": len(rows),
        "statuses": dict(Counter(rows["status"])),
        "units": f"microseconds; quantiles of {'5 to 15 samples of wall time' if on_cpu else taken}",
        **aligned,
        **({"dates": [min(dates), max(dates)]} if dates else {}),
    }
    write_frame(rows.drop(columns=["trusted", "run"]).reset_index(drop=True), out, about)
    return len(rows)


def _origins(rows: pd.DataFrame) -> pd.DataFrame:
    """First origin of each row's case: a model, if one has it, even if the case was also drawn at random.

    Cross-validation holds out the cases of a family by this, so measuring a case again must not change it.
    """
    first = rows.sort_values("position", key=lambda place: place.isna(), kind="stable").drop_duplicates(CASE)
    return rows[CASE].merge(first[CASE + ORIGIN], on=CASE, how="left")[ORIGIN]


def merge_models(paths: Sequence[Path], out: Path, every_process: bool = False) -> int:
    """Merge records of whole models; returns their number. The first file's first line may be a header.

    Each record's `environment` is its index in the header's `environments`. If every process's record is kept, its
    `process` counts on from file to file.

    Raises:
        DatasetError: a file cannot be read, or has other hardware or software than the first.
    """
    header: dict[str, Any] = {}
    records: dict[tuple[object, ...], dict[str, Any]] = {}
    environments: list[dict[str, str]] = []
    for path in paths:
        lines = _lines(path)
        before = max((record.get("process", 0) for record in records.values()), default=0)
        here = _environments_of(path, lines)
        environments = _distinct([*environments, *here])
        for record in lines:
            if "schema" in record:
                header = header or record
            elif "error" not in record:
                numbers = {"environment": environments.index(here[record.get("environment", 0)])} if here else {}
                if every_process:
                    numbers["process"] = before + record.get("process", 1)
                key = _which(record | numbers)
                if record.get("latency_us") or key not in records:
                    records[key] = record | numbers
        if here:
            check_same(path, environments[0], here[-1])
    header = {"schema": SCHEMA} | header | {"environments": environments}
    write_whole(out, "".join(json.dumps(line) + "\n" for line in (header, *records.values())))
    return len(records)


def _which(record: Mapping[str, Any]) -> tuple[object, ...]:
    """Key of records that replace each other: same case and environment, and same process if a record names it.

    Processes are numbered within a session and the set of calls it measured.
    """
    case = case_key({**record, "model": record["model"].removeprefix("tv:")})
    of = (record["process"], record.get("session"), *record.get("latency_us", ())) if "process" in record else ()
    return case, record.get("mode"), record.get("environment", 0), *of


def _environments_of(path: Path, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Environments of a file of records, by their numbers in it: from its header, or from the file beside it."""
    beside = path.with_suffix(".env.json")
    if lines and "schema" in lines[0]:
        return list(lines[0]["environments"] if "environments" in lines[0] else [lines[0]["environment"]])
    return [json.loads(beside.read_text(encoding="utf-8"))] if beside.exists() else []


def check_same(path: Path, first: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Check that two runs can be merged.

    Raises:
        DatasetError: they have different hardware or software.
    """
    known = {"method": "1"}
    for name in (*SAME, *(SAME_CPU if first.get("device") == "cpu" else ())):
        left, right = ({**known, **environment}.get(name) for environment in (first, found))
        if left != right:
            raise DatasetError(f"{path}: {name} was {right}, and {left} in the first file; such numbers are not mixed")
    sizes = [device_of(environment, path) for environment in (first, found)]
    if not sizes[0].is_like(sizes[1]):
        memory = [f"{device.memory_bytes or 0:,}" for device in sizes]
        fault = f"its GPU has {memory[1]} bytes of memory, that of the first file {memory[0]}"
        raise DatasetError(f"{path}: {fault}; such numbers are not mixed")


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


def _distinct(environments: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [one for index, one in enumerate(environments) if one not in environments[:index]]
