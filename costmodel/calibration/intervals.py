"""Widths of prediction intervals from errors on held-out models, and the share of cases that they cover."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from costmodel.calibration.host_range import SPEEDUP, inside
from costmodel.calibration.measured_model import COLUMNS
from costmodel.calibration.scores import MODES

DEFAULT_WIDTHS = {"eager": 0.3, "default": 0.3, "reduce-overhead": 0.3}
"""Half-widths of the logarithms of latency and speedup for a profile without measured models."""
COVERAGE = 0.9
"""Share of cases that an interval covers."""


def intervals(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Half-widths of the logarithms of latency and speedup that cover 90 % of the held-out cases, by mode.

    Cases are predicted for the host that measured them, as calibrated by a probe. A mode that was never measured is
    left out.

    Args:
        frame: rows of `evaluate_case`.
    """
    return _intervals(frame, "probed_" if "probed_eager_us" in frame else "")


def _intervals(frame: pd.DataFrame, predicted: str) -> dict[str, dict[str, float]]:
    """Half-widths of predictions in columns with a prefix."""
    latency: dict[str, float] = {}
    speedup: dict[str, float] = {}
    for mode, name in COLUMNS.items():
        seen = _with(frame, f"measured_{name}_us")
        if not seen.empty:
            error = _log_error(seen, f"{predicted}{name}_us", f"measured_{name}_us")
            latency[mode] = quantile_interval(error)
    for mode in MODES:
        seen = _with(frame, f"measured_speedup/{mode}")
        if not seen.empty:
            error = _log_error(seen, f"{predicted}speedup/{mode}", f"measured_speedup/{mode}")
            speedup[mode] = quantile_interval(error)
    return {"latency": latency, "speedup": speedup}


def coverage(frame: pd.DataFrame, speeds: Sequence[float] = (1.0,)) -> dict[str, float]:
    """Share of cases inside their 90 % interval of speedup, with widths from the other families only, by mode.

    Args:
        frame: rows of `evaluate_case`.
        speeds: speeds of the hosts that an interval covers, relative to the profile's host.
    """
    shares = {}
    for mode in MODES:
        seen = _with(frame, f"measured_speedup/{mode}")
        if seen["family"].nunique() < 2:
            continue
        covered = []
        for family, cases in seen.groupby("family"):
            width = intervals(seen[seen["family"] != family])["speedup"][mode]
            covered.append(inside(cases, SPEEDUP, mode, speeds, width))
        shares[mode] = float(np.mean(np.concatenate(covered)))
    return shares


def quantile_interval(errors: npt.NDArray[np.float64], share: float = COVERAGE) -> float:
    """Half-width that covers a share of log errors (split conformal); infinite without any."""
    if not len(errors):
        return math.inf
    rank = min(1.0, np.ceil((len(errors) + 1) * share) / len(errors))
    return float(np.quantile(np.abs(errors), rank))


def _with(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Cases that have a value in a column; none if there is no such column."""
    return frame[frame[column].notna()] if column in frame else frame.iloc[:0]


def _log_error(frame: pd.DataFrame, predicted: str, measured: str) -> npt.NDArray[np.float64]:
    ratio = frame[predicted].to_numpy(dtype=np.float64) / frame[measured].to_numpy(dtype=np.float64)
    return np.asarray(np.log(ratio))
