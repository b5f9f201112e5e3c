"""Prints how well speedups of whole convolution units are predicted, and what features are worth (an ablation)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from costmodel.ablation import ablate
from costmodel.dataset import read_frame
from costmodel.hardware import load_profile
from costmodel.train import THOROUGH, Settings
from costmodel.unit_speedup import compare, unseeing

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hardware", default="nvidia-h200")
parser.add_argument("-o", "--output", type=Path, help="also write the tables to this JSON file")
args = parser.parse_args()

profile = load_profile(args.hardware)
frame, _ = read_frame(profile.path / "units.parquet")
tables = {
    "unit_speedup": compare(frame, unseeing(frame, profile.predictor, THOROUGH), Settings(hidden=(32,), ensemble=4)),
    "ablation": ablate(frame, profile.predictor, Settings(ensemble=1, epochs=60)),
}
for name, rows in tables.items():
    print(name)
    for row in rows:
        cells = (f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print("  ", "  ".join(cells))
if args.output:
    args.output.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
