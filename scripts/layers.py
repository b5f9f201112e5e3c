"""Errors of predicted times of single layers and of a plan's regions, measured inside the running model.

    python scripts/layers.py --device cuda -o docs/data/layers_h200.csv            # measures, and adds to the file
    python scripts/layers.py --rows docs/data/layers_h200.csv                      # prints the table
    python scripts/layers.py --rows docs/data/layers_h200.csv --write docs/accuracy.md  # puts it between its marks

Runs `costmodel validate --layers all` for several models, each in a process of its own. The file keeps the predictions
made at that time; a case in the file is not measured again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
from markdown_tables import markdown_table, percent, replace_section
from rich.progress import track

BEGIN, END = "<!-- layers: made by scripts/layers.py -->", "<!-- end of layers -->"
CASES = (
    ("resnet50", 32),
    ("mobilenet_v2", 32),
    ("googlenet", 32),
    ("squeezenet1_1", 32),
    ("vit_b_16", 1),
    ("densenet121", 1),
    ("alexnet", 32),
)
OPTIONS = "--layers all --mode default --seconds 0.02 --quiet --format json"
KINDS = {"layers": "eager layers", "compiled_layers": "compiled layers", "regions": "regions of the plan"}
"""List in the JSON of a validation -> heading in the table."""
HEAD = ("layers", "models", "matched", "total time", "error by time", "median error", "largest error of a model")


def measure(model: str, batch_size: int, device: str) -> pd.DataFrame:
    """Layers of one case, a row each.

    Raises:
        subprocess.CalledProcessError: the case could not be measured; the command has printed the reason.
    """
    arguments = f"validate {model} -b {batch_size} --device {device} {OPTIONS}"
    command = (sys.executable, "-m", "costmodel", *arguments.split())
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    about = {"model": model, "batch_size": batch_size, "device": found["device"]}
    return pd.DataFrame([{**about, "of": kind, **layer} for kind in KINDS for layer in found[kind]])


def table(rows: pd.DataFrame) -> str:
    """A row a kind of layer: how many, how many have both times, and errors of those."""
    return markdown_table(HEAD, [_row(kind, found) for kind, found in rows.groupby("of", sort=False)])


def _row(kind: str, found: pd.DataFrame) -> list[str]:
    matched = found.dropna(subset=["predicted_us", "measured_us"])
    counts = [KINDS[kind], str(found["model"].nunique()), f"{len(matched)} of {len(found)}"]
    if matched.empty:
        return [*counts, *"----"]
    by_model = {model: _error_by_time(layers) for model, layers in matched.groupby("model")}
    worst = max(by_model, key=by_model.__getitem__)
    median = ((matched["predicted_us"] - matched["measured_us"]).abs() / matched["measured_us"]).median()
    bias = matched["predicted_us"].sum() / matched["measured_us"].sum() - 1
    errors = [f"{100 * bias:+.1f} %", percent(_error_by_time(matched)), percent(median)]
    return [*counts, *errors, f"{percent(by_model[worst])} ({worst})"]


def _error_by_time(matched: pd.DataFrame) -> float:
    """Sum of absolute errors over the measured total."""
    error: float = (matched["predicted_us"] - matched["measured_us"]).abs().sum() / matched["measured_us"].sum()
    return error


def main() -> None:
    """Measure the missing cases, or print the table, or write it into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/data/layers_h200.csv"))
    parser.add_argument("--rows", type=Path, help="print the table of this file; measure nothing")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    if args.rows:
        rows = pd.read_csv(args.rows)
    else:
        rows = pd.read_csv(args.output) if args.output.exists() else pd.DataFrame()
        known = set(zip(rows.get("model", ()), rows.get("batch_size", ()), strict=True))
        for model, batch_size in track([case for case in CASES if case not in known], "models"):
            rows = pd.concat([rows, measure(model, batch_size, args.device)], ignore_index=True)
            rows.round(2).to_csv(args.output, index=False)
    text = table(rows)
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
