"""Kernels of measured shapes in a precision that few of them were measured in: matmuls in TF32, all in bfloat16.

The shapes are those of a shipped dataset, of models before random ones. The cases are also written by

    python -m collectors.workloads.other_precisions tf32 cases.jsonl --cases 6000
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.workloads import matmuls
from collectors.workloads.cases import UnitCase, distinct, write_cases
from costmodel.errors import DatasetError
from costmodel.kernels.kernel import TF32_RUNNER
from costmodel.profiles.profile import shipped_directory
from costmodel.training.dataset import TRUSTED, read_frame

if TYPE_CHECKING:
    import pandas as pd

CASES = 6000
"""Cases of a sample: about four minutes on one GPU."""
DATASET = "nvidia-h200"
"""Profile whose dataset gives the shapes."""
SHARES: Mapping[str, float] = {"model": 0.68, "random": 0.28, "attention": 0.04}
"""Shares of a sample: kernels of models, random shapes, and attention."""
ATTENTION = "scaled_dot_product_attention("
MATMULS = (" mm(", " addmm(", " bmm(", " baddbmm(")


def _to_tf32(case: UnitCase) -> UnitCase | None:
    """The same eager kernel with its matmul in TF32; None for a kernel that is no matmul of float32.

    Fused attention is none: its kernels take as long under `high` as under `highest` (docs/accuracy.md).
    """
    if case.runner != "aten" or "float16" in case.graph or "float32" not in case.graph:
        return None
    is_matmul = any(name in case.graph for name in MATMULS)
    return replace(case, runner=TF32_RUNNER) if is_matmul else None


def _to_bfloat16(case: UnitCase) -> UnitCase | None:
    """The same kernel in bfloat16; None for a kernel without float16."""
    if "bfloat16" in case.graph or "float16" not in case.graph:
        return None
    return replace(case, graph=case.graph.replace("float16", "bfloat16"))


PRECISIONS: Mapping[str, Callable[[UnitCase], UnitCase | None]] = {"tf32": _to_tf32, "bfloat16": _to_bfloat16}
"""Workloads by name, each with the twin of a measured case."""


def sample(precision: str, count: int, seed: int, path: Path | None = None) -> list[UnitCase]:
    """Twins of measured kernels, shuffled so that a sweep that is cut short has some of each.

    Args:
        precision: key of PRECISIONS.
        count: number of cases.
        seed: seed of the choice.
        path: dataset of units; default: the one of a shipped profile, and random matmuls where it is not installed.

    Raises:
        DatasetError: the given dataset cannot be read.
    """
    shipped = shipped_directory() / DATASET / "units.parquet"
    if path is None and not shipped.is_file():
        return [twin for _, twin in zip(range(count), synthetic(precision), strict=False)]
    frame, _ = read_frame(path or shipped)
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    strata: dict[str, list[UnitCase]] = {name: [] for name in SHARES}
    for case in distinct(_twins(frame, precision)):
        strata[_stratum(case)].append(case)
    chosen: list[UnitCase] = []
    for name, cases in strata.items():
        rng.shuffle(cases)
        chosen += cases[: round(SHARES[name] * count)]
    rng.shuffle(chosen)
    return chosen


def synthetic(precision: str) -> Iterator[UnitCase]:
    """Twins of random matmuls."""
    for case in matmuls.sample(10 * CASES, seed=1):
        if (twin := PRECISIONS[precision](case)) is not None:
            yield twin


def _twins(frame: pd.DataFrame, precision: str) -> Iterator[UnitCase]:
    rows = frame[(frame["status"] == TRUSTED) & (frame["unit"].fillna("") == "")]
    wanted = rows["graph"].str.contains("float16" if precision == "bfloat16" else "mm(", regex=False)
    wanted |= rows["graph"].str.contains(ATTENTION, regex=False)
    names = ("graph", "runner", "source", "position")
    for graph, runner, source, position in rows[wanted][list(names)].itertuples(index=False):
        if runner not in ("aten", "inductor"):
            continue
        place = None if position != position else float(position)  # noqa: PLR0124 - NaN
        if (twin := PRECISIONS[precision](UnitCase(graph, runner, position=place, source=source or ""))) is not None:
            yield twin


def _stratum(case: UnitCase) -> str:
    if ATTENTION in case.graph:
        return "attention"
    return "model" if "@" in case.source else "random"


def main() -> None:
    """Write a sample to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("cases", type=Path, help="file to write, JSON lines")
    parser.add_argument("--cases", type=int, default=CASES, dest="count", help="number of cases")
    parser.add_argument("--dataset", type=Path, help="dataset of units; default: the shipped one")
    args = parser.parse_args()
    try:
        write_cases(args.cases, sample(args.precision, args.count, seed=11, path=args.dataset))
    except DatasetError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
