"""How far measurements of one model differ from process to process, beside the errors of predictions.

python scripts/repeatability.py                      prints the tables
python scripts/repeatability.py --write docs/accuracy.md    puts them between their marks there

A file of records has cases that were measured in several processes, on several machines (`docs/again_h200.jsonl`).
Processes of one machine are compared with one another; the profile's own measurement, and its prediction with the
model's family left out, with the median speedup of all. A process whose rounds differ widely is left out. The second
table is of the profile's own records that name their process (`collectors.repeats`).
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
from costmodel.measured import WALLS, Measured, read_measured
from costmodel.scores import replace_section

BEGIN, END = "<!-- repeatability: begin -->", "<!-- repeatability: end -->"
ALONE_BEGIN, ALONE_END = "<!-- processes: begin -->", "<!-- processes: end -->"
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
    measured = validation.dropna(subset=[f"measured_speedup/{mode}"]).drop_duplicates(CASE)  # the first machine's
    known = measured.set_index(CASE)
    together: dict[tuple[object, ...], list[tuple[int, float]]] = defaultdict(list)
    for case in again:
        if WALLS[mode] in case.medians:
            key = case.model, case.batch_size, case.precision, case.layout
            together[key].append((case.environment, speedup(case, mode)))
    several = {key: found for key, found in together.items() if len(found) > 1 and key in known.index}
    pairs = [
        abs(np.log(one / other))
        for found in several.values()
        for (machine, one), (its, other) in itertools.combinations(found, 2)
        if machine == its
    ]
    middle = {key: float(np.median([ratio for _, ratio in found])) for key, found in several.items()}
    return {
        "cases": len(several),
        "processes": sum(map(len, several.values())),
        "two processes": float(np.mean(pairs)),
        "two processes, median": float(np.median(pairs)),
        "measured once before": _error(known[f"measured_speedup/{mode}"], middle),
        "predicted": _error(known[f"speedup/{mode}"], middle),
    }


def _error(column: pd.Series[float], middle: Mapping[tuple[object, ...], float]) -> float:
    return float(np.mean([abs(column[key] / value - 1) for key, value in middle.items()]))


def table(again: Sequence[Measured], validation: pd.DataFrame) -> str:
    """The comparison of both modes, in Markdown."""
    lines = ["| speedup of | cases | measurements | two processes | their median | measured before | predicted |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    for mode in WALLS:
        found = compare(again, validation, mode)
        columns = ("two processes", "two processes, median", "measured once before", "predicted")
        shares = (f"{found[name]:.1%}" for name in columns)
        lines.append(f"| `{mode}` | {found['cases']:.0f} | {found['processes']:.0f} | {' | '.join(shares)} |")
    return "\n".join(lines)


def process_table(cases: Sequence[Measured]) -> str:
    """How far two processes of a case are apart in eager latency, as measured and on hosts of equal speed, in Markdown.

    Args:
        cases: of which those count that name their process.
    """
    lines = ["| eager latency | batch | pairs of processes | mean difference | median |", "|---|--:|--:|--:|--:|"]
    known = [case for case in cases if "process" in case.record and "eager_us" in case.medians]
    for batch in sorted({case.batch_size for case in known}):
        for way in ("as measured", "over a reference pass"):
            alike: dict[object, list[float]] = defaultdict(list)
            for case in (case for case in known if case.batch_size == batch):
                over = case.host_speed if way != "as measured" else 1.0
                alike[case.key].append(case.medians["eager_us"] * over)
            pairs = [abs(np.log(a / b)) for found in alike.values() for a, b in itertools.combinations(found, 2)]
            if pairs:
                lines.append(f"| {way} | {batch} | {len(pairs)} | {np.mean(pairs):.1%} | {np.median(pairs):.1%} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the tables, or writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", type=Path, default=Path("docs/again_h200.jsonl"))
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    again, _ = read_measured(args.again, slow=True)
    text = table(again, pd.read_csv(shipped_directory() / args.hardware / "validation.csv"))
    processes, _ = read_measured(shipped_directory() / args.hardware / "models.jsonl", slow=True)
    alone = process_table(processes)
    print(text, alone, sep="\n\n")
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
        args.write.write_text(replace_section(args.write, alone, ALONE_BEGIN, ALONE_END), encoding="utf-8")


if __name__ == "__main__":
    main()
