"""Compile times of a profile: add measured ones, fit the profile's costs of compiling again, list the errors.

python scripts/compile_times.py --add compile.jsonl      records of scripts/measure_user_models.py --compile-times
python scripts/compile_times.py                          fit again, after a change in how models are compiled

Records are kept in the profile's compile_times.jsonl with the counts of what was compiled, so that `costmodel train`
needs neither the models nor the device. Counts are made anew each time. A profile without records, such as a CPU's
(--hardware), is fitted to compilations beside others. `make tables` then writes the tables of the documents.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from costmodel import zoo
from costmodel.calibration.compile_fit import fit_compile_times
from costmodel.calibration.compile_records import COMPILE_TIMES, read_compile_records
from costmodel.calibration.compile_section import add_compile_times
from costmodel.calibration.evaluation import traces_of
from costmodel.calibration.make_profile import write_card
from costmodel.calibration.models_file import read_measured
from costmodel.capture.trace import capture
from costmodel.device import Device
from costmodel.files import write_whole
from costmodel.profiles.card import CARD
from costmodel.profiles.profile import Profile, load_profile
from costmodel.timeline.compile_time import compile_counts
from costmodel.timeline.issue_trace import IssueTrace, compiled_trace

ABOUT = {
    "schema": 1,
    "about": "compile times: cold = a process with an empty cache, alone on its cores and its GPU; warm = a second "
    "process with the cache that it left; wrap_s = torch.compile, calls_s = the first calls, import_s = importing "
    "Dynamo (not part of the compile time); graphs as Dynamo counted them; counts of what was compiled, as predicted",
}
PROCESS = ("import_s", "wrap_s", "calls_s")
"""Kept fields of a process that compiled."""
CASE = ("model", "batch_size", "precision", "layout", "mode")
"""Fields that identify a model compiled in a mode."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, nargs="+", default=(), metavar="FILE", help="records to add")
    parser.add_argument("--hardware", default="nvidia-h200", help="profile to fit")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/data/compile_times_h200.csv"))
    return parser.parse_args()


def measured_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Records of a file of the collector, without counts; failures are left out.

    The number of cores of a record without it is the machine's, from the environment beside the file.
    """
    machine = json.loads(path.with_suffix(".env.json").read_text())
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "error" not in row:
            found = {name: row[name] for name in (*CASE, "session")}
            found |= {"graphs": row["cold"]["graphs"], "cores": row.get("cores") or int(machine["cores"])}
            found |= {"device": machine.get("device", "")}
            found |= {run: {name: row[run][name] for name in PROCESS if name in row[run]} for run in ("cold", "warm")}
            yield found


def with_counts(rows: Sequence[Mapping[str, Any]], device: Device) -> list[dict[str, Any]]:
    """Rows with counts of what was compiled, in the measured number of graphs."""
    traces: dict[tuple[Any, ...], IssueTrace] = {}
    found = []
    for row in rows:
        case = tuple(row[name] for name in CASE[:-1])
        if case not in traces:
            traces[case] = compiled(row, device)
        trace, graphs = traces[case], max(1, row["graphs"])
        counts = compile_counts(trace.kernels, trace.parameters, graphs)
        found.append({**row, "counts": counts})
    return found


def compiled(row: Mapping[str, Any], device: Device) -> IssueTrace:
    """Compiled issue trace of a row's model; a model of a file brings its own inputs."""
    own = ".py:" in row["model"]
    size = {} if own else {"batch_size": row["batch_size"], "precision": row["precision"]}
    loaded = zoo.load(row["model"], **size, **({} if own else {"channels_last": row["layout"] == "nhwc"}))
    graph = capture(loaded.module, loaded.inputs, row["model"], partial=True)
    return compiled_trace(graph, device.is_cpu, device.multiprocessors)


def add(profile: Profile, files: Sequence[Path]) -> None:
    """Add the records of files to a profile's, once each, and count anew what was compiled."""
    path = profile.path / COMPILE_TIMES
    lines = path.read_text().splitlines() if path.exists() else [json.dumps(ABOUT)]
    rows = [json.loads(line) for line in lines[1:]]
    rows += [row for file in files for row in measured_rows(file)]
    once = {(*(row[name] for name in CASE), row["session"]): row for row in rows}
    counted = with_counts(list(once.values()), profile.device)
    write_whole(path, "\n".join([lines[0], *map(json.dumps, counted)]) + "\n")


def fit_again(profile: Profile) -> Mapping[str, Any]:
    """Fit a profile's costs of compiling and write its summary."""
    records = profile.path / COMPILE_TIMES
    cases = [] if records.exists() else read_measured(profile.path / "models.jsonl")[0]
    traces = [traces_of(case, profile.device)[1] for case in cases]
    card = add_compile_times(profile.card, profile.path, cases, traces)
    write_card(profile.path / CARD, card)
    return card


def main() -> None:
    """Add, fit, list."""
    args = arguments()
    profile = load_profile(args.hardware)
    if args.add or (profile.path / COMPILE_TIMES).exists():
        add(profile, args.add)
        fit = fit_compile_times(read_compile_records(profile.path / COMPILE_TIMES)[0])
        pd.DataFrame(fit.rows).to_csv(args.output, index=False, float_format="%.4g")
    card = fit_again(profile)
    for row in card["scores"].get("compile", ()):
        print(f"{row['cache']}, {row['mode']}: {row['cases']} models, median error {row['median_error']:.1%}")


if __name__ == "__main__":
    main()
