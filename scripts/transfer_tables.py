"""Tables of a profile that was learnt as the difference to another device's: its learning curve, and held-out kernels.

python scripts/transfer_tables.py --write docs/accuracy.md
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent, replace_section

from costmodel.profiles.profile import load_profile

CURVE = Path(__file__).parent.parent / "docs" / "data" / "transfer_h100.csv"
WAYS = {"predictor": "transferred", "base": "base alone", "base scaled": "base scaled"}
"""Way of predicting a kernel in a card's scores -> heading."""
IN_BASE = "rare_"
"""Prefix of the groups that the base of `nvidia-h100` has from this same H100: errors there are no scores."""


def kernel_table(scores: Sequence[Mapping[str, Any]]) -> str:
    """A row a group of kernels: mean relative errors by way, of the groups that the base measured on its own device."""
    groups = dict.fromkeys(score["group"] for score in scores if not score["group"].startswith(IN_BASE))
    errors = {(score["group"], score["way"]): score for score in scores}
    rows = [
        [
            group,
            f"{errors[group, 'predictor']['kernels']:,}",
            *(percent(errors[group, way]["mean_error"]) for way in WAYS),
        ]
        for group in groups
    ]
    return markdown_table(("group", "kernels", *WAYS.values()), rows)


def curve_table(curve: pd.DataFrame) -> str:
    """A row a group and kind of kernels: mean relative errors of the base, and transferred by minutes of measuring."""
    times = sorted(curve["minutes"].unique())
    columns = ["group", "kernels", "learnt", "tested", "base alone", "base scaled"]
    columns += [f"{minutes:g} minutes" for minutes in times]
    rows = []
    for (group, kind), points in curve.groupby(["group", "kernels"], sort=False):
        by_time = points.set_index("minutes")
        last = by_time.loc[times[-1]]
        errors = [last["base alone"], last["base scaled"], *(by_time.loc[time, "transferred"] for time in times)]
        rows.append([str(group), str(kind), f"{last['learnt']:,}", f"{last['tested']:,}", *map(percent, errors)])
    return markdown_table(columns, rows)


def main() -> None:
    """Print the tables, or write them into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="nvidia-h100", help="profile with a base")
    parser.add_argument("--curve", type=Path, default=CURVE, help="learning curve, made by scripts/transfer_curve.py")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put each table between its marks in this document")
    args = parser.parse_args()
    texts = {
        "transferred kernels": kernel_table(load_profile(args.hardware).card["scores"]["kernels"]),
        "learning curve": curve_table(pd.read_csv(args.curve)),
    }
    for section, text in texts.items():
        if args.write is None:
            print(f"{text}\n")
            continue
        marks = (f"<!-- {section}: made by scripts/transfer_tables.py -->", f"<!-- end of {section} -->")
        args.write.write_text(replace_section(args.write, text, *marks), encoding="utf-8")


if __name__ == "__main__":
    main()
