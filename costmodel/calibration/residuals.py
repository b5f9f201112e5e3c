"""Measured models -> cost tables, and the residuals of each model.

Every case is predicted for the host that measured it, as calibrated by a probe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.calibration import host_costs, residual_fit
from costmodel.calibration.measured_model import COLUMNS, MeasuredModel
from costmodel.calibration.residual_fit import Residuals
from costmodel.profiles.card import at_speed
from costmodel.timeline import gpu, queue, residual_gp
from costmodel.timeline.residual_gp import ResidualModel

Tables = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Results of a fit to measured models.

    Attributes:
        costs: cost tables for the profile's host.
        others: residual model of the cases that the costs were fitted to.
        unexplained: residuals of every case, those held out included.
    """

    costs: dict[str, dict[str, float]]
    others: ResidualModel
    unexplained: Residuals


def fit(
    cases: Sequence[MeasuredModel],
    known: Sequence[host_costs.CalibrationCase],
    learns: npt.NDArray[np.bool_],
    on_cpu: bool = False,
) -> Fitted:
    """Fit costs and the residual model to some of the cases.

    Args:
        cases: measured models.
        known: the same with predicted kernel times and host speeds.
        learns: which of them to fit to, (cases,).
        on_cpu: whether a CPU was measured.
    """
    costs = host_costs.fit_tables([one for one, learnt in zip(known, learns, strict=True) if learnt], on_cpu)
    left = unexplained(cases, known, costs)
    return Fitted(costs, residual_fit.fit(left.take(learns)), left)


def timings_on_its_host(case: host_costs.CalibrationCase, tables: Tables) -> dict[str, queue.Timing]:
    """Predicted times of a case in every mode, on the host that measured it, without the residual model."""
    return gpu.timings(case.eager, case.compiled, tables_at(tables, case.host_speed))


def tables_at(tables: Tables, host_speed: float) -> dict[str, Mapping[str, float]]:
    """Cost tables for a host of another speed."""
    return {name: at_speed(name, table, host_speed) for name, table in tables.items()}


def unexplained(
    cases: Sequence[MeasuredModel], known: Sequence[host_costs.CalibrationCase], tables: Tables
) -> Residuals:
    """Logarithms of measured over predicted latency, each case predicted for the host that measured it."""
    properties, logs = [], []
    for case, one in zip(cases, known, strict=True):
        timings = timings_on_its_host(one, tables)
        properties.append(residual_gp.properties_of(one.eager, one.compiled))
        seen = {mode: case.medians.get(f"{COLUMNS[mode]}_us", math.nan) for mode in timings}
        logs.append({mode: math.log(us / timings[mode].latency_us) for mode, us in seen.items()})
    modes = dict.fromkeys(mode for one in logs for mode in one)
    columns = {mode: np.array([one.get(mode, math.nan) for one in logs]) for mode in modes}
    return Residuals(np.array(properties), columns, tuple(case.key for case in cases))
