"""Whole models measured after a profile was made, as that had predicted them; with --write, into docs/accuracy.md.

git worktree add before 8ae8bef
PYTHONPATH=before python scripts/blind_test.py before/trained_models/nvidia-h200 -o docs/blind_h200.csv
python scripts/blind_test.py --write docs/accuracy.md
python scripts/blind_test.py trained_models/nvidia-h200 \
    --records docs/data/unseen_h200.jsonl -o docs/data/unseen_h200.csv
python scripts/blind_test.py -o docs/data/unseen_h200.csv --section unseen --write docs/accuracy.md

Of the whole-model measurements of a newer profile, those are taken whose model the older one was never told the latency
of. The older one predicts them for the host that measured them, by its probe, and with the program as it was then: of
the package, this uses only what was there already.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from markdown_tables import markdown_table, percent, replace_section
from tqdm import tqdm

from costmodel.calibration.evaluation import calibration_cases, evaluate_case, traces_of
from costmodel.calibration.models_file import read_measured
from costmodel.calibration.scores import MODES, score
from costmodel.profiles.profile import Profile

HEAD = ("mode", "models", "cases", "mean error", "median", "within 10 %", "constant")
NAMES = ("mean_error", "median_error", "within_10", "constant_mean_error")

RECORDS = Path("trained_models/nvidia-h200/models.jsonl")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("before", type=Path, nargs="?", help="the older profile's directory; none: show the file")
parser.add_argument("--records", type=Path, default=RECORDS, help="whole models that the newer profile knows")
parser.add_argument("-o", "--output", type=Path, default=Path("docs/blind_h200.csv"))
parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there")
parser.add_argument("--section", default="blind", help="the name of the marks between which it is put")


def predict_new(before: Path, records: Path) -> pd.DataFrame:
    """One row a case whose model the older profile's own measurements do not hold."""
    card = json.loads((before / "card.json").read_text(encoding="utf-8"))
    profile = Profile(before.name, before, card)
    known = {case.model for case in read_measured(before / "models.jsonl", slow=True)[0]}
    usual_us = card["host"]["probe_us"]
    rows = []
    for case in tqdm([case for case in read_measured(records)[0] if case.model not in known], disable=None):
        here = replace(case, host_speed=usual_us / case.probe_us if case.probe_us else 1.0)
        issued = traces_of(here, profile.device)
        (predicted,) = calibration_cases([here], [issued], profile.predictor)
        rows.append(evaluate_case(here, predicted, card["costs"], profile.residual_model))
    return pd.DataFrame(rows)


def table_markdown(frame: pd.DataFrame) -> str:
    """A line a mode, a library of models, and a precision if there are several: how far predicted speedups were off."""
    rows = []
    library = frame["model"].str.extract("^(.*):")[0].fillna("torchvision")
    precisions = frame.groupby("precision") if frame["precision"].nunique() > 1 else ()
    for mode in MODES:
        for name, chosen in (("all", frame), *frame.groupby(library), *precisions):
            found = score(chosen, mode, "probed_speedup")
            rows.append([f"`{mode}`", name, str(int(found["cases"])), *(percent(found[column]) for column in NAMES)])
    return markdown_table(HEAD, rows)


def marks(section: str) -> tuple[str, str]:
    """What the table stands between in docs/accuracy.md."""
    return f"<!-- {section}: made by scripts/blind_test.py -->", f"<!-- end of {section} -->"


def main(args: argparse.Namespace) -> None:
    """Predicts, or reads what was predicted, and shows the scores."""
    if args.before:
        frame = predict_new(args.before, args.records)
        frame.to_csv(args.output, index=False, float_format="%.5g")
    text = table_markdown(pd.read_csv(args.output))
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, *marks(args.section)), encoding="utf-8")


if __name__ == "__main__":
    main(parser.parse_args())
