"""Predicted and measured peak memory of twelve models.

python scripts/memory.py --device cuda -b 8 -o docs/data/memory_h200.json               measure, on a machine with a GPU
python scripts/memory.py --rows docs/data/memory_h200.json --predict -o docs/data/memory_h200.json      predict again
python scripts/memory.py --rows docs/data/memory_h200.json --write docs/memory.md            table into the document
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from markdown_tables import replace_section
from memory_rows import BEGIN, END, MODELS, Row, accuracy_table, measured_rows, predicted_again


def results(args: argparse.Namespace) -> dict[str, Any]:
    """Device, batch size and rows: measured here, or read from a file."""
    if not args.rows:
        rows = [asdict(row) for row in measured_rows(args.models, args.device, args.batch_size)]
        return {"device": args.device, "batch_size": args.batch_size, "rows": rows}
    found: dict[str, Any] = json.loads(args.rows.read_text(encoding="utf-8"))
    if args.predict:
        again = predicted_again(rows_of(found), found["device"], found["batch_size"])
        found["rows"] = [asdict(row) for row in again]
    return found


def rows_of(found: Mapping[str, Any]) -> list[Row]:
    """Rows of a file's contents."""
    return [Row(**row) for row in found["rows"]]


def main() -> None:
    """Measure or read rows, then print and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="MODEL", help="torchvision models")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="read measured rows instead of measuring")
    parser.add_argument("--predict", action="store_true", help="with --rows: predict again")
    parser.add_argument("-o", "--output", type=Path, help="write the rows to this JSON file")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    found = results(args)
    text = accuracy_table(rows_of(found), found["device"], found["batch_size"])
    print(text)
    if args.output:
        args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
