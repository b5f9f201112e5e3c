"""Measured models -> tables of costs, and what these leave unexplained of each model.

Every case is predicted for a host as fast as a probe found the one that measured it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.calibration import host_costs, residual_fit
from costmodel.calibration.measured_model import COLUMNS, MeasuredModel
from costmodel.calibration.residual_fit import Unexplained
from costmodel.profiles.profile import at_speed
from costmodel.timeline import gpu, queue, residual_gp
from costmodel.timeline.residual_gp import ResidualModel

Tables = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What is learnt from measured models.

    Attributes:
        costs: tables of costs for the profile's own host.
        others: the residuals of the models that the costs were fitted to.
        unexplained: the residuals of every case, also of those that nothing was fitted to.
    """

    costs: dict[str, dict[str, float]]
    others: ResidualModel
    unexplained: Unexplained


def fit(
    cases: Sequence[MeasuredModel],
    known: Sequence[host_costs.CalibrationCase],
    learns: npt.NDArray[np.bool_],
    on_cpu: bool = False,
) -> Fitted:
    """Costs and residuals, learnt from some of the cases.

    Args:
        cases: what was measured.
        known: the same cases with their kernels' times and their hosts' speeds.
        learns: which of them are learnt from, (cases,).
        on_cpu: whether a CPU was measured.
    """
    costs = host_costs.fit_tables([one for one, learnt in zip(known, learns, strict=True) if learnt], on_cpu)
    left = unexplained(cases, known, costs)
    return Fitted(costs, residual_fit.fit(left.take(learns)), left)


def timings_there(case: host_costs.CalibrationCase, tables: Tables) -> dict[str, queue.Timing]:
    """A measured case's predicted times in every mode on the host that measured it, without residuals."""
    return gpu.timings(case.eager, case.compiled, tables_at(tables, case.host_speed))


def tables_at(tables: Tables, host_speed: float) -> dict[str, Mapping[str, float]]:
    """Tables of costs for a host of some speed."""
    return {name: at_speed(name, table, host_speed) for name, table in tables.items()}


def unexplained(
    cases: Sequence[MeasuredModel], known: Sequence[host_costs.CalibrationCase], tables: Tables
) -> Unexplained:
    """Logarithms of measured over predicted latency, each case predicted for the host that measured it."""
    properties, logs = [], []
    for case, one in zip(cases, known, strict=True):
        timings = timings_there(one, tables)
        properties.append(residual_gp.properties_of(one.eager, one.compiled))
        seen = {mode: case.medians.get(f"{COLUMNS[mode]}_us", math.nan) for mode in timings}
        logs.append({mode: math.log(us / timings[mode].latency_us) for mode, us in seen.items()})
    modes = dict.fromkeys(mode for one in logs for mode in one)  # a pass that was cut lacks one
    columns = {mode: np.array([one.get(mode, math.nan) for one in logs]) for mode in modes}
    return Unexplained(np.array(properties), columns, tuple(case.key for case in cases))
