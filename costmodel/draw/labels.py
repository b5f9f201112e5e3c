"""What a unit is called in a drawing."""

from __future__ import annotations

from costmodel import ops
from costmodel.units import Unit


def unit_operators(unit: Unit) -> str:
    """The unit's operators, as users know them: `conv2d+batch_norm+relu`."""
    return "+".join(map(ops.kind_of, unit.ops))


def unit_label(unit: Unit) -> str:
    """The unit's name and operators, in one line."""
    return f"{unit.name}: {unit_operators(unit)}"


def speedup_text(speedup: float | None) -> str:
    """The speedup as a drawing says it."""
    return "not predicted" if speedup is None else f"{speedup:.2f}x"
