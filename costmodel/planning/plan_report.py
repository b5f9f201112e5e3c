"""Report of a plan: latencies and a table of its regions."""

from __future__ import annotations

from costmodel.planning.plan import Plan
from costmodel.report.rows import NONE, milliseconds, number, times
from costmodel.report.sections import Sheet, _render


def render_plan(plan: Plan, format: str = "table", width: int | None = None) -> str:  # noqa: A002
    """Render a plan: predicted latency beside every mode, then the regions in order; CSV holds the regions.

    Raises:
        RequestError: unknown format.
    """
    regions = [{"region": index, **region} for index, region in enumerate(plan.to_dict()["regions"])]
    return _render(plan.to_dict(), regions, plan_sheet(plan), format, width)


def plan_sheet(plan: Plan) -> Sheet:
    """Build the tables and notes of a plan."""
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
    rewrites = ", ".join(map(_rewrite_text, plan.rewrites)) or "none"
    search = "; cuDNN searches its algorithms" if plan.search else ""
    needs = "" if plan.memory_bytes is None else f"; a call needs about {plan.memory_bytes / 2**20:.0f} MiB"
    launch = f"{_launch_text(plan)}{search}"
    notes = [f"graph rewrites: {rewrites}; {launch}; compiling takes about {plan.build_s:.0f} s{needs}"]
    faults = "".join(f"{text}; " for text in plan.warnings)
    gain = f"{times(best / planned)} the speed of the best mode, predicted"
    title = f"plan for {plan.model} on {plan.hardware}: {faults}{gain}"
    columns = ("region", "layer", "count", "backend", "stream", "us", "why")
    return Sheet(
        title, (("latency", ("mode", "latency ms", "of plan"), latencies), ("regions", columns, regions)), notes
    )


def _launch_text(plan: Plan) -> str:
    if plan.launch != "graph":
        return "launched call by call"
    side = f" on {plan.streams} streams" if plan.streams > 1 else ""
    return f"launched as one CUDA graph{side}"


def _rewrite_text(text: str) -> str:
    """Name of a rewrite, with the number of its places unless it is applied everywhere."""
    name, _, places = text.partition(":")
    return f"{name} at {places.count(',') + 1}" if places else name
