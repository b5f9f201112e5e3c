"""Labels of units in drawings."""

from __future__ import annotations

from costmodel.ir import operators
from costmodel.prediction.layers import Unit
from costmodel.report.escape import terminal

_LONGEST = 100
"""Most characters of a name in a drawing."""


def unit_operators(unit: Unit) -> str:
    """Join the kinds of a unit's operators: `conv2d+batch_norm+relu`."""
    return "+".join(map(operators.kind_of, unit.ops))


def unit_label(unit: Unit) -> str:
    """Name and operators of a unit, in one printable line."""
    return terminal(f"{unit.name}: {unit_operators(unit)}")


def shortened(name: str) -> str:
    """Printable name; the middle of a long name is left out."""
    shown = terminal(name)
    half = _LONGEST // 2
    return shown if len(shown) <= _LONGEST else f"{shown[: half - 1]}...{shown[-half + 2 :]}"


def speedup_text(speedup: float | None) -> str:
    """Text of a speedup in a drawing."""
    return "not predicted" if speedup is None else f"{speedup:.2f}x"
