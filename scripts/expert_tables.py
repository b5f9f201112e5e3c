"""Plans beside the settings that an expert of torch.compile would try, and what Dynamo's guards of modules take.

python scripts/expert_tables.py docs/data/expert_h200.csv --add expert/     files of scripts/measure_expert_settings.py
python scripts/expert_tables.py docs/data/expert_h200.csv --write docs/plans.md
python scripts/expert_tables.py docs/data/expert_h200.csv --guards --write docs/backend.md
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from expert_settings import GUARDED, OURS, SETTINGS
from markdown_tables import markdown_table, print_or_write

from costmodel.files import replacing

CASE = ("model", "batch_size", "precision")
COLUMNS = (*CASE, "setting", "median_ms", "low_ms", "high_ms", "compile_s", "error", "note", "rounds_ms", "plans")
KINDS = (("1", "float32"), ("32", "float32"), ("1", "float16"), ("32", "float16"))
EARLIER = "earlier"
"""In the column `plans`: the plan is that of an earlier version."""
NOTE_LENGTH = 80
Case = tuple[str, str, str]
Times = Mapping[Case, Mapping[str, float]]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a table of cases."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def case_of(row: Mapping[str, str]) -> Case:
    """Model, batch size and precision of a row."""
    return row["model"], row["batch_size"], row["precision"]


def read_directory(directory: Path, plans: str = "") -> list[dict[str, str]]:
    """Rows of the files of single cases; those without any time are left out."""
    found: list[dict[str, str]] = []
    for path in sorted(directory.glob("*.csv")):
        model, batch_size, precision = path.stem.rsplit("-", 2)
        rows = read_rows(path)
        if any(row["median_ms"] for row in rows):
            case = dict(zip(CASE, (model.replace("timm-", "timm:"), batch_size, precision), strict=True))
            found += [case | row | {"note": row["note"][:NOTE_LENGTH], "plans": plans} for row in rows]
    return found


def add(rows: Iterable[dict[str, str]], more: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Rows with those of further cases; of a case that both have, the further ones count."""
    new = set(map(case_of, more))
    return [row for row in rows if case_of(row) not in new] + list(more)


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write a table of cases, whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def times_of(rows: Iterable[Mapping[str, str]]) -> dict[Case, dict[str, float]]:
    """Median latency in milliseconds by setting, of each case with a plan and a setting that replays CUDA graphs.

    Where none of these was built in time, the fastest setting is unknown: it would be one of them.
    """
    graphs = [name for name, setting in SETTINGS.items() if setting.replays_graphs]
    found = _medians(rows).items()
    return {case: times for case, times in found if "plan" in times and not times.keys().isdisjoint(graphs)}


def _medians(rows: Iterable[Mapping[str, str]]) -> dict[Case, dict[str, float]]:
    """Median latency in milliseconds by setting, of each case."""
    found: dict[Case, dict[str, float]] = {}
    for row in rows:
        if row["median_ms"]:
            found.setdefault(case_of(row), {})[row["setting"]] = float(row["median_ms"])
    return found


def best_of(times: Mapping[str, float]) -> str:
    """Fastest of an expert's settings."""
    return min(times.keys() - set(OURS), key=times.__getitem__)


def gains(cases: Times, name: str) -> dict[Case, float]:
    """Latency of the best setting over that of a plan or the backend."""
    return {case: times[best_of(times)] / times[name] for case, times in cases.items() if name in times}


def markdown(rows: Sequence[Mapping[str, str]], device: str) -> str:
    """The text and the table."""
    cases = times_of(rows)
    plans, backends = gains(cases, "plan"), gains(cases, "backend")
    least = min(plans, key=plans.__getitem__)
    bests = Counter(best_of(times) for times in cases.values())
    fastest = ", ".join(f"*{name}* {count}" for name, count in bests.most_common())
    missing = Counter(
        row["setting"] for row in rows if row["note"] and row["setting"] in GUARDED and case_of(row) in cases
    )
    left_out = ", ".join(f"*{name}* {count}" for name, count in missing.most_common())
    backend = (
        f",\nthe backend {geometric_mean(backends.values()):.2f} times ({len(backends)} cases)" if backends else ""
    )
    ours = geometric_mean(plans.values())
    earlier = {case_of(row) for row in rows if row["plans"] == EARLIER} & cases.keys()
    text = (
        f"{len(cases)} cases on an {device}: plans {ours:.2f} times as fast as the best setting\n"
        f"of each (geometric mean; least {plans[least]:.2f}, {least[0]} in {least[2]} at batch {least[1]}){backend}.\n"
        f"The best setting, and in how many cases: {fastest}.\n"
        f"Not built within the limit, or failed: {left_out or 'none'}.\n"
    )
    if earlier:
        now = geometric_mean(value for case, value in plans.items() if case not in earlier)
        text += (
            f"In {len(earlier)} cases, marked *, the plan is that of an earlier version; without them the mean is\n"
            f"{now:.2f}.\n"
        )
    return f"{text}\n{_table(cases, plans, backends, earlier)}"


def _table(cases: Times, plans: Mapping[Case, float], backends: Mapping[Case, float], earlier: set[Case]) -> str:
    def cell(case: Case) -> str:
        if case not in cases:
            return "-"
        backend = f" ({backends[case]:.2f})" if case in backends else ""
        return f"{plans[case]:.2f}{'*' if case in earlier else ''}{backend}"

    head = ("model", *(f"batch {batch_size}, {precision}" for batch_size, precision in KINDS))
    models = sorted({model for model, _, _ in cases})
    lines = [(model, *(cell((model, *kind)) for kind in KINDS)) for model in models]
    means = []
    for kind in KINDS:
        here = [value for case, value in plans.items() if case[1:] == kind]
        means.append(f"{geometric_mean(here):.2f}" if here else "-")
    return markdown_table(head, [*lines, ("*geometric mean*", *means)])


def guards_markdown(rows: Iterable[Mapping[str, str]]) -> str:
    """Table of plans, and of the backend with and without guards of modules; milliseconds."""
    ways = ("plan", "backend, unguarded", "backend")
    lines = []
    for (model, batch_size, precision), times in sorted(_medians(rows).items()):
        if times.keys() >= set(ways):
            lines.append((model, batch_size, precision, *(f"{times[way]:.2f}" for way in ways)))
    head = ("model", "batch", "precision", "plan (ms)", "backend without guards of modules (ms)", "backend (ms)")
    return markdown_table(head, lines)


def main() -> None:
    """Add files of cases, or write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="CSV of all cases")
    parser.add_argument("--add", type=Path, metavar="DIRECTORY", help="of one CSV a case, and environment.json")
    parser.add_argument("--earlier", action="store_true", help="plans of the added cases are of an earlier version")
    parser.add_argument("--guards", action="store_true", help="the table of guards")
    parser.add_argument("--write", type=Path, metavar="FILE", help="document with the table's marks")
    args = parser.parse_args()
    facts = args.table.with_suffix(".env.json")
    if args.add:
        known = read_rows(args.table) if args.table.exists() else []
        write_rows(args.table, add(known, read_directory(args.add, EARLIER if args.earlier else "")))
        facts.write_text((args.add / "environment.json").read_text())
        return
    rows = read_rows(args.table)
    if args.guards:
        made = {"guards": guards_markdown(rows)}
    else:
        made = {"expert settings": markdown(rows, json.loads(facts.read_text())["device"])}
    print_or_write(made, "scripts/expert_tables.py", args.write)


if __name__ == "__main__":
    main()
