"""What modules of each class take the host in eager execution, in the models that call them, as one table.

python scripts/module_times.py                             prints it
python scripts/module_times.py --write docs/accuracy.md    puts it between its marks there
python scripts/module_times.py --gather models.jsonl       makes the rows of what `collectors.repeats --modules` kept

A row is a module in a model in a process (`docs/module_times_h200.parquet`).
Times are for a host of one speed, as the probe of each process tells. A model counts once, with the median of its
modules of a class; short and long passes are the third of the models that take the host least, and most.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from costmodel.hardware import load_profile
from costmodel.scores import markdown_table, replace_section

BEGIN, END = "<!-- modules: made by scripts/module_times.py -->", "<!-- end of modules -->"
SHOWN = 18
HEAD = ("class", "models", "calls", "host time", "in short passes", "in long passes")
COLUMNS = ("model", "process", "probe_us", "module", "class", "own_us")


def gather(records: Path) -> pd.DataFrame:
    """A row a module of each record that tells of its modules."""
    lines = map(json.loads, records.read_text(encoding="utf-8").splitlines())
    found = [
        (one["model"], one["process"], one["probe_us"], name, kind, own_us)
        for one in lines
        for name, (kind, own_us) in one.get("modules_us", {}).items()
    ]
    return pd.DataFrame(found, columns=list(COLUMNS))


def by_class(frame: pd.DataFrame, usual_us: float) -> pd.DataFrame:
    """One row a class that some ten models call: models, calls a pass of all, and host times, microseconds.

    Args:
        frame: rows of COLUMNS.
        usual_us: what the probe takes on the host that times are for.
    """
    at_usual = frame.assign(us=frame["own_us"] * usual_us / frame["probe_us"])
    keys = ["model", "class", "module"]
    modules = at_usual.groupby(keys, observed=True)["us"].median().reset_index()
    rank = modules.groupby("model", observed=True)["us"].sum().rank(pct=True)
    cells = modules.groupby(["class", "model"], observed=True)["us"].agg(["median", "size"]).reset_index()
    place = cells["model"].astype(str).map(rank.rename(str))
    rows = []
    for name, found in cells.groupby("class", observed=True):
        short, long = (found["median"][mask.loc[found.index]] for mask in (place <= 1 / 3, place > 2 / 3))
        own = {"host_us": found["median"].median(), "short_us": short.median(), "long_us": long.median()}
        rows.append({"class": name, "models": len(found), "calls": int(found["size"].sum()), **own})
    return pd.DataFrame(rows).sort_values("calls", ascending=False, ignore_index=True)


def table(frame: pd.DataFrame, usual_us: float) -> str:
    """The classes called most by ten models and more, as Markdown."""
    rows = by_class(frame, usual_us)
    shown = rows[rows["models"] >= 10].head(SHOWN)
    cells = [
        [f"`{row['class']}`", str(row["models"]), f"{row['calls']:,}"]
        + [f"{row[name]:.1f} us" for name in ("host_us", "short_us", "long_us")]
        for row in shown.to_dict("records")
    ]
    return markdown_table(HEAD, cells)


def main() -> None:
    """Prints the table, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("docs/module_times_h200.parquet"))
    parser.add_argument("--gather", type=Path, metavar="RECORDS", help="make the rows anew")
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.gather:
        gather(args.gather).to_parquet(args.rows)
    text = table(pd.read_parquet(args.rows), load_profile(args.hardware).card["host"]["probe_us"])
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
