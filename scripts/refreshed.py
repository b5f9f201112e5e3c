"""Errors of a profile before and after a refresh, from the summaries that `costmodel train` wrote.

python scripts/refreshed.py same/card.json newer/card.json -o docs/data/refresh_cpu.csv --write docs/new-hardware.md

Each summary is of a profile after `costmodel collect --refresh` and `costmodel train`. A refresh under the release of
torch that the profile was measured with shows what else has changed since. Kernels are held out from what is learnt.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent, replace_section

WAYS = {"base": "before", "base scaled": "one factor a group", "predictor": "refreshed"}
"""Way of predicting a kernel in a card's scores -> heading."""
LEAST = 25
"""Fewest kernels of a group in the table."""
MARKS = "<!-- refresh: made by scripts/refreshed.py -->", "<!-- end of refresh -->"


def rows_of(card: Mapping[str, Any]) -> pd.DataFrame:
    """A row a group and way of a refreshed profile's summary, with the releases of torch before and now."""
    now = card["environment"]["torch"]
    before = card["base"]["changed"].get("torch", [now])[0]
    rows = [score for score in card["scores"]["kernels"] if score["way"] in WAYS]
    columns = ["group", "way", "kernels", "mean_error"]
    return pd.DataFrame(rows)[columns].assign(before=release(before), now=release(now))


def release(version: str) -> str:
    """Version without the build: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]


def refresh_table(rows: pd.DataFrame) -> str:
    """A row a pair of releases and group: mean relative errors by way."""
    head = ("torch", "group", "kernels", *WAYS.values())
    found = []
    for (before, now, group), part in rows[rows["kernels"] >= LEAST].groupby(["before", "now", "group"], sort=False):
        errors = part.set_index("way")["mean_error"]
        releases = f"{before}, as before" if before == now else f"{now}, {before} before"
        found.append([releases, str(group), f"{part['kernels'].iloc[0]:,}", *(percent(errors[way]) for way in WAYS)])
    return markdown_table(head, found)


def main() -> None:
    """Write the rows of the summaries, and the table of the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cards", type=Path, nargs="*", metavar="CARD", help="summaries; none: the rows that OUTPUT has")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    if args.cards:
        rows = pd.concat([rows_of(json.loads(card.read_text(encoding="utf-8"))) for card in args.cards])
        rows.to_csv(args.output, index=False)
    table = refresh_table(pd.read_csv(args.output))
    if args.write is None:
        print(table)
    else:
        args.write.write_text(replace_section(args.write, table, *MARKS), encoding="utf-8")


if __name__ == "__main__":
    main()
