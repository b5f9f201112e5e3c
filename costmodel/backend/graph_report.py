"""Reports of the backend: for each graph, what runs it, why, and the times that decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.planning.plan import Plan

PLAN, INDUCTOR, EAGER = "plan", "inductor", "eager"
CHOICES = (PLAN, INDUCTOR, EAGER)
"""Ways to run a graph."""


@dataclass(frozen=True, slots=True)
class GraphReport:
    """Choice for one graph.

    Attributes:
        name: number of the graph as Dynamo counts, such as `0/0`.
        operators: number of its calls; 0 if it could not be examined.
        choice: what runs it, one of CHOICES.
        why: reason in words.
        times_ms: milliseconds of a call by way to run it, as far as they are known.
        measured: whether these times were measured; else they are predicted.
        hardware: name of the profile that predicted; empty if there was no need of one.
        build_s: seconds from Dynamo's graph to the callable.
        plan: the plan, if one was made.
        notes: what happened later or did not work, one line each.
    """

    name: str
    operators: int
    choice: str
    why: str
    times_ms: Mapping[str, float] = field(default_factory=dict)
    measured: bool = False
    hardware: str = ""
    build_s: float = 0.0
    plan: Plan | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line."""
        kind = "measured" if self.measured else "predicted"
        times = ", ".join(f"{way} {self.times_ms[way]:.3f} ms" for way in CHOICES if way in self.times_ms)
        shown = f" ({kind}: {times})" if times else ""
        notes = "".join(f"; {note}" for note in self.notes)
        built = f"built in {self.build_s:.1f} s"
        return f"graph {self.name}, {self.operators} calls: {self.choice}, {self.why}{shown}; {built}{notes}"


@dataclass(frozen=True, slots=True)
class BackendReport:
    """Choices for all graphs of a compiled module or function, in the order in which Dynamo captured them."""

    graphs: tuple[GraphReport, ...]

    def __str__(self) -> str:
        """A line a graph."""
        return "\n".join(map(str, self.graphs)) or (
            "no graph was compiled for it: call it first; an equal call of torch.compile may have compiled its graphs"
        )
