"""Records of an experiment: its points, its rows, its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from costmodel.errors import CostmodelError
from costmodel.measurement.timers import Measurement

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

T = TypeVar("T")

Row = dict[str, object]
"""One row of a tidy table: labels; `quantity`, with its unit in the name; `value`, `low`, `high`, `samples`."""


class SkippedError(CostmodelError):
    """An experiment or a point cannot run on this device; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings of a run.

    Attributes:
        device: `cpu`, `cuda` or `cuda:N`.
        quick: whether to measure small cases only, few times.
        drawings: directory for drawings that an experiment makes beside its figure.
        rehearses: whether points run only to fill the compiler's cache on disk, so that their times do not matter.
    """

    device: str
    quick: bool
    drawings: Path
    rehearses: bool = False

    @property
    def on_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    @property
    def seconds(self) -> float:
        """Duration of measuring one quantity."""
        return 0.0 if self.rehearses else self.chosen(0.2, 0.05)

    @property
    def least(self) -> int:
        """Least number of samples of a quantity."""
        return 1 if self.rehearses else self.chosen(10, 3)

    def chosen(self, full: T, quick: T) -> T:
        """Cases of a full or of a quick run."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Point:
    """Smallest part of an experiment that is measured, stored and resumed.

    Attributes:
        name: unique in the experiment.
        measure: makes the rows.
    """

    name: str
    measure: Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Measured result beside the claim.

    Attributes:
        measured: sentence on what was measured here.
        holds: whether the claim holds here; None if the rows do not suffice to judge.
    """

    measured: str
    holds: bool | None

    @property
    def word(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "does not hold", None: "not judged"}[self.holds]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of a paper.

    Attributes:
        name: name on the command line and of the files.
        source: paper and section, figure or table.
        claim: the paper's conclusion, in words of our own.
        run: settings -> points, in order; raises `SkippedError` if the device cannot run it.
        figure: rows -> figure.
        judge: rows -> verdict.
        compiles: whether points compile something that a cache on disk keeps.
        measures: whether results depend on the machine; those that do not may join results of another one.
    """

    name: str
    source: str
    claim: str
    run: Callable[[Setup], Iterable[Point]]
    figure: Callable[[pd.DataFrame], Figure]
    judge: Callable[[pd.DataFrame], Verdict]
    compiles: bool = True
    measures: bool = True


def timed(labels: Mapping[str, object], quantity: str, found: Measurement, scale: float = 1e-3) -> Row:
    """Row of a measured time: the median with quartiles.

    Args:
        labels: columns that identify the case.
        quantity: name with its unit, `latency_ms`.
        found: samples in microseconds.
        scale: units of the quantity in a microsecond.
    """
    low, high = found.quantile(0.25), found.quantile(0.75)
    return valued(labels, quantity, found.median_us * scale, low * scale, high * scale, len(found.samples_us))


def valued(
    labels: Mapping[str, object],
    quantity: str,
    value: float,
    low: float | None = None,
    high: float | None = None,
    samples: int = 1,
) -> Row:
    """Row of any quantity."""
    return {**labels, "quantity": quantity, "value": value, "low": low, "high": high, "samples": samples}


def noted(labels: Mapping[str, object], note: str) -> Row:
    """Row of a case without a value, with the reason."""
    return {**labels, "quantity": "", "note": note}
