"""What a unit is called in a drawing."""

from __future__ import annotations

from costmodel.ir import operators
from costmodel.prediction.layers import Unit
from costmodel.report.escape import terminal

_LONGEST = 100
"""Characters of a name that a drawing shows."""


def unit_operators(unit: Unit) -> str:
    """The unit's operators, as users know them: `conv2d+batch_norm+relu`."""
    return "+".join(map(operators.kind_of, unit.ops))


def unit_label(unit: Unit) -> str:
    """The unit's name and operators, in one printable line."""
    return terminal(f"{unit.name}: {unit_operators(unit)}")


def shortened(name: str) -> str:
    """A name as it is printed, without its middle where it is too long for a drawing."""
    shown = terminal(name)
    half = _LONGEST // 2
    return shown if len(shown) <= _LONGEST else f"{shown[: half - 1]}...{shown[-half + 2 :]}"


def speedup_text(speedup: float | None) -> str:
    """The speedup as a drawing says it."""
    return "not predicted" if speedup is None else f"{speedup:.2f}x"
