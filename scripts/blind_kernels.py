r"""Kernels measured after a profile was made, as it had predicted them; with --write, into docs/accuracy.md.

git worktree add before 3eddb0a
PYTHONPATH=before python scripts/blind_kernels.py before/trained_models/nvidia-h200 -o docs/blind_kernels_h200.csv
python scripts/blind_kernels.py --write docs/accuracy.md
git worktree add later cc1884c
PYTHONPATH=later python scripts/blind_kernels.py later/trained_models/nvidia-h200 -o docs/float16_kernels_h200.csv
python scripts/blind_kernels.py -o docs/float16_kernels_h200.csv --section "float16 kernels" --write docs/accuracy.md

Those kernels of newer measurements are taken that the older dataset does not have. The older profile predicts them with
the program as it was then: of the package, this uses only what was there already.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from costmodel.dataset import kernel_of
from costmodel.features import group_of
from costmodel.hardware import Profile
from costmodel.predictor import Predictor
from costmodel.scores import markdown_table, percent, replace_section
from costmodel.train import trusted

HEAD = ("group", "kernels", "mean error", "median", "intervals hold", "constant")
NAMES = ("mean_error", "median_error", "held", "constant_error")
UNITS = Path("trained_models/nvidia-h200/units.parquet")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("before", type=Path, nargs="?", help="the older profile's directory; none: show the file")
parser.add_argument("--units", type=Path, default=UNITS, help="the newer measurements: a dataset of kernels")
parser.add_argument("-o", "--output", type=Path, default=Path("docs/blind_kernels_h200.csv"))
parser.add_argument("--section", default="blind kernels", help="the name of the marks between which it is put")
parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there")


def predict_new(before: Path, units: Path) -> pd.DataFrame:
    """One row a kernel that the older profile has not measured: what was measured later, and what it predicts.

    In microseconds, with the interval's ends, and beside them the constant: the bound times the geometric mean of the
    older kernels' multiples of theirs.
    """
    card = json.loads((before / "card.json").read_text(encoding="utf-8"))
    predictor = Profile(before.name, before, card).predictor
    old, found = (trusted(pd.read_parquet(path)) for path in (before / "units.parquet", units))
    new = found[~found["key"].isin(old["key"])]
    multiple = _bounded(old, predictor).groupby("group")["multiple"].agg(lambda ratios: np.exp(np.log(ratios).mean()))
    frame = _bounded(new, predictor)
    estimates = predictor.predict(frame["kernel"].tolist(), new["position"].fillna(0.5).tolist())
    for name in ("us", "low_us", "high_us"):
        frame[name] = [getattr(estimate, name) for estimate in estimates]
    frame["constant_us"] = frame["bound_us"] * frame["group"].map(multiple)
    return frame.drop(columns=["kernel"])


def _bounded(rows: pd.DataFrame, predictor: Predictor) -> pd.DataFrame:
    kernels = [
        kernel_of(graph, runner)
        for graph, runner in zip(tqdm(rows["graph"], disable=None), rows["runner"], strict=True)
    ]
    frame = pd.DataFrame({"kernel": kernels, "group": [group_of(kernel) for kernel in kernels]})
    frame["measured_us"] = rows["device_us_p50"].to_numpy()
    frame["bound_us"] = [predictor.roofline.bound_us(kernel) for kernel in kernels]
    frame["multiple"] = frame["measured_us"] / frame["bound_us"]
    return frame


def score(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a group, the largest first: relative errors of predicted times, and how often the intervals hold them."""
    measured = frame["measured_us"]
    errors = frame.assign(
        error=(frame["us"] / measured - 1).abs(),
        constant=(frame["constant_us"] / measured - 1).abs(),
        held=measured.between(frame["low_us"], frame["high_us"]),
    )
    scores = errors.groupby("group").agg(
        kernels=("error", "size"),
        mean_error=("error", "mean"),
        median_error=("error", "median"),
        held=("held", "mean"),
        constant_error=("constant", "mean"),
    )
    return scores.sort_values("kernels", ascending=False).reset_index()


def table_markdown(scores: pd.DataFrame) -> str:
    """A line a group of kernels."""
    rows = [
        [str(row["group"]), str(row["kernels"]), *(percent(row[name]) for name in NAMES)]
        for row in scores.to_dict("records")
    ]
    return markdown_table(HEAD, rows)


def marks(section: str) -> tuple[str, str]:
    """What a table stands between."""
    return f"<!-- {section}: made by scripts/blind_kernels.py -->", f"<!-- end of {section} -->"


def main(args: argparse.Namespace) -> None:
    """Predicts, or reads the scores of what was predicted, and shows them."""
    if args.before:
        score(predict_new(args.before, args.units)).to_csv(args.output, index=False, float_format="%.5g")
    text = table_markdown(pd.read_csv(args.output))
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, *marks(args.section)), encoding="utf-8")


if __name__ == "__main__":
    main(parser.parse_args())
