"""Rendering of a plan: a table of its regions, and the same rows for files."""

from __future__ import annotations

from costmodel.planning.plan import Plan
from costmodel.report.rows import NONE, milliseconds, number, times
from costmodel.report.sections import Sheet, _render


def render_plan(plan: Plan, format: str = "table", width: int | None = None) -> str:  # noqa: A002
    """A plan: predicted latency against every mode, then its regions in order; CSV holds the regions.

    Raises:
        RequestError: unknown format.
    """
    regions = [{"region": index, **region} for index, region in enumerate(plan.to_dict()["regions"])]
    return _render(plan.to_dict(), regions, plan_sheet(plan), format, width)


def plan_sheet(plan: Plan) -> Sheet:
    """What a plan's reader is shown."""
    planned = plan.latency_ms["plan"]
    best = min((ms for mode, ms in plan.latency_ms.items() if mode != "plan"), default=planned)
    latencies = [(mode, milliseconds(ms), times(ms / planned)) for mode, ms in plan.latency_ms.items()]
    regions = [
        (
            str(index),
            region.span or NONE,
            str(len(region.ops)),
            region.backend,
            str(region.stream),
            number(region.us, 1),
            region.why,
        )
        for index, region in enumerate(plan.regions)
    ]
    moves = ", ".join(map(_move, plan.rewrites)) or "none"
    side = f" of {plan.streams} lanes side by side" if plan.streams > 1 else ""
    search = "; cuDNN's algorithms are searched" if plan.search else ""
    needs = "" if plan.memory_bytes is None else f"; a call needs about {plan.memory_bytes / 2**20:.0f} MiB"
    launch = f"launched as one {plan.launch}{side}{search}"
    notes = [f"moves: {moves}; {launch}; compiling takes about {plan.build_s:.0f} s{needs}"]
    faults = "".join(f"{text}; " for text in plan.warnings)
    gain = f"{times(best / planned)} the speed of the best mode, predicted"
    title = f"plan for {plan.model} on {plan.hardware}: {faults}{gain}"
    columns = ("region", "layer", "count", "backend", "lane", "us", "why")
    return Sheet(
        title, (("latency", ("mode", "latency ms", "of plan"), latencies), ("regions", columns, regions)), notes
    )


def _move(text: str) -> str:
    """A move, and at how many places it is made, if not at all of them."""
    name, _, places = text.partition(":")
    return f"{name} at {places.count(',') + 1}" if places else name
