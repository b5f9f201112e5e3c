"""Datasets -> a hardware profile: predictor, costs, intervals, scores, and the card that says what they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed

from costmodel import calibrate, evaluate
from costmodel.dataset import kernel_of, read_frame
from costmodel.errors import DatasetError
from costmodel.features import OPTIONAL, Roofline
from costmodel.hardware import CARD_SCHEMA
from costmodel.measured import own_probe_us, read_measured, unstable
from costmodel.predictor import Array, Predictor, save_predictor
from costmodel.train import (
    BASELINES,
    Settings,
    Table,
    cross_validate,
    drop,
    fit_group,
    fit_roofline,
    network_fit,
    score_group,
    tabulate,
    trusted,
)

LEAST_UNITS = 100
MULTIPROCESSORS = {"NVIDIA H200": 132}
"""Of devices whose profiles were made before the environment recorded it."""
Say = Callable[[str], None]
DEFAULT_WIDTHS = {"eager": 0.3, "default": 0.3, "reduce-overhead": 0.3}
"""Half-widths of log latency and log speedup where no whole model was measured."""


def make_profile(directory: Path, name: str, settings: Settings, say: Say, jobs: int = 2) -> dict[str, Any]:
    """Trains on `units.parquet` and, if it is there, `models.jsonl`; writes the predictor and the card beside them.

    Returns:
        The card.

    Raises:
        DatasetError: a dataset is missing, damaged, or too small.
    """
    frame, about = read_frame(directory / "units.parquet")
    kept = trusted(frame)
    if len(kept) < LEAST_UNITS:
        raise DatasetError(
            f"{directory / 'units.parquet'}: {len(kept)} usable units; at least {LEAST_UNITS} are needed"
        )
    environment = about.get("environment", {})
    multiprocessors = int(environment.get("multiprocessors", MULTIPROCESSORS.get(environment.get("device", ""), 1)))
    say(f"{len(kept)} units of {len(frame)} can be trained on")
    kernels = [kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True)]
    roofline = fit_roofline(kernels, kept["device_us_p50"].tolist())
    everything = tabulate(kernels, kept, roofline, multiprocessors)
    tables = {group: drop(table, OPTIONAL) for group, table in everything.items()}
    scores, out_of_fold = _score_groups(tables, settings, say, jobs)
    groups = {group: fit_group(table, settings, out_of_fold[group]) for group, table in tables.items()}
    predictor = Predictor(groups, roofline, multiprocessors)
    pending = directory / "predictor.pending.safetensors"  # the old one is good until the new card is there
    sha256 = save_predictor(predictor, pending)
    dispatch = calibrate.fit_dispatch(kernels, kept["host_us_p25"].tolist())
    card = {
        "schema": CARD_SCHEMA,
        "name": name,
        "environment": environment,
        "predictor_sha256": sha256,
        "units": {"measured": len(frame), "trained_on": len(kept), "status": _counts(frame["status"])},
        "roofline": _describe(roofline),
        "scores": {"kernels": scores},
    }
    origins = evaluate.table_origins(kernels, kept["source"].tolist())
    card |= _whole_models(directory, origins, tables, predictor, dispatch, settings, say, jobs)
    card["scores"]["kernels"] = scores
    pending.replace(directory / "predictor.safetensors")
    _write_card(directory / "card.json", card)
    return card


def _describe(roofline: Roofline) -> dict[str, Any]:
    return {
        "bandwidth_gb_s": round(roofline.bytes_per_us / 1e3, 1),
        "peak_tflop_s": {kind: round(rate / 1e6, 1) for kind, rate in sorted(roofline.peak.items())},
        "smallest_kernel_us": round(roofline.floor_us, 2),
    }


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(key): int(count) for key, count in column.value_counts().items()}


def _score_groups(
    tables: Mapping[str, Table], settings: Settings, say: Say, jobs: int
) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Scores of the networks and of every baseline, by group, on shape groups left out."""
    rows: list[dict[str, Any]] = []
    predictions: dict[str, Array] = {}
    for group, table in tables.items():
        ways = {"network": network_fit(settings), **BASELINES}
        for way, fit in ways.items():
            prediction = cross_validate(table, fit, jobs)
            rows.append({"group": group, "way": way, **score_group(table, prediction)})
            if way == "network":
                predictions[group] = prediction
        best = min((row for row in rows if row["group"] == group), key=lambda row: row["mean_error"])
        mine = next(row for row in rows if row["group"] == group and row["way"] == "network")
        found = f"mean error {mine['mean_error']:.3f} (best: {best['way']} {best['mean_error']:.3f})"
        say(f"{group}: {len(table.time_us)} kernels, {found}")
    return rows, predictions


def _whole_models(
    directory: Path,
    origins: Mapping[str, Sequence[evaluate.Origin]],
    tables: Mapping[str, Table],
    predictor: Predictor,
    dispatch: Mapping[str, float],
    settings: Settings,
    say: Say,
    jobs: int,
) -> dict[str, Any]:
    """Costs, intervals and scores from the measured models; priors and wide intervals where there are none."""
    path = directory / "models.jsonl"
    everything = read_measured(path)[0] if path.exists() else []
    cases = [case for case in everything if not unstable(case)]
    if not cases:
        say("no whole model was measured: host costs are priors, intervals are wide")
        costs = calibrate.fit_tables([], dispatch) | {"compile": dict(calibrate.PRIORS["compile"])}
        wide = {"latency": DEFAULT_WIDTHS, "speedup": DEFAULT_WIDTHS}
        return {"costs": costs, "intervals": wide, "scores": {}, "host": {}}
    say(f"{len(cases)} whole-model cases ({len(everything) - len(cases)} unstable ones left out)")
    issued = Parallel(n_jobs=jobs)(delayed(evaluate.programs)(case) for case in cases)
    rows = evaluate.leave_families_out(cases, issued, tables, origins, predictor, dispatch, settings, jobs)
    frame = pd.DataFrame(rows)
    frame.to_csv(directory / "validation.csv", index=False, float_format="%.5g")
    scores = evaluate.score_table(frame)
    for row in scores:
        found = f"mean error {row['mean_error']:.3f} (constant {row['constant_mean_error']:.3f})"
        say(f"{row['mode']}, {row['cases_of']}: {found}")
    known = [evaluate.calibration_case(case, pair, predictor) for case, pair in zip(cases, issued, strict=True)]
    costs = calibrate.fit_tables(known, dispatch)
    costs["compile"] = calibrate.fit_compile(
        known,
        [case.record.get("contended_compile_s", {}).get("default") for case in cases],
        [case.record.get("cold_compile_s") for case in cases],
    )
    return {
        "costs": costs,
        "intervals": intervals(frame),
        "scores": {"models": scores, "coverage": coverage(frame)},
        "models": {"cases": len(cases), "unstable": len(everything) - len(cases)},
        "host": {"probe_us": own} if (own := own_probe_us(everything)) else {},
    }


def intervals(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Half-widths of log latency and log speedup that hold 90 % of the left-out cases, by mode.

    A mode that was never measured is left out.
    """
    latency: dict[str, float] = {}
    speedup: dict[str, float] = {}
    for mode, name in (("eager", "eager"), ("default", "default"), ("reduce-overhead", "graph")):
        seen = _with(frame, f"measured_{name}_us")
        if seen.empty:
            continue
        latency[mode] = calibrate.quantile_interval(_log_error(seen, f"{name}_us", f"measured_{name}_us"))
    for mode in evaluate.MODES:
        seen = _with(frame, f"measured_speedup/{mode}")
        if seen.empty:
            continue
        error = _log_error(seen, f"speedup/{mode}", f"measured_speedup/{mode}")
        speedup[mode] = calibrate.quantile_interval(error)
    return {"latency": latency, "speedup": speedup}


def _with(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The cases in which that was measured; none where it never was, as a mode that this device does not have."""
    return frame[frame[column].notna()] if column in frame else frame.iloc[:0]


def _log_error(frame: pd.DataFrame, predicted: str, measured: str) -> npt.NDArray[np.float64]:
    ratio = frame[predicted].to_numpy(dtype=np.float64) / frame[measured].to_numpy(dtype=np.float64)
    return np.asarray(np.log(ratio))


def coverage(frame: pd.DataFrame) -> dict[str, float]:
    """Share of cases inside a 90 % interval of speedup whose width came from the other families only."""
    shares = {}
    for mode in evaluate.MODES:
        seen = _with(frame, f"measured_speedup/{mode}")
        if seen["family"].nunique() < 2:
            continue
        error = np.abs(_log_error(seen, f"speedup/{mode}", f"measured_speedup/{mode}"))
        families = seen["family"].to_numpy()
        inside = [e <= calibrate.quantile_interval(error[families != f]) for e, f in zip(error, families, strict=True)]
        shares[mode] = float(np.mean(inside))
    return shares


def _write_card(path: Path, card: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(_rounded(card), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def _rounded(value: Any) -> Any:
    """Numbers to five significant digits, so that a card is read and compared easily."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
