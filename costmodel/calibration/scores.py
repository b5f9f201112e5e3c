"""Scores of predictions for held-out models: errors of speedups and latencies beside those of a baseline."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from costmodel.calibration.measured_model import COLUMNS, REPLAYED, WALLS

MODES = tuple(WALLS)
UNCALIBRATED = "uncalibrated host: "
"""Prefix of sets of cases that are predicted for the profile's host instead of the host that measured them."""
ALONE = "timeline alone: "
"""Prefix of sets that are predicted without the residual model."""
EACH_PROCESS = "each process: "
"""Prefix of sets in which a case counts once for each process that measured it."""
FAMILY_KNOWN = "family not held out: "
"""Prefix of sets whose residual model has seen other models of the family; kernels and costs are held out by family."""
CASE = ["model", "batch_size", "precision", "layout"]
"""Columns that identify a case, which several processes may have measured."""


def merge_processes(frame: pd.DataFrame, mode: str, predicted: str = "speedup") -> pd.DataFrame:
    """Merge the processes that measured a case into one row, with the median of their relative errors.

    Where the host decides, launch times of two processes on one machine differ by some 5 %, which no prediction can
    know. A slow process is slow in eager mode and in `default`, so there each process's own speedup counts. It hardly
    slows a graph's replay, so in `reduce-overhead` errors of eager calls and of replays are taken apart; processes
    that measured only one of them count too.

    Args:
        frame: rows of `evaluate_case`.
        mode: one of MODES.
        predicted: prefix of the column to merge: `speedup`, `probed_speedup`, ...

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
    """Logarithms of predicted over measured, for rows that have both."""
    return (rows[predicted] / rows[measured]).dropna().map(math.log)


def score(frame: pd.DataFrame, mode: str, predicted: str = "speedup") -> dict[str, float]:
    """Relative errors of predicted speedups in a mode, beside those of the baseline.

    The baseline of a case is the geometric-mean speedup of the other families, as the prediction too is made from them.

    Args:
        frame: rows of `evaluate_case`, or of `merge_processes`.
        mode: one of MODES.
        predicted: prefix of the column to score.
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
    """Scores by mode and set of cases.

    Sets are by batch size and precision; on a CPU batch 8 takes the place of 32. Predictions are for the host that
    measured a case, as calibrated by a probe, and a case counts once (`merge_processes`). Further sets, marked by a
    prefix, vary that for batch 1 and 32 in float32: `EACH_PROCESS`, `ALONE`, `FAMILY_KNOWN`, one machine at a time.
    `UNCALIBRATED` predicts all sets for the profile's host; there every process counts, as hosts differ.
    """
    rows = []
    for mode in MODES:
        for name, mask, predicted in _sets(frame, on_cpu):
            chosen = frame[mask]
            if f"measured_speedup/{mode}" in frame and chosen[f"measured_speedup/{mode}"].notna().any():
                each = name.startswith((EACH_PROCESS, UNCALIBRATED))
                counted = chosen if each else merge_processes(chosen, mode, predicted)
                rows.append({"mode": mode, "cases_of": name, **score(counted, mode, predicted)})
    return rows


def _sets(frame: pd.DataFrame, on_cpu: bool) -> list[tuple[str, pd.Series[bool], str]]:
    """Names of sets of cases, masks of their rows, and prefixes of the columns with their predictions."""
    large, others = (8, [4, 32]) if on_cpu else (32, [8, 128])
    float32 = frame["precision"] == "float32"
    common = float32 & frame["batch_size"].isin([1, large])
    name = f"float32, batch 1 and {large}"
    subsets = (
        (name, common),
        ("float32, batch 1", common & (frame["batch_size"] == 1)),
        (f"float32, batch {large}", common & (frame["batch_size"] == large)),
        (f"float32, batch {others[0]} and {others[1]}", float32 & frame["batch_size"].isin(others)),
        ("float16", frame["precision"] == "float16"),
        ("all", frame["batch_size"] > 0),
    )
    sets = [(subset, mask, "probed_speedup") for subset, mask in subsets]
    if frame.duplicated(CASE).any():
        sets.append((EACH_PROCESS + name, common, "probed_speedup"))
    ways = {ALONE: "alone_speedup", FAMILY_KNOWN: "related_speedup"}
    sets += [(way + name, common, column) for way, column in ways.items() if f"{column}/{MODES[0]}" in frame]
    machines = sorted(set(frame["environment"]))
    if len(machines) > 1:
        of_machines = [(number, common & (frame["environment"] == one)) for number, one in enumerate(machines, 1)]
        sets += [(f"machine {number}: {name}", mask, "probed_speedup") for number, mask in of_machines]
        sets += [(UNCALIBRATED + subset, mask, "speedup") for subset, mask in subsets]
    return sets


def latency_scores(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Relative errors of predicted latency by mode, of every case for the host that measured it."""
    rows = []
    for mode, name in COLUMNS.items():
        seen = frame[frame[f"measured_{name}_us"].notna()] if f"measured_{name}_us" in frame else frame.iloc[:0]
        if not seen.empty:
            error = (seen[f"probed_{name}_us"] / seen[f"measured_{name}_us"] - 1).abs()
            found = {"mean_error": error.mean(), "median_error": error.median(), "within_10": (error <= 0.1).mean()}
            rows.append({"mode": mode, "cases": len(seen), **{key: float(value) for key, value in found.items()}})
    return rows
