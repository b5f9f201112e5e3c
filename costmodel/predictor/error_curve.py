"""Growth of a kernel's error with its distance to the nearest measured kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """Factors by which the interval of a kernel is wider than that of the usual kernel that takes as long.

    Attributes:
        distances: distances to the nearest measured kernel in scaled features, ascending.
        factors: factor at each distance, not decreasing; linear in between, constant beyond either end.
    """

    distances: tuple[float, ...]
    factors: tuple[float, ...]

    def factor(self, distance: float) -> float:
        """Factor at a distance."""
        return float(self.factors_at(np.array([distance]))[0])

    def factors_at(self, distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Factors at several distances."""
        return np.asarray(np.interp(distances, self.distances, self.factors))
