"""Change of a predicted figure between two reports: the ratio, its 90 % interval, and a verdict.

A predicted time errs by a factor. Two predictions of one profile share a part of that factor, which their ratio
cancels, so the interval of a ratio is narrower than two independent intervals would make it. In logarithms:

- The half-width of an interval is the smaller of its two sides. The larger side is longer because the interval also
  covers slower hosts; the difference is the *host part*.
- Two half-widths a and b combine to sqrt(a^2 + b^2 - 2 r a b). The correlation r is `FAMILY_CORRELATION` for reports of
  one hardware profile, rises to 1 with the share of the time that is the same in both reports, and is 0 for
  reports of two profiles, whose errors are independent.
- Two reports that assume the same uncalibrated host run on one host, whichever it is: only the difference of their host
  parts remains, on the side of the longer. Otherwise each host part widens its own side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FASTER, SLOWER, SAME, UNCERTAIN = "faster", "slower", "same", "uncertain"

FAMILY_CORRELATION = 0.3
"""Correlation of the errors of two predictions for models of one family on one machine.

The largest multiple of 0.1 for which nine in ten measured ratios lie in their intervals (`docs/comparing.md`)."""
SAME_FACTOR = 1.03
"""Largest factor between two times that are called the same: measured latencies repeat within about 3 %."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A predicted figure above 0 with its 90 % interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Smaller side of the interval of the logarithm."""
        return min(self._sides)

    @property
    def host_part(self) -> float:
        """Difference of the two sides, positive where the upper is the longer one."""
        below, above = self._sides
        return above - below

    @property
    def _sides(self) -> tuple[float, float]:
        return max(0.0, math.log(self.value / self.low)), max(0.0, math.log(self.high / self.value))


@dataclass(frozen=True, slots=True)
class Sharing:
    """Causes of error that two predictions have in common.

    Attributes:
        profile: whether both are of one hardware profile.
        host: whether both assume the same host.
        unchanged: share of the time that is the same in both, 0 to 1.
    """

    profile: bool
    host: bool
    unchanged: float = 0.0

    @property
    def correlation(self) -> float:
        """Correlation of the errors."""
        return FAMILY_CORRELATION + (1.0 - FAMILY_CORRELATION) * self.unchanged if self.profile else 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a figure.

    Attributes:
        before, after: the figure in each report.
        ratio: `after` over `before`.
        ratio_low, ratio_high: 90 % interval of the ratio.
        verdict: `faster`, `slower`, `same` or `uncertain`.
    """

    before: float
    after: float
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: str


def change_of(before: Bounded, after: Bounded, sharing: Sharing, *, less_is_faster: bool = True) -> Change:
    """Change of a figure from one prediction to another.

    The verdict is `same` if the whole interval of the ratio lies within SAME_FACTOR of 1; `faster` or `slower` if the
    whole interval lies on one side of 1; else `uncertain`.

    Args:
        before: the figure in the first report.
        after: the figure in the second report.
        sharing: causes of error that the two have in common.
        less_is_faster: True for times, False for speedups.
    """
    a, b = before.half_width, after.half_width
    width = math.sqrt(max(0.0, a**2 + b**2 - 2.0 * sharing.correlation * a * b))
    if sharing.profile and sharing.host:
        longer = after.host_part - before.host_part
        below, above = max(0.0, -longer), max(0.0, longer)
    else:
        below = max(0.0, before.host_part) + max(0.0, -after.host_part)
        above = max(0.0, after.host_part) + max(0.0, -before.host_part)
    ratio = after.value / before.value
    low, high = ratio / math.exp(width + below), ratio * math.exp(width + above)
    return Change(before.value, after.value, ratio, low, high, _verdict(low, high, less_is_faster))


def _verdict(low: float, high: float, less_is_faster: bool) -> str:
    if low >= 1.0 / SAME_FACTOR and high <= SAME_FACTOR:
        return SAME
    if low <= 1.0 <= high:
        return UNCERTAIN
    return FASTER if (high < 1.0) == less_is_faster else SLOWER
