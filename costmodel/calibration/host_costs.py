"""Whole-model measurements -> the costs that turn kernels into latencies: host time by cause, cold launches, constants.

Each table of costs is a regression of relative errors on what the model issues, drawn towards what was measured in
isolation (a ridge around a prior): a few dozen models cannot tell apart causes that always come together. Errors beyond
`OUTLIER` count linearly (Huber), so that one model with a quirk does not spoil the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.timeline import gpu, host_counts
from costmodel.timeline.cost_tables import LAUNCHES, PRIORS, WALL
from costmodel.timeline.cpu import BETWEEN, SERIAL_MODES, kernel_counts
from costmodel.timeline.issue_trace import compile_counts
from costmodel.timeline.timed_trace import TimedTrace

OUTLIER = 0.08
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
    """One measured model: what it issues with the kernels' times alone, and what was measured, microseconds.

    `host_speed` is how fast the host was then, against the sweep's median (its speed drifts); 1 where unknown.
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
    """Costs by name that make sum(count x cost), and what is given, the target, in relative terms, near `prior`.

    Minimises sum of Huber(relative error) + strength x sum of ((cost - prior) / prior)^2 by iterated least squares.
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
    """Every table of costs that the timeline needs, from measured cases; a CPU's are those of `SERIAL_MODES`."""
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
    """Factors of kernels and costs between them that a CPU's wall times are sums of."""
    name = SERIAL_MODES[way]
    chosen = [(_issued(case, way), case) for case in cases if f"{way}_us" in case.measured]
    rows = [kernel_counts(one.trace, one.device_us) | BETWEEN[name](one.trace) for one, _ in chosen]
    return ridge(rows, [case.measured[f"{way}_us"] for _, case in chosen], PRIORS[name], STRENGTH[name])


def _issued(case: CalibrationCase, way: str) -> TimedTrace:
    return case.eager if way == "eager" else case.compiled


def _fit_launches(cases: Sequence[CalibrationCase], way: str) -> dict[str, float]:
    """What a model's launches take beyond their kernels alone, from the models whose device time was measured."""
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
    """The gap between kernels that explains wall times best, host and device times being as measured."""
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
    """What a replay adds to device time, from the cases where both were measured."""
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


def fit_compile(
    cases: Sequence[CalibrationCase], contended_s: Sequence[float | None], cold_s: Sequence[float | None]
) -> dict[str, float]:
    """Compile time by cause, microseconds, from many cases compiled at once and a few compiled alone.

    The times of parallel compilations give the shape; the median ratio of the few that were also timed alone, with
    empty caches, gives the scale.
    """
    ratios = [cold / busy for cold, busy in zip(cold_s, contended_s, strict=True) if cold and busy]
    scale = float(np.median(ratios)) if ratios else 1.0
    known = [(case, busy) for case, busy in zip(cases, contended_s, strict=True) if busy]
    if len(known) < 5:
        return dict(PRIORS["compile"])
    rows = [compile_counts(case.compiled.trace.kernels) for case, _ in known]
    return ridge(rows, [busy * scale * 1e6 for _, busy in known], PRIORS["compile"], STRENGTH["compile"])


def quantile_interval(errors: npt.NDArray[np.float64], coverage: float = 0.9) -> float:
    """Half-width of the log error that covers so large a share of the cases (split conformal); infinite for no case."""
    if not len(errors):
        return math.inf
    rank = min(1.0, np.ceil((len(errors) + 1) * coverage) / len(errors))
    return float(np.quantile(np.abs(errors), rank))
