"""What ways of choosing units to measure are worth: error on shapes left out, by how many units and how long they take.

python scripts/active_sampling.py -o docs/active_sampling.json --write docs/collecting.md

The profile's measured kernels are the pool, with known answers. Whole groups of shapes are left out as a test; of the
rest, each way chooses so many, a small ensemble is trained on those, and its errors on the test are told. Seconds are
what the choice takes to measure at assumed rates (SECONDS), not measured ones.
"""

from __future__ import annotations

import argparse
import itertools
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
from costmodel.train import LEAST_ROWS, Settings, Table, drop, fit_group, fit_roofline, tabulate, trusted

SIZES = (500, 1000, 2000, 4000)
SETTINGS = Settings(hidden=(128, 64), learning_rate=2e-3, epochs=60, batch=64, ensemble=2)
SECONDS = {"aten": 0.2, "triton": 0.6}
"""Assumed of a case, apart from the runs of its kernel; a fused kernel has to be compiled."""
TEST_SHARE = 0.2
TIMES_S = (150, 300, 600, 900)
BEGIN, END = "<!-- choosing: made by scripts/active_sampling.py -->", "<!-- end of choosing -->"

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trial:
    """One way with one seed at one size: errors on the kernels left out, all and by group, and what choosing took."""

    way: str
    seed: int
    units: int
    mean_error: float
    median_error: float
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
        return [rows[(rows >= a) & (rows < b)] - a for a, b in itertools.pairwise(begins)]


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
        end = begin + len(x)
        due = {size: size * end // total - size * begin // total for size in SIZES}
        row = int(np.random.default_rng(seed).integers(len(x)))
        path, gap = [], np.full(len(x), np.inf)
        for _ in range(due[SIZES[-1]]):
            path.append(begin + row)
            gap = np.minimum(gap, ((x - x[row]) ** 2).sum(1))
            row = int(gap.argmax())
        for size in SIZES:
            chosen[size] += path[: due[size]]
        begin = end
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
            known, some = len(rows) >= LEAST_ROWS, table.take(rows)
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
                round(float(every.mean()), 4),
                round(float(np.median(every)), 4),
                {group: round(mean, 4) for group, mean in means.items()},
                round(float(pool.seconds[chosen[size]].sum()), 1),
                round(choosing_s, 1),
            )
        )
    return results


def _tables(hardware: str) -> dict[str, Table]:
    frame = trusted(read_frame(load_profile(hardware).path / "units.parquet")[0])
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    tables = tabulate(kernels, frame, fit_roofline(kernels, frame["device_us_p50"].tolist()), 132)
    return {group: drop(table, OPTIONAL) for group, table in tables.items()}


def table_markdown(found: Sequence[Trial]) -> str:
    """The tables, a line a way: by units, and by assumed seconds of measuring; means over seeds."""
    by_way: dict[str, dict[int, list[Trial]]] = {}
    for one in found:
        by_way.setdefault(one.way, {}).setdefault(one.seed, []).append(one)
    sizes = sorted({one.units for one in found})
    units, seconds = [], []
    for way, by_seed in by_way.items():
        several = list(by_seed.values())
        cells = [
            _cell([(one.mean_error, _over_groups(one)) for run in several for one in run if one.units == size])
            for size in sizes
        ]
        choosing = statistics.mean(run[-1].choosing_s for run in several)
        units.append([way, *cells, f"{choosing:.0f} s"])
        seconds.append([way, *(_cell([_at(run, at) for run in several]) for at in TIMES_S)])
    by_units = markdown_table(("units", *(f"{size:,}" for size in sizes), "choosing"), units)
    by_time = markdown_table(("measuring", *(f"{at} s" for at in TIMES_S)), seconds)
    return f"{by_units}\n\n{by_time}"


def _over_groups(one: Trial) -> float:
    return statistics.mean(one.by_group.values())


def _at(run: Sequence[Trial], seconds: float) -> tuple[float, float]:
    """Errors of one seed, over all kernels and over groups, when so much time is spent; logarithms interpolated."""
    spent = np.log([one.measuring_s for one in run])
    every, groups = (
        float(np.exp(np.interp(np.log(seconds), spent, np.log(errors))))
        for errors in ([one.mean_error for one in run], [_over_groups(one) for one in run])
    )
    return every, groups


def _cell(errors: Sequence[tuple[float, float]]) -> str:
    every, groups = (statistics.mean(column) for column in zip(*errors, strict=True))
    return f"{percent(every)} ({percent(groups)})"


def main() -> None:
    """Tries every way with every seed, then writes the file and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("active_sampling.json"))
    parser.add_argument("--no-compute", action="store_true", help="only show what the file holds")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table there")
    args = parser.parse_args()
    if args.no_compute:
        found = [Trial(**row) for row in json.loads(args.output.read_text(encoding="utf-8"))]
    else:
        tables = _tables(args.hardware)
        asked = [(way, seed) for seed in range(args.seeds) for way in WAYS]
        jobs = Parallel(n_jobs=args.jobs, return_as="generator")(delayed(trials)(tables, *one) for one in asked)
        found = [one for several in tqdm(jobs, total=len(asked), unit="trial") for one in several]
        write_whole(args.output, json.dumps([asdict(one) for one in found], indent=1) + "\n")
    table = table_markdown(found)
    print(table)
    if args.write:
        args.write.write_text(replace_section(args.write, table, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
