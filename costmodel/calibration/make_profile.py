"""Datasets -> a hardware profile: predictor, costs, intervals, scores and their summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
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
from costmodel.calibration.same_device import check_same_device, device_of
from costmodel.calibration.scores import latency_scores, score_table
from costmodel.device import Device
from costmodel.errors import DatasetError
from costmodel.features import OPTIONAL, Roofline
from costmodel.files import write_whole
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.network import scaled
from costmodel.profiles.card import CARD, CARD_SCHEMA
from costmodel.profiles.predictor_file import save_predictor
from costmodel.profiles.profile import PREDICTOR, WHOLE_MODELS
from costmodel.timeline import residual_gp
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.residual_gp import ResidualModel
from costmodel.training.baselines import AGAINST_BASE, BASELINES, Fit, cross_validate, score_group
from costmodel.training.cross_fit import CrossFit, cross_fit
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.error_curves import fit_error_curve
from costmodel.training.families import FOLDS
from costmodel.training.folds import Folds, by_family
from costmodel.training.kernel_models import TrainingSettings
from costmodel.training.roofline_fit import fit_roofline
from costmodel.training.tables import Table, drop, tabulate, trusted
from costmodel.training.transferred import relative_to_base, transfer

LEAST_UNITS = 100
"""Fewest usable units that a profile can be trained on."""
LEAST_CASES = 12
"""Fewest measured models that costs are fitted to where a base has some."""
LEAST_MACHINES = 3
"""Fewest machines for coverage on machines left out."""
Say = Callable[[str], None]
"""Receives lines about the progress."""


def make_profile(
    directory: Path, name: str, settings: TrainingSettings, say: Say, jobs: int = 2, base: BaseProfile | None = None
) -> dict[str, Any]:
    """Train on `units.parquet` and `models.jsonl`, if there is one, and write the profile's other files beside them.

    Args:
        directory: directory of the profile.
        name: name of the profile.
        settings: training settings.
        say: receives lines about the progress.
        jobs: processes.
        base: profile to learn the difference from; None to train from nothing.

    Returns:
        The summary.

    Raises:
        DatasetError: a dataset is missing, damaged, too small, or of another device than the profile.
    """
    frame, about = read_frame(directory / "units.parquet")
    kept = trusted(frame)
    if len(kept) < LEAST_UNITS:
        few = f"{len(kept)} usable units; at least {LEAST_UNITS} are needed"
        raise DatasetError(f"{directory / 'units.parquet'}: {few}")
    environment = about.get("environment", {})
    device = device_of(environment, directory / "units.parquet")
    check_same_device(directory, name, device, directory / "units.parquet")
    say(f"{len(kept)} units of {len(frame)} can be trained on")
    kernels = [kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True)]
    roofline = fit_roofline(kernels, kept["device_us_p50"].tolist())
    everything = tabulate(kernels, kept, roofline, device.multiprocessors, **({} if base is None else {"least": 1}))
    tables = {group: drop(table, OPTIONAL) for group, table in everything.items()}
    if base is not None:
        tables = relative_to_base(tables, kernels, base.base)
    cases, counts, host = _stable_cases(directory / "models.jsonl", settings.most_cases, base, say)
    issued = _issued(cases, device, jobs)
    origins = evaluation.table_origins(kernels, kept["source"].tolist())
    banned = evaluation.banned_kernels(cases, issued)
    folds = {group: by_family(table.shape, origins[group], banned) for group, table in tables.items()}
    if base is None:
        say(f"training {len(tables)} groups of networks and trees, {FOLDS} folds each")
        fit = cross_fit(tables, folds, roofline, device.multiprocessors, settings, jobs)
    else:
        say(f"learning the difference from {base.name} in {len(tables)} groups, {FOLDS} folds each")
        fit = transfer(tables, folds, roofline, device.multiprocessors, base.base, settings.seed)
    if base is not None and len(cases) < LEAST_CASES:
        found, others = base.whole_models(say)
        cases = []
    else:
        found, others = _whole_models(directory, cases, issued, fit, device.is_cpu, say, jobs)
    base_host = found.pop("host", {})
    if cases:
        validation = pd.read_csv(directory / "validation.csv")
        found["scores"] |= interval_scores(validation, {} if device.is_cpu else host, found["intervals"])
    baselines = BASELINES if base is None else AGAINST_BASE
    found["scores"]["kernels"] = score_groups(tables, folds, fit, say, jobs, baselines)
    if base is not None and cases and not (directory / COMPILE_TIMES).exists():
        found = base.with_compile_times(found)
    elif base is None or cases:
        found = add_compile_times(found, directory, cases, [compiled for _, compiled in issued])
    found["error_curves"] = {
        group: asdict(_error_curve(table, folds[group], group, fit)) for group, table in tables.items()
    }
    # an earlier profile stays valid until both files are written
    pending = {file: directory / f"{file}.pending" for file in (PREDICTOR, WHOLE_MODELS)}
    hashes = save_predictor(fit.predictor, pending[PREDICTOR]), others.save(pending[WHOLE_MODELS])
    card = {
        "schema": CARD_SCHEMA,
        "name": name,
        "environment": environment,
        "predictor_sha256": hashes[0],
        "whole_models_sha256": hashes[1],
        "units": unit_counts(frame, kept) | ({"dates": about["dates"]} if about.get("dates") else {}),
        "training": {"folds": FOLDS, **(asdict(settings) if base is None else {"seed": settings.seed})},
        "roofline": _describe(roofline),
        "models": counts | {"noise": noise(cases)},
        "host": {} if device.is_cpu else host or base_host,
        **({} if base is None else {"base": base.describe(environment)}),
        **found,
    }
    for final, path in pending.items():
        path.replace(directory / final)
    write_card(directory / CARD, card)
    return card


def refresh(
    directory: Path,
    sample: Path,
    name: str,
    older: BaseProfile,
    settings: TrainingSettings,
    say: Say,
    jobs: int = 2,
) -> dict[str, Any]:
    """Learn what changed on a device from a sample measured anew, with the profile itself as the base.

    Args:
        directory: directory of the profile.
        sample: directory of the sample's dataset.
        name: name of the profile.
        older: the profile before.
        settings: training settings.
        say: receives lines about the progress.
        jobs: processes.

    Returns:
        The summary.

    Raises:
        DatasetError: the sample is missing, damaged, too small, or of another device than the profile.
    """
    units = sample / "units.parquet"
    check_same_device(directory, name, device_of(read_frame(units)[1].get("environment", {}), units), units)
    card = make_profile(sample, name, settings, say, jobs, older)
    for file in (PREDICTOR, WHOLE_MODELS, CARD):
        (sample / file).replace(directory / file)
    return card


def _error_curve(table: Table, folds: Folds, group: str, fit: CrossFit) -> ErrorCurve:
    """Error curve of a group from the out-of-fold predictions of its rows."""
    model = fit.predictor.groups[group]
    error = np.abs(table.target - fit.out_of_fold[group])
    return fit_error_curve(scaled(table.raw, model.mean, model.scale), error, table.time_us, folds.tests, model.widths)


def _stable_cases(
    path: Path, most: int, base: BaseProfile | None, say: Say
) -> tuple[list[MeasuredModel], dict[str, int], dict[str, Any]]:
    """Measured models to fit to, their counts, and the summary of host probes."""
    everything = read_measured(path)[0] if path.exists() else []
    stable = [case for case in everything if not unstable(case)]
    chosen = spread(stable, most)
    say(f"{len(chosen)} whole-model cases of {len(stable)} ({len(everything) - len(stable)} unstable ones left out)")
    counts = {"cases": len(chosen), "measured": len(everything), "unstable": len(everything) - len(stable)}
    return chosen, counts, _host(everything, () if base is None else base.machines_us)


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


def unit_counts(frame: pd.DataFrame, kept: pd.DataFrame) -> dict[str, Any]:
    """Summary of the measured units and those that are trained on."""
    status = _counts(frame["status"])
    return {"measured": len(frame), "trained_on": len(kept), "status": status, "noise": _noise(kept)}


def _noise(kept: pd.DataFrame) -> float:
    """Median over units of the interquartile range of a unit's samples, relative to their median."""
    apart = (kept["device_us_p75"] - kept["device_us_p25"]) / kept["device_us_p50"]
    return float(apart.median())


def _describe(roofline: Roofline) -> dict[str, Any]:
    return {
        "bandwidth_gb_s": round(roofline.bytes_per_us / 1e3, 1),
        "peak_tflop_s": {kind: round(rate / 1e6, 1) for kind, rate in sorted(roofline.peak.items())},
        "smallest_kernel_us": round(roofline.floor_us, 2),
    }


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(key): int(count) for key, count in column.value_counts().items()}


def score_groups(
    tables: Mapping[str, Table],
    folds: Mapping[str, Folds],
    fit: CrossFit,
    say: Say,
    jobs: int,
    baselines: Mapping[str, Fit] = BASELINES,
) -> list[dict[str, Any]]:
    """Scores of the predictor, of its networks alone and of every baseline, by group, on the same folds."""
    rows: list[dict[str, Any]] = []
    for group, table in tables.items():
        others = {way: cross_validate(table, folds[group], baseline, jobs) for way, baseline in baselines.items()}
        alone = "network" if baselines is BASELINES else "without neighbours"
        ways = {"predictor": fit.out_of_fold[group], alone: fit.networks_alone[group], **others}
        found: list[dict[str, Any]] = [
            {"group": group, "way": way, **score_group(table, prediction)} for way, prediction in ways.items()
        ]
        best = min(found, key=lambda row: row["mean_error"])
        mine = f"mean error {found[0]['mean_error']:.3f} (best: {best['way']} {best['mean_error']:.3f})"
        say(f"{group}: {len(table.time_us)} kernels, {mine}")
        rows += found
    return rows


def _whole_models(
    directory: Path,
    cases: Sequence[MeasuredModel],
    issued: Sequence[tuple[IssueTrace, IssueTrace]],
    fit: CrossFit,
    on_cpu: bool,
    say: Say,
    jobs: int,
) -> tuple[dict[str, Any], ResidualModel]:
    """Costs, intervals and scores from the measured models, and the residual model.

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


def write_card(path: Path, card: Mapping[str, Any]) -> None:
    """Write a profile's summary, whole or not at all, with figures of five significant digits."""
    write_whole(path, json.dumps(_rounded(card), indent=1, allow_nan=False) + "\n")


def _rounded(value: Any) -> Any:
    """Numbers to five significant digits, which are easy to read and compare."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
