"""How far measurements of one model differ from process to process, beside the errors of predictions.

python scripts/repeatability.py                      prints the table
python scripts/repeatability.py --write README.md    puts it between its marks there

A file of records has cases that were measured in several processes (`docs/again_h200.jsonl`). The speedup of a case is
the median over them; what is compared with it is a single process, the profile's own measurement, and the profile's
prediction with the model's family left out.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from costmodel.hardware import shipped_directory
from costmodel.measured import Measured, read_measured
from costmodel.scores import replace_section

BEGIN, END = "<!-- repeatability: begin -->", "<!-- repeatability: end -->"
WALLS = {"default": "default_us", "reduce-overhead": "graph_us"}
CASE = ["model", "batch_size", "precision", "layout"]


def speedup(case: Measured, mode: str) -> float:
    """Of a mode over eager execution, each the median of its rounds."""
    return case.medians[f"eager_us/{mode}"] / case.medians[WALLS[mode]]


def compare(again: Sequence[Measured], validation: pd.DataFrame, mode: str) -> dict[str, float]:
    """Mean absolute differences: of logarithms between two processes, else relative to a case's median.

    Args:
        again: cases, some of them several times.
        validation: the profile's measurements and predictions.
        mode: of torch.compile.
    """
    known = validation.dropna(subset=[f"measured_speedup/{mode}"]).set_index(CASE)
    together: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for case in again:
        together[case.model, case.batch_size, case.precision, case.layout].append(speedup(case, mode))
    several = {key: found for key, found in together.items() if len(found) > 1 and key in known.index}
    pairs = [abs(np.log(a / b)) for found in several.values() for a, b in itertools.combinations(found, 2)]
    middle = {key: float(np.median(found)) for key, found in several.items()}
    return {
        "cases": len(several),
        "processes": sum(map(len, several.values())),
        "two processes": float(np.mean(pairs)),
        "measured once before": _error(known[f"measured_speedup/{mode}"], middle),
        "predicted": _error(known[f"speedup/{mode}"], middle),
    }


def _error(column: pd.Series[float], middle: Mapping[tuple[object, ...], float]) -> float:
    return float(np.mean([abs(column[key] / value - 1) for key, value in middle.items()]))


def table(again: Sequence[Measured], validation: pd.DataFrame) -> str:
    """The comparison of both modes, in Markdown."""
    lines = ["| speedup of | models | processes | one process and another | measured once before | predicted |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for mode in WALLS:
        found = compare(again, validation, mode)
        shares = (f"{found[name]:.1%}" for name in ("two processes", "measured once before", "predicted"))
        lines.append(f"| `{mode}` | {found['cases']:.0f} | {found['processes']:.0f} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the table, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", type=Path, default=Path("docs/again_h200.jsonl"))
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--write", type=Path, metavar="README.md")
    args = parser.parse_args()
    again, _ = read_measured(args.again)
    text = table(again, pd.read_csv(shipped_directory() / args.hardware / "validation.csv"))
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
