"""How good the predictions are: whole models predicted with every kernel and every cost of their families left out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from costmodel.calibration import host_costs, residual_fit, residuals
from costmodel.calibration.measured_model import COLUMNS, REPLAYED, WALLS, MeasuredModel
from costmodel.features import group_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.predictor import Predictor
from costmodel.timeline import residual_gp
from costmodel.timeline.issue_trace import IssueTrace, compiled_trace, eager_trace
from costmodel.timeline.residual_gp import ResidualModel
from costmodel.timeline.timed_trace import TimedTrace
from costmodel.training.families import family_of
from costmodel.training.folds import Origin
from costmodel.training.kernel_models import TrainingSettings, fit_group
from costmodel.training.tables import Table

MODES = tuple(WALLS)
UNCALIBRATED = "host not told: "
"""Begins the names of sets of cases that are predicted for the profile's own host, not for the one that measured."""
ALONE = "timeline alone: "
"""Begins those that are predicted without what other models tell of them."""
SINGLY = "each process by itself: "
"""Begins those in which a case counts as often as it was measured."""
RELATED = "relatives known: "
"""Begins those of which other models of the family may tell: only their kernels and costs are left out by family."""


def issue_traces(case: MeasuredModel, on_cpu: bool = False) -> tuple[IssueTrace, IssueTrace]:
    """What eager execution and torch.compile issue for a case."""
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
    return eager_trace(graph, on_cpu), compiled_trace(graph, on_cpu)


def leave_families_out(
    cases: Sequence[MeasuredModel],
    issued: Sequence[tuple[IssueTrace, IssueTrace]],
    known: Sequence[host_costs.CalibrationCase],
    predictors: Mapping[int, Predictor],
    on_cpu: bool = False,
    jobs: int = 2,
) -> list[dict[str, Any]]:
    """One row a case: measured and predicted, by kernels and costs that saw nothing of its fold's families.

    The costs of a fold, and what models tell of others, come from the other folds' models, whose kernels are as the
    whole predictor recalls them.

    Args:
        cases: what was measured.
        issued: the eager and the compiled program of each case.
        known: the cases with their kernels as the whole predictor recalls them.
        predictors: by fold.
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
    # threads: what the folds share takes longer to send to another process than to compute with
    results = Parallel(n_jobs=jobs, prefer="threads")(delayed(predict_fold)(fold) for fold in folds)
    return [row for rows in results for row in rows]


def banned_kernels(
    cases: Sequence[MeasuredModel], issued: Sequence[tuple[IssueTrace, IssueTrace]]
) -> dict[int, set[tuple[str, str]]]:
    """Keys of the kernels that the cases of each fold issue."""
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
    """A predictor that has seen neither some kernels, by key, nor anything of some families of models.

    Args:
        banned: keys of kernels.
        families: of models.
        tables: training rows by group.
        origins: of each of those rows.
        base: gives the roofline and the number of multiprocessors.
        settings: of the networks.
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
    """Measured cases with their kernels' predicted times; what many of them issue is predicted once."""
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
    """Measured beside predicted: latencies, host and device times in microseconds, speedups.

    `speedup/...` is predicted for the profile's own host, `probed_speedup/...` for one as fast as a probe found the one
    that measured; `alone_speedup/...` is that by the timeline alone, `related_speedup/...` with relatives known.

    Args:
        case: what was measured.
        known: it, with its kernels' predicted times, and how fast its host was by a probe.
        tables: costs.
        others: what models tell that are none of its relatives; None for nothing.
        related: what its relatives tell too; None if nobody asks.
    """
    others = others or residual_gp.no_residuals()
    alone = residuals.timings_there(known, tables)
    untold = residuals.timings_there(replace(known, host_speed=1.0), tables)
    timings, probed = (others.correct(found, known.eager, known.compiled) for found in (untold, alone))
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


CASE = ["model", "batch_size", "precision", "layout"]
"""The columns that say what was measured, in however many processes."""


def merge_processes(frame: pd.DataFrame, mode: str, predicted: str = "speedup") -> pd.DataFrame:
    """One row a case, of all processes that measured it: the median of how far each is from its own prediction.

    Where the host decides, two processes of one machine issue a model in times that differ by some 5 %; what they have
    in common is what can be predicted. A slow process is slow in eager execution and in `default`, so that its own
    speedup counts; a graph's replay it hardly slows, so that in `reduce-overhead` eager calls and replays are taken
    apart, and processes count that measured one of them only.

    Args:
        frame: rows of `evaluate_case`.
        mode: of MODES.
        predicted: what begins the name of the column that is merged, `speedup`, `probed_speedup`, ...

    Returns:
        Columns of CASE, `family`, and `measured_speedup/...` and `{predicted}/...` of the mode.
    """
    way, rows = predicted.removesuffix("speedup"), []
    for key, processes in frame.groupby(CASE, sort=False):
        if mode == REPLAYED:
            graph = _logs(processes, f"{way}{COLUMNS[mode]}_us", f"measured_{COLUMNS[mode]}_us")
            log = _logs(processes, f"{way}eager_us", "measured_eager_us").median() - graph.median()
        else:
            log = _logs(processes, f"{predicted}/{mode}", f"measured_speedup/{mode}").median()
        speedup = processes[f"{predicted}/{mode}"].median()
        found = {"family": processes["family"].iloc[0], f"{predicted}/{mode}": speedup}
        found[f"measured_speedup/{mode}"] = speedup / math.exp(log)
        rows.append(dict(zip(CASE, key, strict=True)) | found)
    return pd.DataFrame(rows)


def _logs(rows: pd.DataFrame, predicted: str, measured: str) -> pd.Series[float]:
    """Logarithms of predicted over measured, of the rows that have both."""
    return (rows[predicted] / rows[measured]).dropna().map(math.log)


def score(frame: pd.DataFrame, mode: str, predicted: str = "speedup") -> dict[str, float]:
    """Errors of the predicted speedup in a mode, beside those of a constant (the others' geometric mean).

    The constant of a case is made of the models of other families, as the prediction is.

    Args:
        frame: rows of `evaluate_case`, or of `merge_processes`.
        mode: of MODES.
        predicted: what begins the name of the column that is scored.
    """
    chosen = frame[frame[[f"measured_speedup/{mode}", f"{predicted}/{mode}"]].notna().all(axis=1)]
    measured = chosen[f"measured_speedup/{mode}"].to_numpy()
    error = np.abs(chosen[f"{predicted}/{mode}"].to_numpy() / measured - 1)
    others = [np.log(measured[(chosen["family"] != family).to_numpy()]) for family in chosen["family"]]
    constant = np.abs(np.array([math.exp(logs.mean()) if len(logs) else 1.0 for logs in others]) / measured - 1)
    return {
        "cases": float(len(chosen)),
        "mean_error": float(error.mean()),
        "median_error": float(np.median(error)),
        "within_10": float((error <= 0.10).mean()),
        "constant_mean_error": float(constant.mean()),
    }


def score_table(frame: pd.DataFrame, on_cpu: bool = False) -> list[dict[str, Any]]:
    """Scores by mode and set of cases: batch 1 and 32 in float32, other batch sizes, float16, all; and by machine.

    Every case is predicted for the host that measured it, as a probe found it; where there are several machines, also
    for the profile's own host (`UNCALIBRATED`). The first set is also there as the timeline alone has it (`ALONE`), and with
    relatives known (`RELATED`). A case counts once, with the middle of its processes (`merge_processes`), but where
    the host is not told: there every process counts, as hosts differ. The first set is there so too (`SINGLY`). On a
    CPU batch 8 takes the place of 32.
    """
    large, others = (8, [4, 32]) if on_cpu else (32, [8, 128])
    common = (frame["precision"] == "float32") & frame["batch_size"].isin([1, large])
    other = (frame["precision"] == "float32") & frame["batch_size"].isin(others)
    subsets: tuple[tuple[str, Any], ...] = (
        (f"float32, batch 1 and {large}", common),
        ("float32, batch 1", common & (frame["batch_size"] == 1)),
        (f"float32, batch {large}", common & (frame["batch_size"] == large)),
        (f"float32, batch {others[0]} and {others[1]}", other),
        ("float16", frame["precision"] == "float16"),
        ("all", frame["batch_size"] > 0),
    )
    sets = [(name, mask, "probed_speedup") for name, mask in subsets]
    if frame.duplicated(CASE).any():
        sets.append((SINGLY + subsets[0][0], common, "probed_speedup"))
    ways = {ALONE: "alone_speedup", RELATED: "related_speedup"}
    found = {way: predicted for way, predicted in ways.items() if f"{predicted}/{MODES[0]}" in frame}
    sets += [(way + subsets[0][0], common, predicted) for way, predicted in found.items()]
    machines = sorted(set(frame["environment"]))
    if len(machines) > 1:
        for number, one in enumerate(machines, 1):
            here = common & (frame["environment"] == one)
            sets.append((f"machine {number}: {subsets[0][0]}", here, "probed_speedup"))
        sets += [(UNCALIBRATED + name, mask, "speedup") for name, mask in subsets]
    rows = []
    for mode in MODES:
        for name, mask, predicted in sets:
            chosen = frame[mask]
            if f"measured_speedup/{mode}" in frame and chosen[f"measured_speedup/{mode}"].notna().any():
                singly = name.startswith((SINGLY, UNCALIBRATED))
                counted = chosen if singly else merge_processes(chosen, mode, predicted)
                rows.append({"mode": mode, "cases_of": name, **score(counted, mode, predicted)})
    return rows


def latency_scores(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Errors of the predicted latency by mode, of every case for the host that measured it."""
    rows = []
    for mode, name in COLUMNS.items():
        seen = frame[frame[f"measured_{name}_us"].notna()] if f"measured_{name}_us" in frame else frame.iloc[:0]
        if not seen.empty:
            error = (seen[f"probed_{name}_us"] / seen[f"measured_{name}_us"] - 1).abs()
            found = {"mean_error": error.mean(), "median_error": error.median(), "within_10": (error <= 0.1).mean()}
            rows.append({"mode": mode, "cases": len(seen), **{key: float(value) for key, value in found.items()}})
    return rows


def table_origins(kernels: Sequence[Kernel], sources: Sequence[str]) -> dict[str, list[Origin]]:
    """What each row is and comes from, by group, in order.

    Args:
        kernels: what was measured.
        sources: what each was taken from, as collectors write it: `timm:rexnet_100@32 float32`, or a workload.
    """
    origins: dict[str, list[Origin]] = {}
    for kernel, source in zip(kernels, sources, strict=True):
        one = Origin(kernel.key, family_of(source.partition("@")[0]))
        origins.setdefault(group_of(kernel), []).append(one)
    return origins
