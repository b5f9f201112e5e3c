"""Fit of the costs that turn kernel times into latencies to measured models: host time by cause, launches, replays.

Each cost table is a ridge regression of relative errors on counts of an issue trace, around priors that were measured
in isolation: a few dozen models cannot separate causes that always occur together. Errors beyond `OUTLIER` count
linearly (Huber), so that one unusual model has little weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.timeline import gpu, host_counts
from costmodel.timeline.cost_tables import LAUNCHES, PRIORS, WALL
from costmodel.timeline.cpu import BETWEEN, SERIAL_MODES, kernel_counts
from costmodel.timeline.timed_trace import TimedTrace

OUTLIER = 0.08
"""Relative error beyond which the loss is linear."""
STRENGTH = {
    "compile": 0.1,
    "eager_host": 0.1,
    "default_host": 0.3,
    "graph_host": 0.1,
    "launches": 0.02,
    "eager_serial": 0.03,
    "default_serial": 0.03,
}


@dataclass(frozen=True, slots=True)
class CalibrationCase:
    """A measured model with its issue traces.

    Attributes:
        eager: eager issue trace, with times of isolated kernels.
        compiled: compiled issue trace, likewise.
        measured: median times by name, microseconds.
        host_speed: speed of the host during the measurement, relative to the profile's; 1 where unknown.
    """

    eager: TimedTrace
    compiled: TimedTrace
    measured: Mapping[str, float]
    host_speed: float = 1.0


def ridge(
    rows: Sequence[Mapping[str, float]],
    target: Sequence[float],
    prior: Mapping[str, float],
    strength: float,
    given: Sequence[float] | None = None,
) -> dict[str, float]:
    """Costs by name for which sum(count x cost) + given is near the target, and the costs are near the prior.

    Minimises sum of Huber(relative error) + strength x sum of ((cost - prior) / prior)^2 by iterated least squares.

    Args:
        rows: counts by cost name, one mapping for each case.
        target: time of each case, microseconds.
        prior: costs to shrink to, microseconds.
        strength: weight of the prior.
        given: part of each target that is known, microseconds; None for nothing.
    """
    names = list(prior)
    start = np.array([prior[name] for name in names])
    scale = np.abs(start)
    y = np.asarray(target, dtype=float)
    counts = np.array([[row[name] for name in names] for row in rows], dtype=float).reshape(len(rows), len(names))
    design = counts / y[:, None] * scale
    pull = np.sqrt(strength) * np.eye(len(names))
    part = np.ones(len(y)) if given is None else 1.0 - np.asarray(given, dtype=float) / y
    goal = np.concatenate([part, np.sqrt(strength) * start / scale])
    weight = np.ones(len(y))
    solution = start / scale
    for _ in range(10):
        full = np.concatenate([weight, np.ones(len(names))])
        solution = np.linalg.lstsq(np.vstack([design, pull]) * full[:, None], goal * full, rcond=None)[0]
        error = np.abs(design @ solution - part)
        weight = np.sqrt(1.0 / np.maximum(1.0, error / OUTLIER))
    return dict(zip(names, (solution * scale).tolist(), strict=True))


def fit_tables(cases: Sequence[CalibrationCase], on_cpu: bool = False) -> dict[str, dict[str, float]]:
    """Fit every cost table of a GPU, or those of `SERIAL_MODES` for a CPU."""
    if on_cpu:
        return {table: _fit_serial(cases, way) for way, table in SERIAL_MODES.items()}
    tables: dict[str, dict[str, float]] = {}
    for way, counts in (("eager", host_counts.eager_counts), ("default", host_counts.default_counts)):
        chosen = [case for case in cases if f"{way}_host_us" in case.measured]
        rows = [counts(_issued(case, way)) for case in chosen]
        target = [case.measured[f"{way}_host_us"] * case.host_speed for case in chosen]
        tables[f"{way}_host"] = ridge(rows, target, PRIORS[f"{way}_host"], STRENGTH[f"{way}_host"])
        tables[f"{way}_device"] = _fit_launches(cases, way)
        tables[f"{way}_wall"] = _fit_wall(chosen, way, tables)
    tables["graph_host"] = _fit_graph(cases)
    return tables


def _fit_serial(cases: Sequence[CalibrationCase], way: str) -> dict[str, float]:
    """Fit factors of kernels and costs between them to wall times on a CPU."""
    name = SERIAL_MODES[way]
    chosen = [(_issued(case, way), case) for case in cases if f"{way}_us" in case.measured]
    rows = [kernel_counts(one.trace, one.device_us) | BETWEEN[name](one.trace) for one, _ in chosen]
    return ridge(rows, [case.measured[f"{way}_us"] for _, case in chosen], PRIORS[name], STRENGTH[name])


def _issued(case: CalibrationCase, way: str) -> TimedTrace:
    return case.eager if way == "eager" else case.compiled


def _fit_launches(cases: Sequence[CalibrationCase], way: str) -> dict[str, float]:
    """Fit the device time of a launch beyond its isolated kernel to measured device times."""
    rows, given, target = [], [], []
    for case in cases:
        issued, measured = _issued(case, way), case.measured.get(f"{way}_device_us")
        if measured:
            rows.append({"launch": sum(kernel.launches for kernel in issued.trace.kernels)})
            given.append(sum(issued.device_us))
            target.append(measured)
    found = ridge(rows, target, LAUNCHES, STRENGTH["launches"], given)
    return {name: float(np.clip(us, 0.0, 1.5)) for name, us in found.items()}


def _fit_wall(
    cases: Sequence[CalibrationCase], way: str, tables: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Gap between kernels that fits wall times best, with host and device times scaled to the measured ones."""
    queue = gpu.eager_queue if way == "eager" else gpu.default_queue
    known = []
    for case in cases:
        wall, device = case.measured.get(f"{way}_us"), case.measured.get(f"{way}_device_us")
        if wall and device:
            model = queue(_issued(case, way), tables)
            host = case.measured[f"{way}_host_us"] / model.host_total_us
            known.append((model.scaled(host, device / sum(model.device_us)), wall))
    if len(known) < 5:
        return dict(WALL)
    tried: list[tuple[float, float]] = []
    for gap in np.arange(0, 3.1, 0.3).tolist():
        errors = [abs(math.log(model.latency_us(gap) / seen)) for model, seen in known]
        tried.append((math.fsum(errors), gap))
    return {"gap": min(tried)[1]}


def _fit_graph(cases: Sequence[CalibrationCase]) -> dict[str, float]:
    """Fit the costs of a replay beyond its device time, to cases with both measured."""
    rows, rest = [], []
    for case in cases:
        wall, device = case.measured.get("graph_us", 0.0), case.measured.get("default_device_us")
        whole = case.compiled.trace.subgraphs == 1
        if whole and wall and device and wall - device > 30.0 and device < 6000.0:
            rows.append(host_counts.graph_counts(case.compiled.trace))
            rest.append((wall - device) * case.host_speed)
    if len(rows) < 5:
        return dict(PRIORS["graph_host"])
    return ridge(rows, rest, PRIORS["graph_host"], STRENGTH["graph_host"])
