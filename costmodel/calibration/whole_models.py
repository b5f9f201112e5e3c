"""Whole models of a profile: what was measured, and the costs, intervals and scores that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from costmodel.calibration import evaluation, host_costs, residuals
from costmodel.calibration.base_profile import BaseProfile
from costmodel.calibration.compile_records import COMPILE_TIMES
from costmodel.calibration.compile_section import add_compile_times
from costmodel.calibration.host_range import coverage_by_machine, host_range
from costmodel.calibration.intervals import DEFAULT_WIDTHS, coverage, intervals
from costmodel.calibration.measured_model import MeasuredModel
from costmodel.calibration.models_file import machine_probes_us, noise, read_measured, spread, usual_probe_us
from costmodel.calibration.outliers import unstable
from costmodel.calibration.scores import latency_scores, score_table
from costmodel.device import Device
from costmodel.timeline import residual_gp
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.residual_gp import ResidualModel
from costmodel.training.cross_fit import CrossFit

LEAST_CASES = 12
"""Fewest measured models that costs are fitted to where a base has some."""
LEAST_MACHINES = 3
"""Fewest machines for coverage on machines left out."""
Say = Callable[[str], None]
"""Receives lines about the progress."""


@dataclass(frozen=True, slots=True)
class MeasuredModels:
    """Whole models that were measured for a profile.

    Attributes:
        cases: stable cases, which costs are fitted to.
        issued: eager and compiled issue trace of each.
        counts: numbers of cases, for the summary.
        host: summary of the host probes; empty for a CPU.
    """

    cases: Sequence[MeasuredModel]
    issued: Sequence[tuple[IssueTrace, IssueTrace]]
    counts: Mapping[str, int]
    host: Mapping[str, Any]

    def suffice(self, base: BaseProfile | None) -> bool:
        """Whether costs are fitted to the cases: with a base, to LEAST_CASES or more."""
        return base is None or len(self.cases) >= LEAST_CASES


def read_models(path: Path, most: int, base: BaseProfile | None, device: Device, say: Say, jobs: int) -> MeasuredModels:
    """Read the measured models of a profile; none if there is no file.

    Args:
        path: file of records.
        most: largest number of cases.
        base: base of the profile, if it has one.
        device: device of the profile.
        say: receives lines about the progress.
        jobs: processes.

    Raises:
        DatasetError: the file is damaged.
    """
    everything = read_measured(path)[0] if path.exists() else []
    stable = [case for case in everything if not unstable(case)]
    chosen = spread(stable, most)
    say(f"{len(chosen)} whole-model cases of {len(stable)} ({len(everything) - len(stable)} unstable ones left out)")
    counts = {"cases": len(chosen), "measured": len(everything), "unstable": len(everything) - len(stable)}
    host = {} if device.is_cpu else _host(everything, () if base is None else base.machines_us)
    return MeasuredModels(chosen, _issued(chosen, device, jobs), counts, host)


def _host(cases: Sequence[MeasuredModel], others_us: Sequence[float] = ()) -> dict[str, Any]:
    """Summary of host probes: the profile's host, the machines, and the range of hosts of several machines.

    Args:
        cases: measured models.
        others_us: launch times of the base's machines, which count too: a profile is used on hosts of all speeds.
    """
    machines = machine_probes_us(cases)
    if not machines:
        return {}
    machines = sorted([*machines, *others_us])
    about = {"probe_us": usual_probe_us(cases), "machines_us": machines}
    return about | ({"range_us": host_range(machines)} if len(machines) > 1 else {})


def _issued(cases: Sequence[MeasuredModel], device: Device, jobs: int) -> list[tuple[IssueTrace, IssueTrace]]:
    """Issue traces of each case; a case that several processes measured is captured once."""
    distinct = {case.key: case for case in cases}
    traces = Parallel(n_jobs=jobs)(delayed(evaluation.traces_of)(case, device) for case in distinct.values())
    by_key = dict(zip(distinct, traces, strict=True))
    return [by_key[case.key] for case in cases]


def whole_models(
    directory: Path,
    measured: MeasuredModels,
    fit: CrossFit,
    base: BaseProfile | None,
    on_cpu: bool,
    say: Say,
    jobs: int,
) -> tuple[dict[str, Any], ResidualModel]:
    """Sections of a summary on whole models, and the residual model; the base's where too few models were measured.

    Args:
        directory: directory of the profile; held-out predictions are written to `validation.csv`.
        measured: measured models.
        fit: predictors of kernels.
        base: base of the profile, if it has one.
        on_cpu: whether the device is a CPU.
        say: receives lines about the progress.
        jobs: processes.
    """
    cases: Sequence[MeasuredModel] = measured.cases if measured.suffice(base) else ()
    if base is not None and not cases:
        found, others = base.whole_models(say)
    else:
        found, others = _calibrated(directory, cases, measured.issued, fit, on_cpu, say, jobs)
    if cases:
        validation = pd.read_csv(directory / "validation.csv")
        found["scores"] |= interval_scores(validation, measured.host, found["intervals"])
    if base is None or (directory / COMPILE_TIMES).exists():
        found = add_compile_times(found, directory, cases, [compiled for _, compiled in measured.issued])
    elif cases:
        found = base.with_compile_times(found)
    models = {**measured.counts, "noise": noise(cases)}
    return {**found, "models": models, "host": measured.host or found.get("host", {})}, others


def _calibrated(
    directory: Path,
    cases: Sequence[MeasuredModel],
    issued: Sequence[tuple[IssueTrace, IssueTrace]],
    fit: CrossFit,
    on_cpu: bool,
    say: Say,
    jobs: int,
) -> tuple[dict[str, Any], ResidualModel]:
    """Costs, intervals and scores from measured models, and the residual model.

    Without measured models: priors, wide intervals, no scores, no residuals.
    """
    if not cases:
        say("no models were measured: host costs are priors, intervals are wide")
        costs = host_costs.fit_tables([], on_cpu)
        wide = {"latency": DEFAULT_WIDTHS, "speedup": DEFAULT_WIDTHS}
        return {"costs": costs, "intervals": wide, "scores": {}}, residual_gp.no_residuals()
    known = evaluation.calibration_cases(cases, issued, fit.predictor)
    frame = pd.DataFrame(evaluation.leave_families_out(cases, issued, known, fit.by_fold, on_cpu, jobs))
    frame.to_csv(directory / "validation.csv", index=False, float_format="%.5g")
    scores = score_table(frame, on_cpu=on_cpu)
    latencies = latency_scores(frame)
    for row in scores:
        found = f"mean error {row['mean_error']:.3f} (constant {row['constant_mean_error']:.3f})"
        say(f"{row['mode']}, {row['cases_of']}: {found}")
    for row in latencies:
        say(f"{row['mode']}: mean error of latency {row['mean_error']:.3f} ({row['cases']} cases)")
    fitted = residuals.fit(cases, known, np.ones(len(cases), dtype=bool), on_cpu)
    costs, others = fitted.costs, fitted.others
    card = {
        "costs": costs,
        "residual_model": others.describe(),
        "intervals": intervals(frame),
        "scores": {"models": scores, "latency": latencies},
    }
    return card, others


def interval_scores(
    validation: pd.DataFrame, host: Mapping[str, Any], widths: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Shares of held-out measurements inside the intervals for an unknown host: by mode, and by machine left out.

    Args:
        validation: rows of `evaluate_case`.
        host: summary of the host probes; empty for a CPU.
        widths: half-widths on a known host by quantity and mode.
    """
    if "range_us" not in host:
        return {"coverage": coverage(validation)}
    probe_us = host["probe_us"]
    speeds = 1.0, *(probe_us / us for us in host["range_us"])
    found = {"coverage": coverage(validation, speeds)}
    if validation["environment"].nunique() < LEAST_MACHINES:
        return found
    return found | {"coverage_by_machine": coverage_by_machine(validation, probe_us, widths)}
