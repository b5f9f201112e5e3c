"""Prints a profile's accuracy tables, and that of CPUs' profiles; with --write, puts them into README.md."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

from costmodel.comparison import OTHER_BEGIN, OTHER_END, other_machine_markdown
from costmodel.hardware import load_profile
from costmodel.scores import CPU_BEGIN, CPU_END, accuracy_markdown, cpu_markdown, replace_section

CPUS = ("amd-epyc-2-threads", "intel-xeon-16-threads")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hardware", default="nvidia-h200")
parser.add_argument("--other", type=Path, default=Path("docs/compared_h200.jsonl"), help="measured on another machine")
parser.add_argument("--cpu", action="append", default=[], help="a CPU's profile; default: those that ship")
parser.add_argument("--write", type=Path, metavar="README.md")
args = parser.parse_args()

profile = load_profile(args.hardware)
units = json.loads((profile.path / "units_scores.json").read_text(encoding="utf-8"))
text = accuracy_markdown(profile.card, units)
records = [json.loads(line) for line in args.other.read_text(encoding="utf-8").splitlines()]
with (profile.path / "validation.csv").open(encoding="utf-8", newline="") as file:
    other = other_machine_markdown(records, list(csv.DictReader(file)))
cpus = cpu_markdown([load_profile(name).card for name in args.cpu or CPUS])
if args.write:
    args.write.write_text(replace_section(args.write, cpus, CPU_BEGIN, CPU_END), encoding="utf-8")
    args.write.write_text(replace_section(args.write, text), encoding="utf-8")
    args.write.write_text(replace_section(args.write, other, OTHER_BEGIN, OTHER_END), encoding="utf-8")
else:
    print(text, other, cpus, sep="\n\n")
