"""How far predictions of single layers, and of a plan's regions, are from what is measured inside the running model.

    python scripts/layers.py --device cuda -o docs/data/layers_h200.csv            # measures, and adds to the file
    python scripts/layers.py --rows docs/data/layers_h200.csv                      # prints the table
    python scripts/layers.py --rows docs/data/layers_h200.csv --write docs/accuracy.md  # puts it between its marks

It is `costmodel validate --layers all` for several models, each in a process of its own. The predictions in the file
are those that were made then; a case that the file holds is not measured again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
from markdown_tables import replace_section

from costmodel.report.progress import tracked

BEGIN, END = "<!-- layers: begin -->", "<!-- layers: end -->"
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
"""Of what a validation's JSON has a list, and what it is called here."""


def measure(model: str, batch_size: int, device: str) -> pd.DataFrame:
    """The layers of one case, a row each.

    Raises:
        subprocess.CalledProcessError: it could not be measured; the command has said why.
    """
    asked = f"validate {model} -b {batch_size} --device {device} {OPTIONS}"
    command = (sys.executable, "-m", "costmodel", *asked.split())
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    about = {"model": model, "batch_size": batch_size, "device": found["device"]}
    return pd.DataFrame([{**about, "of": kind, **layer} for kind in KINDS for layer in found[kind]])


def table(rows: pd.DataFrame) -> str:
    """By model and kind: how many layers, of how many the time is told, and how far off predictions of those are."""
    lines = ["| model | batch | | number | told | predicted | measured | error by time | median error |"]
    lines.append("|---|--:|---|--:|--:|--:|--:|--:|--:|")
    for (model, batch_size, kind), found in rows.groupby(["model", "batch_size", "of"], sort=False):
        told = found.dropna(subset=["predicted_us", "measured_us"])
        predicted, measured = told["predicted_us"], told["measured_us"]
        times = f"{predicted.sum() / 1e3:.2f} ms | {measured.sum() / 1e3:.2f} ms" if len(told) else "- | -"
        off = (predicted - measured).abs()
        errors = f"{off.sum() / measured.sum():.1%} | {(off / measured).median():.1%}" if len(told) else "- | -"
        lines.append(f"| {model} | {batch_size} | {KINDS[kind]} | {len(found)} | {len(told)} | {times} | {errors} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, or prints the table, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/data/layers_h200.csv"))
    parser.add_argument("--rows", type=Path, help="what was measured before")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.rows:
        rows = pd.read_csv(args.rows)
    else:
        rows = pd.read_csv(args.output) if args.output.exists() else pd.DataFrame()
        known = set(zip(rows.get("model", ()), rows.get("batch_size", ()), strict=True))
        for model, batch_size in tracked([case for case in CASES if case not in known], "measuring model"):
            rows = pd.concat([rows, measure(model, batch_size, args.device)], ignore_index=True)
            rows.round(2).to_csv(args.output, index=False)
    text = table(rows)
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
