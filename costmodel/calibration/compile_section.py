"""Compile times in a profile's summary: fitted to the profile's records, or to compilations beside others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.calibration.compile_fit import (
    LEAST_RECORDS,
    CompileFit,
    fit_compile_times,
    held_out_s,
    nonnegative_costs,
    score_compile_times,
)
from costmodel.calibration.compile_records import COMPILE_TIMES, describe, read_compile_records
from costmodel.calibration.host_costs import STRENGTH, ridge
from costmodel.calibration.intervals import quantile_interval
from costmodel.calibration.measured_model import MeasuredModel
from costmodel.timeline.compile_time import COLD, counts_of
from costmodel.timeline.cost_tables import PRIORS
from costmodel.timeline.issue_trace import IssueTrace


def add_compile_times(
    card: Mapping[str, Any], directory: Path, cases: Sequence[MeasuredModel], compiled: Sequence[IssueTrace]
) -> dict[str, Any]:
    """A profile's summary with its costs, intervals and scores of compile time; those that it had are replaced.

    Args:
        card: the summary, with `costs`, `intervals` and `scores`.
        directory: directory of the profile; its file of compile times is used if there is one.
        cases: measured models, whose compilations beside others are used otherwise.
        compiled: compiled issue trace of each.

    Raises:
        DatasetError: the file is damaged.
    """
    path = directory / COMPILE_TIMES
    found: dict[str, Any] = {}
    if path.exists():
        records, _ = read_compile_records(path)
        fit = fit_compile_times(records)
        found = {"compile_times": describe(records)}
    if not path.exists() or COLD not in fit.costs:
        fit = fit_contended(cases, compiled)
    scores = {"compile": score_compile_times(fit.rows)} if fit.rows else {}
    parts: dict[str, dict[str, Any]] = {"costs": fit.costs, "intervals": fit.intervals, "scores": scores}
    kept = {name: {key: value for key, value in card[name].items() if not key.startswith(COLD)} for name in parts}
    return {**card, **{name: kept[name] | part for name, part in parts.items()}, **found}


def fit_contended(cases: Sequence[MeasuredModel], compiled: Sequence[IssueTrace]) -> CompileFit:
    """Fit cold compile time of `default` to compilations that went on beside others; the prior with too few.

    The median ratio of compilations that were also timed alone gives their scale. Where none was, costs stay near the
    prior and the interval is the assumed one: compilations disturb each other by an unknown factor.

    Args:
        cases: measured models.
        compiled: compiled issue trace of each.
    """
    beside = [case.record.get("contended_compile_s", {}).get("default") for case in cases]
    alone = [case.record.get("cold_compile_s") for case in cases]
    ratios = [one / other for one, other in zip(alone, beside, strict=True) if one and other]
    known = [index for index, seconds in enumerate(beside) if seconds]
    if len(known) < LEAST_RECORDS:
        return CompileFit({COLD: dict(PRIORS[COLD])}, {}, [])
    counts, seconds = [counts_of(compiled[index]) for index in known], np.array([beside[index] for index in known])
    if not ratios:
        costs = ridge(counts, (seconds * 1e6).tolist(), PRIORS[COLD], STRENGTH[COLD])
        return CompileFit({COLD: {name: max(0.0, us) for name, us in costs.items()}}, {}, [])
    seconds = seconds * float(np.median(ratios))
    models, families = [cases[index].model for index in known], [cases[index].family for index in known]
    causes = tuple(PRIORS[COLD])
    width = quantile_interval(np.log(held_out_s(counts, seconds, causes, models, families) / seconds))
    return CompileFit({COLD: nonnegative_costs(counts, seconds, causes, models)}, {COLD: {"default": width}}, [])
