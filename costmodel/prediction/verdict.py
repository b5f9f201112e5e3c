"""Intervals of speedup -> verdict: whether to compile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from costmodel.report.types import EAGER, ModePrediction

COMPILE, LEAVE, UNCERTAIN = "compile", "leave", "uncertain"


class Verdict(NamedTuple):
    """Whether to compile.

    Attributes:
        verdict: COMPILE, LEAVE or UNCERTAIN.
        leaning: the likelier of COMPILE and LEAVE, also where the verdict is uncertain; None where nothing is known of
            the whole model.
    """

    verdict: str
    leaning: str | None


def verdict_of(modes: Mapping[str, ModePrediction], whole: bool) -> Verdict:
    """Verdict from the 90 % prediction intervals of speedup alone.

    Compile if a mode's interval lies above 1; leave if the intervals of all modes lie below 1; otherwise uncertain, and
    the fastest mode says which side is likelier.

    Args:
        modes: predictions by mode.
        whole: whether the predictions are of the whole model, and it fits in memory.
    """
    compiled = [mode for name, mode in modes.items() if name != EAGER and mode.speedup is not None]
    if not whole or not compiled:
        return Verdict(UNCERTAIN, None)
    leaning = COMPILE if max(mode.speedup or 0.0 for mode in compiled) > 1.0 else LEAVE
    if any((mode.speedup_low or 0.0) > 1.0 for mode in compiled):
        return Verdict(COMPILE, COMPILE)
    if all(mode.speedup_high is not None and mode.speedup_high < 1.0 for mode in compiled):
        return Verdict(LEAVE, LEAVE)
    return Verdict(UNCERTAIN, leaning)
