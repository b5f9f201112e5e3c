"""Predicted against measured peak memory of twelve models.

python scripts/memory.py --device cuda -b 8 -o docs/data/memory_h200.json      measures, on a machine with a GPU
python scripts/memory.py --rows docs/data/memory_h200.json --write docs/memory.md   what was measured, on that page
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from markdown_tables import replace_section
from memory_rows import BEGIN, END, MODELS, Row, accuracy_rows, accuracy_table, predicted_anew

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--models", nargs="+", default=MODELS)
parser.add_argument("--rows", type=Path, help="rows measured before; only the prediction is made anew")
parser.add_argument("-o", "--output", type=Path, help="write the rows to this JSON file")
parser.add_argument("--write", type=Path, metavar="FILE")
args = parser.parse_args()

if args.rows:
    about = json.loads(args.rows.read_text(encoding="utf-8"))
    known = [Row(**row) for row in about["rows"]]
    about["rows"] = [asdict(row) for row in predicted_anew(known, about["device"], about["batch_size"])]
else:
    rows = [asdict(row) for row in accuracy_rows(args.models, args.device, args.batch_size)]
    about = {"device": args.device, "batch_size": args.batch_size, "rows": rows}
text = accuracy_table([Row(**row) for row in about["rows"]], about["device"], about["batch_size"])
print(text)
if args.output:
    args.output.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
if args.write:
    args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
