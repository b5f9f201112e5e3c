"""Hosts that intervals without a known host cover, and the share of measurements inside them, by machine left out.

A profile's own host is the least disturbed machine. Other machines take longer to launch kernels, by other processors
or by other programs on them. An interval for an unknown host is the union of the intervals of all hosts in a range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from costmodel.calibration.measured_model import COLUMNS, REPLAYED

Values = npt.NDArray[np.float64]

HOSTS_COVERED = 0.8
"""Share of other hosts whose launch times are expected in the range.

The intervals of its ends reach further by the half-width on a known host, so they cover about nine cases in ten."""
SHARPNESS: Mapping[str, float] = {"eager": 20.0, "default": 8.0}
"""Order of the norm of host and device time that latency follows: it is about the larger of the two.

Against the timeline at other host speeds, latencies by these are 0.3 % off on average (2,108 measurements)."""
LATENCY, SPEEDUP = "latency", "speedup"


def host_range(machines_us: Sequence[float], share: float = HOSTS_COVERED) -> tuple[float, float]:
    """Prediction interval of the launch time of another machine, microseconds.

    Launch times of machines are taken as log-normal; the interval of one further draw from a normal distribution of
    unknown mean and variance is Student's (Hahn and Meeker, "Statistical Intervals", 1991, section 4.6).

    Args:
        machines_us: launch time of each of at least two machines.
        share: probability that the other machine lies in the interval.
    """
    from scipy import stats

    logs, count = np.log(machines_us), len(machines_us)
    quantile = stats.t.ppf((1 + share) / 2, count - 1)
    half = float(quantile * logs.std(ddof=1) * np.sqrt(1 + 1 / count))
    return float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half))


def latency_at(frame: pd.DataFrame, mode: str, speed: float) -> Values:
    """Predicted latency on a host of another speed, microseconds; (rows,).

    Args:
        frame: rows with predicted `eager_us`, `eager_host_us` and `eager_device_us`, and so for each mode.
        mode: a key of COLUMNS.
        speed: speed of the host relative to that of the rows.
    """
    name = COLUMNS[mode]
    latency, host, device = (frame[f"{name}{part}_us"].to_numpy(float) for part in ("", "_host", "_device"))
    if mode == REPLAYED:
        return np.asarray(device + host / speed)
    order = SHARPNESS[mode]
    before, after = (_norm(some, device, order) for some in (host, host / speed))
    return np.asarray(latency * after / before)


def _norm(host: Values, device: Values, order: float) -> Values:
    larger = np.maximum(host, device)
    return np.asarray(larger * ((host / larger) ** order + (device / larger) ** order) ** (1 / order))


def predicted_at(frame: pd.DataFrame, quantity: str, mode: str, speed: float) -> Values:
    """Predicted LATENCY in a mode, microseconds, or SPEEDUP of the mode, on a host of another speed."""
    if speed == 1.0:
        column = f"{COLUMNS[mode]}_us" if quantity == LATENCY else f"speedup/{mode}"
        return frame[column].to_numpy(float)
    latency = latency_at(frame, mode, speed)
    return latency if quantity == LATENCY else np.asarray(latency_at(frame, "eager", speed) / latency)


def measured(frame: pd.DataFrame, quantity: str, mode: str) -> Values:
    """Measured LATENCY in a mode, microseconds, or SPEEDUP of the mode; NaN where it was not measured."""
    column = f"measured_{COLUMNS[mode]}_us" if quantity == LATENCY else f"measured_speedup/{mode}"
    return frame[column].to_numpy(float) if column in frame else np.full(len(frame), np.nan)


def inside(frame: pd.DataFrame, quantity: str, mode: str, speeds: Sequence[float], width: float) -> Values:
    """1 for rows whose measurement lies in the interval for an unknown host, else 0; NaN where nothing was measured.

    Args:
        frame: rows of `evaluate_case`.
        quantity: LATENCY or SPEEDUP.
        mode: the mode.
        speeds: speeds of the hosts that the interval covers.
        width: half-width of the interval of the logarithm on a known host.
    """
    found = np.array([predicted_at(frame, quantity, mode, speed) for speed in speeds])
    seen = measured(frame, quantity, mode)
    covered = (found.min(0) * np.exp(-width) <= seen) & (seen <= found.max(0) * np.exp(width))
    return np.where(np.isnan(seen), np.nan, covered.astype(float))


QUANTITIES = ("latency", "speedup")
"""Quantities that depend on the host's launch time."""


def coverage_by_machine(
    frame: pd.DataFrame, probe_us: float, widths: Mapping[str, Mapping[str, float]], machine: str = "environment"
) -> list[dict[str, Any]]:
    """Share of each machine's measurements inside intervals that know nothing of the machine.

    The assumed host is the least disturbed of the other machines, and their launch times give the range of hosts.

    Args:
        frame: rows of `evaluate_case`, for the profile's host, of at least three machines.
        probe_us: launch time of the profile's host.
        widths: half-widths on a known host by quantity and mode.
        machine: column that identifies the machine.

    Returns:
        A row a machine, quantity, mode and batch size.
    """
    rows = []
    launches_us = {name: float(probe_us / part["host_speed"].median()) for name, part in frame.groupby(machine)}
    for name, part in frame.groupby(machine):
        others = [us for key, us in launches_us.items() if key != name]
        speeds = [probe_us / us for us in (min(others), *host_range(others))]
        for quantity in QUANTITIES:
            for mode, width in widths.get(quantity, {}).items():
                covered = pd.Series(inside(part, quantity, mode, speeds, width), index=part.index)
                for batch_size, known in covered.dropna().groupby(part["batch_size"]):
                    about = {"machine": name, "launch_us": launches_us[name], "quantity": quantity, "mode": mode}
                    score = {"cases": len(known), "inside": float(known.mean())}
                    rows.append(about | {"batch_size": batch_size} | score)
    return rows
