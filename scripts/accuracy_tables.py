"""Prints a profile's accuracy tables; with --write, puts them into README.md."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from costmodel.hardware import load_profile
from costmodel.scores import accuracy_markdown, replace_section

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hardware", default="nvidia-h200")
parser.add_argument("--write", type=Path, metavar="README.md")
args = parser.parse_args()

profile = load_profile(args.hardware)
units = json.loads((profile.path / "units_scores.json").read_text(encoding="utf-8"))
text = accuracy_markdown(profile.card, units)
if args.write:
    args.write.write_text(replace_section(args.write, text), encoding="utf-8")
else:
    print(text)
