"""Prints predicted against measured peak memory of twelve models; with --write, puts the table into README.md.

On a machine with a GPU: python scripts/memory_accuracy.py --device cuda -b 8 --write README.md
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from costmodel.memory.accuracy import BEGIN, END, MODELS, accuracy_rows, accuracy_table
from costmodel.scores import replace_section

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--models", nargs="+", default=MODELS)
parser.add_argument("-o", "--output", type=Path, help="also write the rows to this JSON file")
parser.add_argument("--write", type=Path, metavar="README.md")
args = parser.parse_args()

rows = list(accuracy_rows(args.models, args.device, args.batch_size))
text = accuracy_table(rows, args.device, args.batch_size)
print(text)
if args.output:
    args.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
if args.write:
    args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
