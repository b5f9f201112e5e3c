"""Compile time of a mode, and the calls after which it has paid off, as fields of a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from costmodel.profiles.profile import Profile
from costmodel.report.types import ModePrediction
from costmodel.timeline.compile_time import (
    ASSUMED_WIDTH,
    COLD,
    WARM,
    Seconds,
    compile_us,
    counts_of,
    with_interval,
)
from costmodel.timeline.issue_trace import IssueTrace

MOST_CALLS = 10**15
"""Most calls to break-even that are counted; beyond it a compilation never pays off."""


def compile_fields(
    compiled: IssueTrace, mode: str, eager: ModePrediction, speedups: tuple[float, float, float], profile: Profile
) -> dict[str, Any]:
    """Fields of `ModePrediction` about compilation in a mode; warm ones are left out of a profile without.

    Args:
        compiled: compiled issue trace.
        mode: mode of torch.compile.
        eager: prediction of eager execution.
        speedups: speedup of the mode, and the bounds of its 90 % interval.
        profile: profile of the hardware.

    Raises:
        ProfileError: the profile has no costs of compiling.
    """
    fields = cold_fields(_seconds(COLD, compiled, mode, profile), eager, speedups)
    if profile.summary.costs.compile_warm:
        warm = _seconds(WARM, compiled, mode, profile)
        fields |= {"compile_warm_s": warm.s, "compile_warm_s_low": warm.low, "compile_warm_s_high": warm.high}
    return fields


def cold_fields(cold: Seconds, eager: ModePrediction, speedups: tuple[float, float, float]) -> dict[str, Any]:
    """Fields about compilation with an empty cache; arguments are those of `break_even`."""
    calls, low, high = break_even(cold, eager, speedups)
    return {
        "compile_s": cold.s,
        "compile_s_low": cold.low,
        "compile_s_high": cold.high,
        "break_even_calls": calls,
        "break_even_low": low,
        "break_even_high": high,
    }


def _seconds(table: str, compiled: IssueTrace, mode: str, profile: Profile) -> Seconds:
    widths: Mapping[str, float] = profile.summary.intervals.get(table, {})
    return with_interval(compile_us(counts_of(compiled), profile.costs(table)), widths.get(mode, ASSUMED_WIDTH))


def break_even(
    compile_time: Seconds, eager: ModePrediction, speedups: tuple[float, float, float]
) -> tuple[int | None, int | None, int | None]:
    """Calls after which compiling has paid off, and the bounds of their 90 % interval; None for never.

    Calls are compile time over the time that a call saves, eager latency x (1 - 1 / speedup). The three are taken as
    independent: half-widths of their logarithms add up in squares. A bound is None if its speedup is at most 1.

    Args:
        compile_time: seconds to compile.
        eager: prediction of eager execution.
        speedups: speedup, and the bounds of its 90 % interval.
    """
    gain, least, most = (1.0 - 1.0 / speedup for speedup in speedups)
    eager_s, spread = eager.latency_ms / 1e3, math.log(eager.high_ms / eager.latency_ms)
    usual = compile_time.s / (eager_s * gain) if gain > 0 else math.inf

    def bound(seconds: float, share: float, side: int) -> float:
        """Bound of the calls, for a bound of the compile time and one of the share that a call saves."""
        if share <= 0:
            return math.inf
        if gain <= 0:
            return seconds / (eager_s * share)
        away = math.hypot(math.log(seconds / compile_time.s), math.log(share / gain), spread)
        return usual * math.exp(side * away)

    low, high = bound(compile_time.low, most, -1), bound(compile_time.high, least, 1)
    return _two_digits(usual), _two_digits(low), _two_digits(high)


def _two_digits(calls: float) -> int | None:
    """A number of calls to two significant digits, at least 1; None for never."""
    return max(1, int(float(f"{calls:.2g}"))) if calls < MOST_CALLS else None
