"""Fit of compile time to measured compilations: seconds by cause, intervals and errors on held-out families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.calibration.compile_records import CompileRecord
from costmodel.calibration.intervals import quantile_interval
from costmodel.timeline.compile_time import COLD, WARM, compile_us

CAUSES: Mapping[str, tuple[str, ...]] = {
    COLD: ("start", "parameter", "fused_operator", "further_graph"),
    WARM: ("start", "parameter", "grouped_convolution", "further_graph"),
}
"""Counts that each table has costs of. Of counts that occur together only those that predict held-out families best are
fitted: parameters stand for the layers, whose operators are traced and guarded."""
OUTLIER = 0.1
"""Relative error beyond which the loss is linear: two cold compilations of one model differ by about as much."""
ROUNDS = 20
"""Rounds of reweighting."""
LEAST_RECORDS = 10
"""Fewest records that costs are fitted to."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CompileFit:
    """Costs of compiling, and how they do on held-out families.

    Attributes:
        costs: microseconds by cause, for each table.
        intervals: half-widths of 90 % intervals of the logarithm by mode, for each table.
        rows: a row a model, mode and table: measured, predicted with its family held out, and the baselines'.
    """

    costs: dict[str, dict[str, float]]
    intervals: dict[str, dict[str, float]]
    rows: list[dict[str, Any]]


def fit_compile_times(records: Sequence[CompileRecord]) -> CompileFit:
    """Fit cold and warm compile time; a table with fewer than LEAST_RECORDS records is left out."""
    costs: dict[str, dict[str, float]] = {}
    intervals: dict[str, dict[str, float]] = {}
    rows: list[dict[str, Any]] = []
    for table, causes in CAUSES.items():
        known = [record for record in records if record.seconds(table)]
        if len(known) < LEAST_RECORDS:
            continue
        seconds = np.array([record.seconds(table) for record in known], dtype=float)
        counts = [record.counts for record in known]
        models, families = [record.model for record in known], [record.family for record in known]
        costs[table] = nonnegative_costs(counts, seconds, causes, models)
        predicted = held_out_s(counts, seconds, causes, models, families)
        found = _rows(table, known, seconds, predicted, families)
        rows += found
        logs, modes = np.log(predicted / seconds), np.array([record.mode for record in known])
        intervals[table] = {str(mode): quantile_interval(logs[modes == mode]) for mode in np.unique(modes)}
    return CompileFit(costs, intervals, rows)


def nonnegative_costs(
    counts: Sequence[Mapping[str, float]], seconds: Array, causes: Sequence[str], models: Sequence[str]
) -> dict[str, float]:
    """Costs of at least 0, microseconds, for which counts times costs are near the measured seconds.

    Minimises the sum of Huber(relative error) by non-negative least squares with reweighting; a model counts once,
    however often it was measured.

    Args:
        counts: counts by cause, one mapping a measurement.
        seconds: measured seconds.
        causes: counts that have a cost.
        models: name of the model of each measurement.
    """
    from sklearn.linear_model import LinearRegression

    design = np.array([[row.get(cause, 0.0) for cause in causes] for row in counts]) / seconds[:, None]
    share = np.array([1.0 / models.count(model) for model in models])
    weight = share
    for _ in range(ROUNDS):
        line = LinearRegression(fit_intercept=False, positive=True).fit(design, np.ones(len(design)), weight)
        error = np.abs(line.predict(design) - 1.0)
        weight = share / np.maximum(1.0, error / OUTLIER)
    return {cause: float(cost) * 1e6 for cause, cost in zip(causes, line.coef_, strict=True)}


def held_out_s(
    counts: Sequence[Mapping[str, float]],
    seconds: Array,
    causes: Sequence[str],
    models: Sequence[str],
    families: Sequence[str],
) -> Array:
    """Seconds of each measurement, predicted by costs that are fitted to the other families."""
    predicted = np.full(len(seconds), np.nan)
    for family in set(families):
        inside = np.array([one == family for one in families])
        others = np.flatnonzero(~inside)
        rows, names = [counts[int(index)] for index in others], [models[int(index)] for index in others]
        costs = nonnegative_costs(rows, seconds[others], causes, names)
        for index in np.flatnonzero(inside):
            predicted[index] = compile_us(counts[int(index)], costs) / 1e6
    return predicted


def _rows(
    table: str, records: Sequence[CompileRecord], seconds: Array, predicted: Array, families: Sequence[str]
) -> list[dict[str, Any]]:
    """A row a model and mode; several measurements of one count by their median."""
    operators = np.array([record.counts["operator"] for record in records])
    by_case: dict[tuple[str, str], list[int]] = {}
    for index, record in enumerate(records):
        by_case.setdefault((record.model, record.mode), []).append(index)
    rows = []
    for (model, mode), places in by_case.items():
        first = records[places[0]]
        others = np.array([family != first.family for family in families])
        rows.append(
            {
                "model": model,
                "family": first.family,
                "mode": mode,
                "cache": "cold" if table == COLD else "warm",
                "graphs": first.graphs,
                "processes": len(places),
                "measured_s": float(np.median(seconds[places])),
                "predicted_s": float(predicted[places[0]]),
                "constant_s": float(np.exp(np.log(seconds[others]).mean())),
                "by_operators_s": float(operators[places[0]] * np.median(seconds[others] / operators[others])),
            }
        )
    return rows


def score_compile_times(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Errors on held-out families by cache and mode, beside the baselines', and the share that intervals cover.

    An interval of a case has the half-width of the other families' errors.
    """
    scores = []
    for cache, mode in dict.fromkeys((row["cache"], row["mode"]) for row in rows):
        chosen = [row for row in rows if (row["cache"], row["mode"]) == (cache, mode)]
        measured = np.array([row["measured_s"] for row in chosen])
        ways = {way: np.array([row[f"{way}_s"] for row in chosen]) for way in ("predicted", "constant", "by_operators")}
        errors = {way: np.abs(found / measured - 1.0) for way, found in ways.items()}
        logs = np.abs(np.log(ways["predicted"] / measured))
        families = np.array([row["family"] for row in chosen])
        inside = [
            log <= quantile_interval(logs[families != family]) for log, family in zip(logs, families, strict=True)
        ]
        scores.append(
            {
                "cache": cache,
                "mode": mode,
                "cases": len(chosen),
                "mean_error": float(errors["predicted"].mean()),
                "median_error": float(np.median(errors["predicted"])),
                "within_10": float((errors["predicted"] <= 0.1).mean()),
                "constant_median_error": float(np.median(errors["constant"])),
                "constant_mean_error": float(errors["constant"].mean()),
                "by_operators_median_error": float(np.median(errors["by_operators"])),
                "coverage": float(np.mean(inside)),
            }
        )
    return scores
