"""Models that `costmodel predict` covers; an interrupted run resumes from its table.

python scripts/model_coverage.py torchvision timm hf --jobs 2 -o coverage.csv
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coverage_survey import OK, SOURCES, TIMEOUT_SECONDS, names_of, one_of_each_family, survey, totals, write_table
from tqdm import tqdm

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="+", metavar="MODEL", help=f"a source ({', '.join(SOURCES)}) or a model")
parser.add_argument("--families", action="store_true", help="only the first model of each timm family")
parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models at once (default: 1)")
parser.add_argument("--timeout", type=float, default=TIMEOUT_SECONDS, metavar="SECONDS", help="for one model")
parser.add_argument("-o", "--output", type=Path, default=Path("coverage.csv"), help="the table, one line a model")
parser.add_argument("--rest", type=Path, metavar="FILE", help="also write the models that are not ok to this table")


def main(args: argparse.Namespace) -> None:
    """Survey the models; print those that are not covered, with the reason."""
    specs = [spec for item in args.models for spec in (names_of(item) if item in SOURCES else (item,))]
    specs = list(one_of_each_family(specs)) if args.families else specs
    with tqdm(total=len(specs), unit="model", disable=not sys.stderr.isatty()) as bar:
        outcomes = survey(specs, args.output, args.jobs, args.timeout, lambda _: bar.update())
    for outcome in outcomes:
        if outcome.status != OK:
            print(f"{outcome.status:12}{outcome.model}: {outcome.reason}")
    if args.rest:
        write_table(args.rest, [outcome for outcome in outcomes if outcome.status != OK])
    counts = "  ".join(f"{status} {count}" for status, count in totals(outcomes).items())
    print(f"{len(outcomes)} models: {counts}")


if __name__ == "__main__":  # child processes import this file
    main(parser.parse_args())
