"""Predictions for models measured after a profile was trained, which the profile has no latency of.

python scripts/blind_test.py trained_models/nvidia-h200 --records docs/data/unseen_h200.jsonl     predict, then print
python scripts/blind_test.py --write docs/accuracy.md                         the table of the file, into the document

To score an older version, run with PYTHONPATH set to its checkout and give the profile's directory in it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from accuracy_tables import CALIBRATED, MODES, UNCALIBRATED, error_cell
from markdown_tables import markdown_table, percent, replace_section
from tqdm import tqdm

from costmodel.calibration.evaluation import calibration_cases, evaluate_case, programs, score
from costmodel.calibration.records import read_measured
from costmodel.profiles.profile import Profile

HEAD = ("mode", "cases", "uncalibrated host", "calibrated host", "baseline", "measurements")
RECORDS, OUTPUT = Path("docs/data/unseen_h200.jsonl"), Path("docs/data/unseen_h200.csv")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("profile", type=Path, nargs="?", help="directory of the profile; none: read the output file")
parser.add_argument("--records", type=Path, default=RECORDS, help="measurements of whole models")
parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="predictions beside measurements, as CSV")
parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
parser.add_argument("--section", default="unseen", help="name in the marks")


def predict_new(directory: Path, records: Path) -> pd.DataFrame:
    """Predicted beside measured, a row a measurement of a model that is not among the profile's own measurements."""
    card = json.loads((directory / "card.json").read_text(encoding="utf-8"))
    profile = Profile(directory.name, directory, card)
    known = {case.model for case in read_measured(directory / "models.jsonl", slow=True)[0]}
    median_us = card["host"]["probe_us"]
    rows = []
    for case in tqdm([case for case in read_measured(records)[0] if case.model not in known], disable=None):
        here = replace(case, host_speed=median_us / case.probe_us if case.probe_us else 1.0)
        issued = programs(here)
        (predicted,) = calibration_cases([here], [issued], profile.predictor)
        rows.append(evaluate_case(here, predicted, card["costs"], profile.discrepancy))
    return pd.DataFrame(rows)


def table_markdown(frame: pd.DataFrame) -> str:
    """A row a mode and precision: errors of predicted speedups beside the baseline's."""
    rows = []
    for mode in MODES:
        for name, chosen in (("all", frame), *frame.groupby("precision")):
            uncalibrated, calibrated = (score(chosen, mode, column) for column in (UNCALIBRATED, CALIBRATED))
            errors = [error_cell(uncalibrated), error_cell(calibrated)]
            baseline = percent(calibrated["constant_mean_error"])
            rows.append([f"`{mode}`", name, *errors, baseline, f"{calibrated['cases']:.0f}"])
    return markdown_table(HEAD, rows)


def marks(section: str) -> tuple[str, str]:
    """Marks around the table in the document."""
    return f"<!-- {section}: made by scripts/blind_test.py -->", f"<!-- end of {section} -->"


def main(args: argparse.Namespace) -> None:
    """Predict, or read earlier predictions, and print or write their scores."""
    if args.profile:
        frame = predict_new(args.profile, args.records)
        frame.to_csv(args.output, index=False, float_format="%.5g")
    text = table_markdown(pd.read_csv(args.output))
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, *marks(args.section)), encoding="utf-8")


if __name__ == "__main__":
    main(parser.parse_args())
