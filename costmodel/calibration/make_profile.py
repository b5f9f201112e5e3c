"""Datasets -> a hardware profile: predictor, costs, intervals, scores and their summary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from costmodel.calibration import evaluation
from costmodel.calibration.base_profile import BaseProfile
from costmodel.calibration.same_device import check_same_device, device_of
from costmodel.calibration.whole_models import Say, read_models, whole_models
from costmodel.device import Device
from costmodel.errors import DatasetError
from costmodel.features import OPTIONAL, Roofline
from costmodel.files import write_whole
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.network import scaled
from costmodel.profiles.card import CARD, CARD_SCHEMA
from costmodel.profiles.predictor_file import save_predictor
from costmodel.profiles.profile import PREDICTOR, WHOLE_MODELS
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
    tables = _tables(kernels, kept, roofline, device, base)
    measured = read_models(directory / "models.jsonl", settings.most_cases, base, device, say, jobs)
    origins = evaluation.table_origins(kernels, kept["source"].tolist())
    banned = evaluation.banned_kernels(measured.cases, measured.issued)
    folds = {group: by_family(table.shape, origins[group], banned) for group, table in tables.items()}
    fit = _fit(tables, folds, roofline, device, settings, base, say, jobs)
    found, others = whole_models(directory, measured, fit, base, device.is_cpu, say, jobs)
    baselines = BASELINES if base is None else AGAINST_BASE
    found["scores"]["kernels"] = score_groups(tables, folds, fit, say, jobs, baselines)
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
        **({} if base is None else {"base": base.describe(environment)}),
        **found,
    }
    for final, path in pending.items():
        path.replace(directory / final)
    write_card(directory / CARD, card)
    return card


def _tables(
    kernels: Sequence[Kernel], kept: pd.DataFrame, roofline: Roofline, device: Device, base: BaseProfile | None
) -> dict[str, Table]:
    """Features and times of the kernels by group, relative to the base if there is one."""
    if base is None:
        everything = tabulate(kernels, kept, roofline, device.multiprocessors)
        return {group: drop(table, OPTIONAL) for group, table in everything.items()}
    everything = tabulate(kernels, kept, roofline, device.multiprocessors, least=1)
    return relative_to_base({group: drop(table, OPTIONAL) for group, table in everything.items()}, kernels, base.base)


def _fit(
    tables: Mapping[str, Table],
    folds: Mapping[str, Folds],
    roofline: Roofline,
    device: Device,
    settings: TrainingSettings,
    base: BaseProfile | None,
    say: Say,
    jobs: int,
) -> CrossFit:
    """Train from nothing, or learn the difference from the base, by group and fold."""
    if base is None:
        say(f"training {len(tables)} groups of networks and trees, {FOLDS} folds each")
        return cross_fit(tables, folds, roofline, device.multiprocessors, settings, jobs)
    say(f"learning the difference from {base.name} in {len(tables)} groups, {FOLDS} folds each")
    return transfer(tables, folds, roofline, device.multiprocessors, base.base, settings.seed)


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
