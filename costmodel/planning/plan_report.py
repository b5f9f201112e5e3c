"""Plans as documents: predicted latency of the plan and of every mode, then the regions."""

from __future__ import annotations

import math

from costmodel.planning.plan import Plan
from costmodel.report.document import Column, Document, Records, Section, Tone, figures
from costmodel.report.figures import MEBIBYTE, NONE, counted, milliseconds, tenths, times
from costmodel.report.renderers import render_document
from costmodel.report.types import Graphs

_LATENCY_COLUMNS = (
    Column("mode", keeps_width=True),
    figures("latency ms", milliseconds, has_bar=True),
    figures("relative to plan", times),
)
_REGION_COLUMNS = (
    figures("region", str),
    Column("layer", keeps_width=True),
    figures("ops", str),
    Column("backend"),
    figures("stream", str),
    figures("us", tenths),
    Column("reason"),
)


def render_plan(
    plan: Plan,
    format: str = "table",  # noqa: A002 - the name of the option
    width: int | None = None,
    *,
    color: bool = False,
) -> str:
    """Render a plan as text that ends in a newline; CSV holds the regions.

    Args:
        plan: the plan.
        format: one of FORMATS.
        width: columns of the terminal, for `table`; None for no limit.
        color: whether `table` may use terminal colours.

    Raises:
        RequestError: unknown format.
    """
    return render_document(plan_document(plan), format, width, color=color)


def plan_document(plan: Plan) -> Document:
    """The document of a plan."""
    planned = plan.latency_ms["plan"]
    best = min((ms for mode, ms in plan.latency_ms.items() if mode != "plan"), default=planned)
    latencies = [(mode, ms, ms / planned) for mode, ms in plan.latency_ms.items()]
    regions = [
        (index, region.span or NONE, len(region.ops), region.backend, region.stream, region.us, region.why)
        for index, region in enumerate(plan.regions)
    ]
    gain = f"{times(best / planned)} the speed of the fastest mode (predicted)"
    tone = Tone.GOOD if best > planned else Tone.PLAIN
    sections = (
        Section("latency", _LATENCY_COLUMNS, latencies, gain, tone),
        Section("regions", _REGION_COLUMNS, regions),
    )
    faults = "".join(f": {text}" for text in plan.warnings)
    title = f"plan for {', '.join(filter(None, (plan.model, plan.arithmetic.words)))} on {plan.hardware}{faults}"
    return Document(plan.model, title, sections, plan.to_dict(), _records(plan), _notes(plan))


def _notes(plan: Plan) -> list[str]:
    rewrites = ", ".join(map(_rewrite, plan.rewrites)) or "none"
    streams = f" on {plan.streams} CUDA streams" if plan.streams > 1 else ""
    search = "; cuDNN algorithms are searched" if plan.search else ""
    launch = "captured in one CUDA graph" if plan.launch == "graph" else "launched call after call"
    breaks = Graphs(plan.graphs, plan.graphs is not None).summary
    notes = [f"graph rewrites: {rewrites}", f"{launch}{streams}{search}", f"compile time: about {plan.build_s:.0f} s"]
    notes.append(f"torch.compile: {breaks}")
    if plan.amp is not None:
        notes.append(f"weights are cast to {plan.amp} once; the applied module is called with or without autocast")
    if plan.roofline_ms is not None and plan.roofline_distance is not None:
        bound = milliseconds(plan.roofline_ms)
        notes.append(f"{times(plan.roofline_distance)} the roofline of its kernels, which is {bound} ms")
    if plan.memory_bytes is not None:
        notes.append(f"a call needs about {math.ceil(plan.memory_bytes / MEBIBYTE)} MiB")
    return notes


def _rewrite(text: str) -> str:
    """A graph rewrite, and the number of its places unless it is made wherever it matches."""
    name, _, places = text.partition(":")
    return f"{name} at {counted(places.count(',') + 1, 'place')}" if places else name


def _records(plan: Plan) -> Records:
    """Rows of the CSV: the regions."""
    fault = {"too_large": "; ".join(plan.warnings), "arithmetic": plan.arithmetic.words}
    rows = [{"region": index, **region, **fault} for index, region in enumerate(plan.to_dict()["regions"])]
    return Records(list(rows[0]) if rows else ["region", *fault], rows)
