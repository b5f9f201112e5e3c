"""What ways of choosing units to measure are worth: error on shapes left out, by how many units and how long they take.

python scripts/active_sampling.py -o docs/active_sampling.json --write README.md

The profile's measured kernels are the pool, with known answers. Whole groups of shapes are left out as a test; of the
rest, each way chooses so many, a small ensemble is trained on those, and its errors on the test are told. Seconds are
what the choice takes to measure at assumed rates (SECONDS), not measured ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from scipy.sparse import block_diag, csr_array
from tqdm import tqdm

from collectors.candidates import CALLS
from collectors.cases import write_whole
from collectors.choose import Values, expected_error, likeness, order, standardised, untold
from costmodel.dataset import kernel_of, read_frame
from costmodel.features import OPTIONAL
from costmodel.hardware import load_profile
from costmodel.predictor import Array, scaled
from costmodel.scores import markdown_table, percent, replace_section
from costmodel.train import Settings, Table, drop, fit_group, fit_roofline, tabulate, trusted

SIZES = (500, 1000, 2000, 4000)
SETTINGS = Settings(hidden=(128, 64), epochs=60, ensemble=2, batch=64)
SECONDS = {"aten": 0.2, "triton": 0.6}
"""Assumed of a case, apart from the runs of its kernel; a fused kernel has to be compiled."""
TEST_SHARE = 0.2
BEGIN, END = "<!-- choosing: made by scripts/active_sampling.py -->", "<!-- end of choosing -->"

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trial:
    """One way with one seed at one size: errors on all kernels left out; `worst` is the mean of the worst group."""

    way: str
    seed: int
    units: int
    mean_error: float
    median_error: float
    worst: float
    by_group: Mapping[str, float]
    measuring_s: float
    choosing_s: float


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates of all groups in one row of numbers; group after group."""

    tables: tuple[Table, ...]
    x: tuple[Array, ...]
    like: csr_array
    seconds: Values

    def parts(self, rows: Iterable[int]) -> list[Rows]:
        """The rows by group, counted within it."""
        rows = np.array(sorted(rows), dtype=np.int64)
        begins = np.cumsum([0, *(len(one) for one in self.x)])
        return [rows[(rows >= a) & (rows < b)] - a for a, b in zip(begins, begins[1:], strict=False)]


def make_pool(tables: Mapping[str, Table]) -> Pool:
    """Everything that may be chosen."""
    x = [standardised(table.raw) for table in tables.values()]
    like = csr_array(block_diag([likeness(one) for one in x], format="csr"))
    takes = [
        SECONDS["triton" if group == "triton" else "aten"] + CALLS * table.time_us / 1e6
        for group, table in tables.items()
    ]
    return Pool(tuple(tables.values()), tuple(x), like, np.concatenate(takes))


def by_lot(pool: Pool, seed: int) -> dict[int, list[int]]:
    """Prefixes of one permutation."""
    ranked = np.random.default_rng(seed).permutation(len(pool.seconds)).tolist()
    return {size: ranked[:size] for size in SIZES}


def farthest(pool: Pool, seed: int) -> dict[int, list[int]]:
    """The furthest from all chosen next (Gonzalez, 1985), each group in proportion to its size."""
    total = len(pool.seconds)
    chosen: dict[int, list[int]] = {size: [] for size in SIZES}
    begin = 0
    for x in pool.x:
        row = int(np.random.default_rng(seed).integers(len(x)))
        path, gap = [], np.full(len(x), np.inf)
        for _ in range(SIZES[-1] * len(x) // total):
            path.append(begin + row)
            gap = np.minimum(gap, ((x - x[row]) ** 2).sum(1))
            row = int(gap.argmax())
        for size in SIZES:
            chosen[size] += path[: size * len(x) // total]
        begin += len(x)
    return chosen


def covering(pool: Pool, _seed: int) -> dict[int, list[int]]:
    """What `costmodel collect` does before anything is measured, on and on."""
    ranked = order(pool.like, np.ones(len(pool.seconds)), pool.seconds)
    return {size: ranked[:size] for size in SIZES}


def actively(pool: Pool, _seed: int) -> dict[int, list[int]]:
    """Rounds: each weighs kernels by the error that is expected from what was measured before."""
    chosen = covering(pool, 0)[SIZES[0]]
    found = {SIZES[0]: chosen}
    for size in SIZES[1:]:
        errors = []
        for table, x, rows in zip(pool.tables, pool.x, pool.parts(chosen), strict=True):
            known = len(rows) >= 30
            some = table.take(rows)
            errors.append(expected_error(x, x[rows], some.target, some.shape)[0] if known else np.ones(len(x)))
        left = np.concatenate(errors) * untold(pool.like, np.array(chosen))
        taken = set(chosen)
        ranked = [row for row in order(pool.like, left, pool.seconds) if row not in taken]
        chosen = chosen + ranked[: size - len(chosen)]
        found[size] = chosen
    return found


WAYS: Mapping[str, Callable[[Pool, int], dict[int, list[int]]]] = {
    "random": by_lot,
    "farthest point": farthest,
    "space-filling": covering,
    "active": actively,
}


def errors_of(pool: Pool, test: Sequence[Table], chosen: Sequence[int], seed: int) -> list[Values]:
    """Relative errors of each group's test rows by what is trained on the chosen ones."""
    found = []
    for table, left_out, rows in zip(pool.tables, test, pool.parts(chosen), strict=True):
        if len(rows) < 10:  # too few for networks: their mean utilisation
            predicted = np.full(len(left_out.time_us), table.take(rows).target.mean() if len(rows) else 0.0)
        else:
            model = fit_group(table.take(rows), replace(SETTINGS, seed=100 * seed))
            predicted = model.log_ratio(scaled(left_out.raw, model.mean, model.scale))[0]
        found.append(np.abs(np.exp(np.clip(predicted, -3.0, 6.0) - left_out.target) - 1))
    return found


def trials(tables: Mapping[str, Table], way: str, seed: int) -> list[Trial]:
    """One way with one seed, which decides what is left out and how networks begin."""
    rng = np.random.default_rng(seed)
    test, kept = {}, {}
    for group, table in tables.items():
        shapes = np.unique(table.shape)
        out = np.isin(table.shape, shapes[rng.random(len(shapes)) < TEST_SHARE])
        test[group], kept[group] = table.take(out), table.take(~out)
    begin = time.process_time()
    pool = make_pool(kept)
    chosen = WAYS[way](pool, seed)
    choosing_s = time.process_time() - begin
    results = []
    for size in SIZES:
        errors = errors_of(pool, list(test.values()), chosen[size], seed)
        means = {group: float(error.mean()) for group, error in zip(test, errors, strict=True)}
        every = np.concatenate(errors)
        results.append(
            Trial(
                way,
                seed,
                len(chosen[size]),
                float(every.mean()),
                float(np.median(every)),
                max(means.values()),
                means,
                float(pool.seconds[chosen[size]].sum()),
                choosing_s,
            )
        )
    return results


def _tables(hardware: str) -> dict[str, Table]:
    frame = trusted(read_frame(load_profile(hardware).path / "units.parquet")[0])
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    tables = tabulate(kernels, frame, fit_roofline(kernels, frame["device_us_p50"].tolist()), 132)
    return {group: drop(table, OPTIONAL) for group, table in tables.items()}
