"""Tables of predictions beside measurements under other settings of torch: autocast, matmuls in TF32, training steps.

python scripts/settings_tables.py --write docs/accuracy.md
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent, print_or_write
from training_accuracy import summary

DATA = Path(__file__).parent.parent / "docs" / "data"
HOSTS = ("uncalibrated", "calibrated")
LEAST = 10
"""Fewest kernels of a row."""
QUANTITIES = {"speedup": "speedup", "latency_ms": "latency", "peak_bytes": "peak memory"}
"""Quantity of a training step's scores -> heading."""


def settings_table(judged: pd.DataFrame) -> str:
    """A row a setting, batch size and mode: errors of speedup by host, of a constant, and of latencies.

    Args:
        judged: a row a case, mode and host, made by scripts/judge_device.py.
    """
    judged = judged.assign(
        error=(judged["predicted_speedup"] / judged["measured_speedup"] - 1).abs(),
        eager=(judged["predicted_eager_us"] / judged["measured_eager_us"] - 1).abs(),
        compiled=(judged["predicted_us"] / judged["measured_us"] - 1).abs(),
    )
    rows = []
    for (setting, batch, mode), part in judged.groupby(["arithmetic", "batch_size", "mode"]):
        by_host = {host: part[part["host"] == host] for host in HOSTS}
        errors = [f"{percent(one['error'].mean())}, {percent(one['error'].median())}" for one in by_host.values()]
        known = by_host["calibrated"]
        latencies = [percent(known[name].mean()) for name in ("eager", "compiled")]
        constant = percent(constant_error(known["measured_speedup"]))
        rows.append([f"{setting}, batch {batch}", f"`{mode}`", str(len(known)), *errors, constant, *latencies])
    hosts = (f"speedup, {host} host" for host in HOSTS)
    return markdown_table(("setting", "mode", "cases", *hosts, "constant", "eager latency", "compiled latency"), rows)


def units_table(scores: pd.DataFrame) -> str:
    """A row a group or kind of kernels and precision: errors, share in range, and share inside their intervals.

    Args:
        scores: made by scripts/score_units.py; rows of fewer than LEAST kernels are left out.
    """
    by = scores.columns[0]
    rows = [
        [
            str(row[by]),
            str(row["precision"]),
            f"{row['kernels']:,}",
            *(percent(row[name]) for name in ("mean_error", "median_error")),
            *(percent(row[name], 0) for name in ("in_range", "inside")),
        ]
        for row in scores.to_dict("records")
        if row["kernels"] >= LEAST
    ]
    return markdown_table(
        (by, "precision", "kernels", "mean error", "median error", "in range", "in its interval"), rows
    )


def constant_error(speedups: Sequence[float]) -> float:
    """Mean error of the geometric mean of the other cases as the prediction of each."""
    logs = [math.log(value) for value in speedups]
    if len(logs) < 2:
        return math.nan
    errors = [abs(math.expm1((sum(logs) - one) / (len(logs) - 1) - one)) for one in logs]
    return statistics.mean(errors)


def steps_of(file: str) -> list[dict[str, Any]]:
    """Rows of training steps in a file of docs/data, made by scripts/training_accuracy.py."""
    return [json.loads(line) for line in (DATA / file).read_text(encoding="utf-8").splitlines()]


def steps_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row a mode and quantity: errors of training steps, and of a constant."""
    scores = [score for score in summary(rows) if score["quantity"] in QUANTITIES]
    cells = [
        [
            f"`{score['mode']}`",
            QUANTITIES[score["quantity"]],
            str(score["cases"]),
            percent(score["mean_error"]),
            percent(score["median_error"]),
            "-" if score["constant"] is None else percent(score["constant"]),
        ]
        for score in scores
    ]
    return markdown_table(("mode", "quantity", "cases", "mean error", "median error", "constant"), cells)


def gains_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row a training step: measured and predicted speedup of each mode."""
    modes = ("default", "reduce-overhead")
    found = {(row["case"], row["mode"]): row for row in rows}
    cases = sorted({row["case"] for row in rows})
    cells = []
    for case in cases:
        pairs = [found.get((case, mode)) for mode in modes]
        texts = ["-" if one is None else f"{one['speedup']:.2f} ({one['predicted_speedup']:.2f})" for one in pairs]
        cells.append([case.removesuffix(" training momentum"), *texts])
    return markdown_table(("training step", *(f"`{mode}`" for mode in modes)), cells)


def main() -> None:
    """Print the tables, or write them into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put each table between its marks in this document")
    args = parser.parse_args()
    steps = steps_of("training_rows_h200.jsonl")
    texts = {
        "settings": settings_table(pd.read_csv(DATA / "judged_settings_h200.csv")),
        "settings' kernels": units_table(pd.read_csv(DATA / "settings_scores_h200.csv")),
        "autocast kernels": units_table(pd.read_csv(DATA / "cast_scores_h200.csv")),
        "attention": units_table(pd.read_csv(DATA / "attention_scores_h200.csv")),
        "training steps": steps_table(steps),
        "training gains": gains_table(steps),
        "backward kernels": units_table(pd.read_csv(DATA / "backward_scores_h200.csv")),
        "learnt training steps": steps_table(steps_of("training_rows_learnt_h200.jsonl")),
    }
    print_or_write(texts, "scripts/settings_tables.py", args.write)


if __name__ == "__main__":
    main()
