"""Prints a profile's accuracy tables, and that of the CPUs that ship; with --write, puts them into docs/accuracy.md."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

from markdown_tables import CPU_BEGIN, CPU_END, accuracy_markdown, cpu_markdown, replace_section
from plan_tables import OTHER_BEGIN, OTHER_END, other_machine_markdown

from costmodel.profiles.profile import list_profiles, load_profile, shipped_directory

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hardware", default="nvidia-h200")
parser.add_argument(
    "--other", type=Path, default=Path("docs/data/compared_h200.jsonl"), help="measured on another machine"
)
parser.add_argument("--write", type=Path, metavar="FILE")
args = parser.parse_args()

profile = load_profile(args.hardware)
text = accuracy_markdown(profile.card)
records = [json.loads(line) for line in args.other.read_text(encoding="utf-8").splitlines()]
with (profile.path / "validation.csv").open(encoding="utf-8", newline="") as file:
    other = other_machine_markdown(records, list(csv.DictReader(file)))
shipped = [load_profile(name) for name in list_profiles() if (shipped_directory() / name).is_dir()]
cpus = cpu_markdown([one.card for one in shipped if one.on_cpu])
if args.write:
    args.write.write_text(replace_section(args.write, cpus, CPU_BEGIN, CPU_END), encoding="utf-8")
    args.write.write_text(replace_section(args.write, text), encoding="utf-8")
    args.write.write_text(replace_section(args.write, other, OTHER_BEGIN, OTHER_END), encoding="utf-8")
else:
    print(text, other, cpus, sep="\n\n")
