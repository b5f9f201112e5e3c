"""Leave-one-family-out cross-validation: each model predicted by kernels and costs that saw nothing of its family."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.calibration import host_costs, residual_fit, residuals
from costmodel.calibration.measured_model import COLUMNS, MeasuredModel
from costmodel.calibration.scores import MODES
from costmodel.device import Device
from costmodel.features import group_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.predictor import Predictor
from costmodel.timeline import residual_gp
from costmodel.timeline.issue_trace import IssueTrace, issue_traces
from costmodel.timeline.residual_gp import ResidualModel
from costmodel.timeline.timed_trace import TimedTrace
from costmodel.training.families import family_of
from costmodel.training.folds import Origin
from costmodel.training.kernel_models import TrainingSettings, fit_group
from costmodel.training.tables import Table


def traces_of(case: MeasuredModel, device: Device) -> tuple[IssueTrace, IssueTrace]:
    """Eager and compiled issue trace of a case on a device."""
    from costmodel.capture.trace import capture
    from costmodel.zoo import load

    size = case.record["input_shape"][-1]
    loaded = load(
        case.model,
        batch_size=case.batch_size,
        img_size=size,
        precision=case.precision,
        channels_last=case.layout == "nhwc",
    )
    graph = capture(loaded.module, loaded.inputs, case.model, partial=True)
    return issue_traces(graph, device)


def leave_families_out(
    cases: Sequence[MeasuredModel],
    issued: Sequence[tuple[IssueTrace, IssueTrace]],
    known: Sequence[host_costs.CalibrationCase],
    predictors: Mapping[int, Predictor],
    on_cpu: bool = False,
    jobs: int = 2,
) -> list[dict[str, Any]]:
    """One row a case: measured, and predicted by kernels and costs that saw nothing of its fold's families.

    The costs and the residual model of a fold are fitted to the other folds' cases, whose kernels are recalled by the
    predictor trained on all rows.

    Args:
        cases: measured models.
        issued: eager and compiled issue trace of each case.
        known: the cases with kernel times by the predictor trained on all rows.
        predictors: predictors by fold.
        on_cpu: whether a CPU was measured.
        jobs: folds at once.
    """
    from joblib import Parallel, delayed

    def predict_fold(fold: int) -> list[dict[str, Any]]:
        outside = np.array([case.fold != fold for case in cases])
        found = residuals.fit(cases, known, outside, on_cpu)
        tested = [index for index, other in enumerate(outside) if not other]
        unseen = calibration_cases([cases[i] for i in tested], [issued[i] for i in tested], predictors[fold])
        rows = []
        for index, one in zip(tested, unseen, strict=True):
            strangers = np.array([case.model != cases[index].model for case in cases])
            related = residual_fit.condition(found.unexplained.take(strangers), found.others.processes)
            rows.append(evaluate_case(cases[index], one, found.costs, found.others, related))
        return rows

    folds = sorted({case.fold for case in cases})
    # threads: sending the shared cases to other processes takes longer than computing
    results = Parallel(n_jobs=jobs, prefer="threads")(delayed(predict_fold)(fold) for fold in folds)
    return [row for rows in results for row in rows]


def banned_kernels(
    cases: Sequence[MeasuredModel], issued: Sequence[tuple[IssueTrace, IssueTrace]]
) -> dict[int, set[tuple[str, str]]]:
    """Keys of the kernels that the cases of each fold launch."""
    banned: dict[int, set[tuple[str, str]]] = {}
    for case, pair in zip(cases, issued, strict=True):
        keys = (kernel.key for trace in pair for kernel in trace.kernels)
        banned.setdefault(case.fold, set()).update(keys)
    return banned


def fit_without(
    banned: Collection[tuple[str, str]],
    families: Collection[str],
    tables: Mapping[str, Table],
    origins: Mapping[str, Sequence[Origin]],
    base: Predictor,
    settings: TrainingSettings,
) -> Predictor:
    """Train a predictor without some kernels and without the rows of some families.

    Args:
        banned: keys of the kernels to hold out.
        families: families of models to hold out.
        tables: training rows by group.
        origins: origins of those rows.
        base: predictor with the device's roofline and number of multiprocessors.
        settings: training settings.
    """
    groups = {}
    for group, table in tables.items():
        allowed = np.array([one.key not in banned and one.family not in families for one in origins[group]])
        if allowed.any():
            groups[group] = fit_group(table.take(allowed), settings)
    return Predictor(groups, base.roofline, base.multiprocessors)


def calibration_cases(
    cases: Sequence[MeasuredModel], issued: Sequence[tuple[IssueTrace, IssueTrace]], predictor: Predictor
) -> list[host_costs.CalibrationCase]:
    """Measured cases with predicted times of their kernels; kernels that several cases share are predicted once."""
    distinct = {id(trace): trace for pair in issued for trace in pair}
    keys = {name: [kernel.key for kernel in trace.kernels] for name, trace in distinct.items()}
    kernels = {
        key: kernel for name, trace in distinct.items() for key, kernel in zip(keys[name], trace.kernels, strict=True)
    }
    estimates = predictor.predict(list(kernels.values()), [0.5] * len(kernels))
    known = dict(zip(kernels, estimates, strict=True))
    timed = {name: TimedTrace.of(trace, [known[key] for key in keys[name]]) for name, trace in distinct.items()}
    return [
        host_costs.CalibrationCase(timed[id(eager)], timed[id(compiled)], case.medians, case.host_speed)
        for case, (eager, compiled) in zip(cases, issued, strict=True)
    ]


def evaluate_case(
    case: MeasuredModel,
    known: host_costs.CalibrationCase,
    tables: Mapping[str, Mapping[str, float]],
    others: ResidualModel | None = None,
    related: ResidualModel | None = None,
) -> dict[str, Any]:
    """Measured and predicted latencies, host and device times in microseconds, and speedups.

    `speedup/...` is predicted for the profile's host (uncalibrated), `probed_speedup/...` for the host that measured
    the case (calibrated by a probe). `alone_speedup/...` is calibrated, without the residual model.
    `related_speedup/...` is calibrated, with a residual model that has seen other models of the family.

    Args:
        case: a measured model.
        known: the same with predicted kernel times and its host's speed.
        tables: cost tables.
        others: residual model without the family; None for none.
        related: residual model with the family; None to leave that column out.
    """
    others = others or residual_gp.no_residuals()
    alone = residuals.timings_on_its_host(known, tables)
    uncalibrated = residuals.timings_on_its_host(replace(known, host_speed=1.0), tables)
    timings, probed = (others.correct(found, known.eager, known.compiled) for found in (uncalibrated, alone))
    ways = {"": timings, "probed_": probed, "alone_": alone}
    if related is not None:
        ways["related_"] = related.correct(alone, known.eager, known.compiled)
    row: dict[str, Any] = {
        "model": case.model,
        "family": case.family,
        "batch_size": case.batch_size,
        "precision": case.precision,
        "layout": case.layout,
        "environment": case.environment,
        "host_speed": case.host_speed,
    }
    for mode, timing in timings.items():
        name = COLUMNS[mode]
        row[f"{name}_host_us"], row[f"{name}_device_us"] = timing.host_us, timing.device_us
        row |= {f"{way}{name}_us": found[mode].latency_us for way, found in ways.items()}
    row |= {f"measured_{name}": value for name, value in case.medians.items()}
    for mode in (mode for mode in MODES if mode in timings):
        for way, found in ways.items():
            row[f"{way}speedup/{mode}"] = found["eager"].latency_us / found[mode].latency_us
        if f"{COLUMNS[mode]}_us" in case.medians:
            row[f"measured_speedup/{mode}"] = case.medians[f"eager_us/{mode}"] / case.medians[f"{COLUMNS[mode]}_us"]
    return row


def table_origins(kernels: Sequence[Kernel], sources: Sequence[str]) -> dict[str, list[Origin]]:
    """Origins of training rows by group, in order.

    Args:
        kernels: measured kernels.
        sources: source of each, as collectors record it: `timm:rexnet_100@32 float32`, or a workload.
    """
    origins: dict[str, list[Origin]] = {}
    for kernel, source in zip(kernels, sources, strict=True):
        one = Origin(kernel.key, family_of(source.partition("@")[0]))
        origins.setdefault(group_of(kernel), []).append(one)
    return origins
