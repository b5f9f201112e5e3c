"""Coverage of the intervals of `costmodel compare`, on pairs of models that one machine measured.

python scripts/compared_intervals.py --write docs/comparing.md
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from accuracy_tables import LATENCIES, MODES, of_setting
from markdown_tables import markdown_table, percent, replace_section

from costmodel.comparison.change import FAMILY_CORRELATION
from costmodel.profiles.profile import load_profile

BEGIN, END = "<!-- compared: made by scripts/compared_intervals.py -->", "<!-- end of compared -->"
HEAD = ("figure", "pairs of one family", "covered", "pairs of two families", "covered")
LEVEL = 0.9


def table(validation: pd.DataFrame, correlation: float = FAMILY_CORRELATION) -> str:
    """Share of measured ratios inside their intervals, by figure; a row a figure.

    Args:
        validation: measured models with their predictions for a calibrated host, each by a profile that has seen no
            model of its family.
        correlation: correlation of the two errors that the intervals assume.
    """
    chosen = of_setting(validation, "float32", (1, 32))
    columns = {f"latency, `{mode}`": f"{name}_us" for mode, name in LATENCIES.items()}
    columns |= {f"speedup, `{mode}`": f"speedup/{mode}" for mode in MODES}
    rows = []
    for name, column in columns.items():
        errors = chosen.assign(error=np.log(chosen[f"measured_{column}"] / chosen[f"probed_{column}"]))
        errors = errors.dropna(subset=["error"])
        width = errors["error"].abs().quantile(LEVEL) * math.sqrt(2.0 * (1.0 - correlation))
        pairs = pd.DataFrame(_pairs(errors), columns=["one_family", "inside"]).assign(
            inside=lambda found, width=width: found["inside"].abs() <= width
        )
        cells = (pairs[pairs["one_family"] == same]["inside"] for same in (True, False))
        rows.append([name, *(text for cell in cells for text in (f"{len(cell):,}", percent(cell.mean(), 0)))])
    return markdown_table(HEAD, rows)


def _pairs(errors: pd.DataFrame) -> Iterator[tuple[bool, float]]:
    """Whether two models are of one family, and the difference of their errors; pairs of a machine and batch size."""
    for _, group in errors.groupby(["environment", "batch_size"]):
        models = group.drop_duplicates("model")
        for first, second in itertools.combinations(zip(models["family"], models["error"], strict=True), 2):
            yield first[0] == second[0], first[1] - second[1]


def main() -> None:
    """Print the table, or write it into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    text = table(pd.read_csv(load_profile("nvidia-h200").path / "validation.csv"))
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
