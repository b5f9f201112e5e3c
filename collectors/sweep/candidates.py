"""Rank candidates for measurement, given a ledger: cases -> candidates -> the most informative per second first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import block_diag, csr_array

from collectors.sweep.acquisition import Values, expected_error, likeness, order, standardised, uncovered
from collectors.workloads.cases import Runner, UnitCase, distinct
from costmodel.device import ASSUMED_GPU
from costmodel.features import OPTIONAL, Roofline, featurize, group_of
from costmodel.features.scalars import log2_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.predictor import Base
from costmodel.training.dataset import kernel_of, units_frame
from costmodel.training.roofline_fit import fit_roofline
from costmodel.training.tables import LEAST_ROWS, Table, drop, tabulate, trusted
from costmodel.training.transferred import relative_to_base

CEILINGS = {"cuda": Roofline(2e6, {}, 2.0), "cpu": Roofline(2e4, {}, 5.0)}
"""Ceilings before anything is measured: bytes per microsecond, and the smallest kernel in microseconds."""
CALLS = 30
"""Number of runs of a kernel in a measurement: warm-up, capture, replays, host time."""
UNKNOWN_ERROR = 1.0
"""Expected error in log time of a kernel of a group with almost no measurements; with a base, the half-width of its
interval there."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Cases measured together: a single kernel, or a unit in all its ways.

    Attributes:
        cases: the cases.
        kernel: the kernel that training reads (`costmodel.training.tables.trusted`); None if there is none.
    """

    cases: tuple[UnitCase, ...]
    kernel: Kernel | None

    @property
    def uses(self) -> int:
        """Number of calls in the models that units are taken from."""
        return max(case.uses for case in self.cases)

    def open(self, finished: set[tuple[str, str]]) -> bool:
        """Whether one of its cases has not ended."""
        return any((case.key, case.unit) not in finished for case in self.cases)


def candidates(cases: Iterable[UnitCase]) -> list[Candidate]:
    """Group cases that are measured together, in order of first appearance."""
    together: dict[tuple[str, str], list[UnitCase]] = {}
    for case in distinct(cases):
        together.setdefault((case.unit, "" if case.unit else case.key), []).append(case)
    return [Candidate(tuple(several), _kernel(several)) for several in together.values()]


def _kernel(cases: Sequence[UnitCase]) -> Kernel | None:
    """Kernel that training reads: a single one, or a unit's fused cuDNN kernel."""
    for case in cases:
        if not case.unit or case.way == "cudnn":
            return kernel_of(case.graph, case.runner)
    return None


def rank(
    of: Sequence[Candidate],
    rows: Sequence[Mapping[str, Any]],
    device: str,
    seconds: Mapping[Runner, float],
    base: Base | None = None,
) -> list[Candidate]:
    """Rank candidates, the most informative per second first; those that training does not read come last.

    Args:
        of: candidates that have not been measured.
        rows: rows of the ledger.
        device: `cpu`, `cuda` or `cuda:N`.
        seconds: time of a case of each runner, apart from the runs of its kernel.
        base: predictor that the difference is learnt from: candidates that are expected to differ most from its
            predictions come first. None for a profile without a base.
    """
    groups: dict[str, list[int]] = {}
    for index, one in enumerate(of):
        if one.kernel is not None:
            groups.setdefault(group_of(one.kernel), []).append(index)
    if not groups:
        return list(of)
    tables, roofline = _measured(rows, device, base)
    likes, errors, costs = [], [], []
    for group, members in groups.items():
        some = [of[index] for index in members]
        like, error, us = _judge(some, tables.get(group), roofline, base)
        likes.append(like)
        errors.append(error * [one.uses for one in some])
        costs.append([_seconds(one, float(time), seconds) for one, time in zip(some, us, strict=True)])
    places = [index for members in groups.values() for index in members]
    ranked = order(csr_array(block_diag(likes, format="csr")), np.concatenate(errors), np.concatenate(costs))
    rest = [index for index, one in enumerate(of) if one.kernel is None]
    return [of[index] for index in [*(places[row] for row in ranked), *rest]]


def _measured(
    rows: Sequence[Mapping[str, Any]], device: str, base: Base | None
) -> tuple[Mapping[str, Table], Roofline]:
    """Training tables of a ledger, by group, and the roofline fitted to them."""
    frame = trusted(units_frame(rows))
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    few = len(frame) < LEAST_ROWS
    roofline = CEILINGS[device.partition(":")[0]] if few else fit_roofline(kernels, frame["device_us_p50"].tolist())
    tables = tabulate(kernels, frame, roofline, ASSUMED_GPU.multiprocessors, least=1)
    tables = {group: drop(table, OPTIONAL) for group, table in tables.items()}
    return tables if base is None else relative_to_base(tables, kernels, base), roofline


def _judge(
    of: Sequence[Candidate], table: Table | None, roofline: Roofline, base: Base | None
) -> tuple[csr_array, Values, Values]:
    """Likeness, uncovered error and expected microseconds of the candidates of one group."""
    kernels = [one.kernel for one in of if one.kernel is not None]
    named = [featurize(kernel, roofline, ASSUMED_GPU.multiprocessors) for kernel in kernels]
    names = [name for name in named[0] if name not in OPTIONAL]
    raw = np.array([[features[name] for name in names] for features in named], dtype=np.float32)
    bound, unknown = np.array([roofline.bound_us(kernel) for kernel in kernels]), np.full(len(of), UNKNOWN_ERROR)
    if base is not None:
        estimates = base.predictor.predict(kernels, [0.5] * len(kernels))
        bound = np.array([one.us for one in estimates])
        unknown = np.array([min(UNKNOWN_ERROR, math.log(one.high_us / one.us)) for one in estimates])
        raw = np.concatenate([raw, np.array([[log2_of(us)] for us in bound], dtype=np.float32)], axis=1)
    if table is None:
        return likeness(standardised(raw)), unknown, bound
    count = len(of)
    x = standardised(np.concatenate([raw, table.raw]))
    like = likeness(x)
    left = uncovered(like, np.arange(count, len(x)))[:count]
    if len(table.time_us) < LEAST_ROWS:
        return csr_array(like[:count, :count]), unknown * left, bound
    error, ratio = expected_error(x[:count], x[count:], table.target, table.shape)
    return csr_array(like[:count, :count]), error * left, bound * np.exp(np.clip(ratio, -3.0, 6.0))


def _seconds(one: Candidate, us: float, seconds: Mapping[Runner, float]) -> float:
    return sum(seconds[case.runner] + CALLS * us / 1e6 for case in one.cases)
