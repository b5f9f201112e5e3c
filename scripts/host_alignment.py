"""What host times of two ways of measuring told before they were aligned, and what they tell now.

    python scripts/host_alignment.py                            prints the table
    python scripts/host_alignment.py --write docs/collecting.md     puts it between its marks there

Kernels of the profile were measured again on one host (`docs/host_times_again_h200.parquet`); what the first rows told
before is told by the line along which `python -m collectors.align` brought them to the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from collectors.align import AGAIN, Line, measured_twice
from costmodel.dataset import ALIGNED, read_frame
from costmodel.hardware import shipped_directory
from costmodel.scores import markdown_table, percent, replace_section
from costmodel.train import HOST

BEGIN, END = "<!-- host times: made by scripts/host_alignment.py -->", "<!-- end of host times -->"
HEAD = ("rows", "measured again", "told less, before", "told less, aligned")


def table(frame: pd.DataFrame, again: pd.DataFrame, rows: int, line: Line) -> str:
    """By how much both parts of a dataset fall short of what is measured now: medians, the first rows' before too."""
    both = measured_twice(frame, again)
    first = both["row"] < rows
    before = both[HOST].where(~first, Line(0.0, 1.0).then_back(line).at(both[HOST].to_numpy()))
    short = [1.0 - told / both[f"{HOST}{AGAIN}"] for told in (before, both[HOST])]
    return markdown_table(
        HEAD,
        [
            [name, str(part.sum()), *(percent(float(some[part].median())) for some in short)]
            for name, part in ((f"the first {rows:,}", first), ("the others", ~first))
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--again", type=Path, default=Path("docs/host_times_again_h200.parquet"))
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    frame, about = read_frame(shipped_directory() / args.hardware / "units.parquet")
    aligned = about[ALIGNED]
    line = Line(aligned["offset"], aligned["slope"])
    text = table(frame, read_frame(args.again)[0], aligned["rows"], line)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
    else:
        print(text)
