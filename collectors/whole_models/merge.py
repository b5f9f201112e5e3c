"""Datasets of one kind of hardware, measured in several runs or on several of its devices at once -> one dataset.

    python -m collectors.whole_models.merge units.parquet gpu0.parquet gpu1.parquet -o units.parquet
    python -m collectors.whole_models.merge models.jsonl again.jsonl -o models.jsonl
    python -m collectors.whole_models.merge again.jsonl process1.jsonl process2.jsonl --every-process -o again.jsonl

A later file's row takes the place of an earlier one's for the same case, unless only the earlier one is to be trusted.
Whole models are kept by environment, for hosts differ, and by process where records name it
(`collectors.whole_models.by_process`); or as every process measured them, one process a file, to tell how far processes
differ.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.workloads.cases import write_whole
from collectors.workloads.model_cases import case_key
from costmodel.errors import CostmodelError, DatasetError
from costmodel.training.dataset import ALIGNED, TRUSTED, read_frame, write_frame

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
ISSUED = "24 calls among others, for a host that launches in 7 us"
"""What host times of calls are quantiles of (`costmodel.measurement.timers.issue_time`)."""
CASE, ORIGIN = ["key", "unit"], ["source", "position"]
"""Columns: what was measured, and where it is from."""
SAME = ("device", "capability", "torch", "cuda", "cudnn", "triton", "method")
"""What must not differ between runs that are merged; host and driver may, and are kept in `environments`."""
SAME_CPU = ("host_cpu", "threads", "vectors", "freed_memory", "denormals")
"""Likewise where the host is the device."""


def merge_units(paths: Sequence[Path], out: Path) -> int:
    """Merges exported ledgers; how many cases there are then.

    Raises:
        DatasetError: a file is no dataset, or is of other hardware or software than the first.
    """
    import pandas as pd

    frames, environments = [], []
    aligned: dict[str, Any] = {}
    for path in paths:
        frame, about = read_frame(path)
        frames.append(frame)
        if ALIGNED in about:
            aligned = {ALIGNED: about[ALIGNED]}
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
    }
    write_frame(rows.drop(columns=["trusted", "run"]).reset_index(drop=True), out, about)
    return len(rows)


def _origins(rows: pd.DataFrame) -> pd.DataFrame:
    """Where each row's case was first taken from: a model, if it is known from one, even if it was also drawn by lot.

    What is left out with a family of models is told by that, so measuring a case again must not change it.
    """
    first = rows.sort_values("position", key=lambda place: place.isna(), kind="stable").drop_duplicates(CASE)
    return rows[CASE].merge(first[CASE + ORIGIN], on=CASE, how="left")[ORIGIN]


def merge_models(paths: Sequence[Path], out: Path, every_process: bool = False) -> int:
    """Merges records of whole models; how many there are then. The first file's first line may be a header.

    Each record's `environment` is the number of what it was taken on in the header's `environments`. Where every
    process's record is kept, its `process` counts on from file to file.

    Raises:
        DatasetError: a file cannot be read, or was taken on other hardware or software than the first.
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
    """What a later record takes the place of: the same case there, and of the same process, where it names one.

    Processes are numbered within a session, and within what it measured.
    """
    case = case_key({**record, "model": record["model"].removeprefix("tv:")})
    of = (record["process"], record.get("session"), *record.get("latency_us", ())) if "process" in record else ()
    return case, record.get("mode"), record.get("environment", 0), *of


def _environments_of(path: Path, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What a file of records was taken on, by the numbers in its records: its header's, or the file beside it."""
    beside = path.with_suffix(".env.json")
    if lines and "schema" in lines[0]:
        return list(lines[0]["environments"] if "environments" in lines[0] else [lines[0]["environment"]])
    return [json.loads(beside.read_text(encoding="utf-8"))] if beside.exists() else []


def check_same(path: Path, first: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Makes sure that two runs may be merged.

    Raises:
        DatasetError: they were not taken on the same kind of device with the same software.
    """
    known = {"method": "1"}
    for name in (*SAME, *(SAME_CPU if first.get("device") == "cpu" else ())):
        left, right = ({**known, **environment}.get(name) for environment in (first, found))
        if left != right:
            raise DatasetError(f"{path}: {name} was {right}, and {left} in the first file; such numbers are not mixed")


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


def _distinct(environments: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [one for index, one in enumerate(environments) if one not in environments[:index]]


def main() -> None:
    """Merges datasets of units (`.parquet`) or of whole models (`.jsonl`)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--every-process", action="store_true", help="keep what every process measured, one a file")
    args = parser.parse_args()
    try:
        if args.files[0].suffix == ".parquet":
            found = merge_units(args.files, args.output)
        else:
            found = merge_models(args.files, args.output, args.every_process)
        print(f"{found} cases in {args.output}")
    except CostmodelError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
