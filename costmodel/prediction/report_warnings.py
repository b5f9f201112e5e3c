"""Warnings of a report: graph breaks, operators without a cost rule, kernels unlike measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.ir import Break, Graph, operators
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.predictor import Estimate
from costmodel.profiles.profile import Profile
from costmodel.report.figures import counted
from costmodel.report.types import Unsupported
from costmodel.timeline.issue_trace import subgraph_count


def unsupported_in(graph: Graph) -> tuple[Unsupported, ...]:
    """Operators without a cost rule, and places with graph breaks."""
    unknown = {(op.base, op.module): None for op in graph.ops if not operators.lookup(op).supported}
    places: dict[tuple[str, str], list[str]] = {}
    for item in graph.breaks:
        places.setdefault((item.op, item.source), []).append(item.module)
    breaks = {(op, _places(source, modules)): None for (op, source), modules in places.items()}
    return tuple(Unsupported(name, where) for name, where in unknown | breaks)


def _places(source: str, modules: Sequence[str]) -> str:
    """Modules that run a line of source, and the line."""
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0]}{more} ({source})".strip()


def unmeasured_precisions(kernels: Sequence[Kernel], profile: Profile) -> tuple[str, ...]:
    """A warning for precisions that the profile has no measurements of."""
    unknown = {kernel.anchor.type.dtype for kernel in kernels if not profile.predictor.roofline.knows(kernel)}
    names = ", ".join(sorted(unknown))
    text = f"{names} was not measured on {profile.name}: every figure is extrapolated from other precisions"
    return (text,) if unknown else ()


def warnings_of(graph: Graph, estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """Warnings of graph breaks, operators without a cost rule, and extrapolated kernels."""
    found = [_describe(item, graph.name) for item in graph.breaks if item.kind == "stop"]
    sizes = sorted({item.op for item in graph.breaks if item.kind == "size"})
    if sizes:
        found.append(f"results of data-dependent size are counted at their largest: {', '.join(sizes)}")
    cuts = [item for item in graph.breaks if item.kind == "cut"]
    if cuts:
        breaks = f"{counted(len(cuts), 'graph break')} {'leaves' if len(cuts) == 1 else 'leave'}"
        pieces = f"{breaks} about {subgraph_count(graph)} subgraphs"
        found.append(f"{pieces}; their cost beyond entering each subgraph is not in the figures")
    if len(cuts) < len(graph.breaks):
        found.append("data-dependent control flow causes graph breaks, whose cost is not in the figures")
    names = sorted({op.base for op in graph.ops if not operators.lookup(op).supported})
    if names:
        found.append(f"operators without a cost rule count with their traffic only: {', '.join(names)}")
    outside = sum(not estimate.in_range for estimate in estimates)
    if outside:
        found.append(f"{outside} of {len(estimates)} kernels are out of distribution; their times are extrapolated")
    return tuple(found)


def _describe(item: Break, model: str) -> str:
    place = f"{item.module or model} ({item.source})"
    missed = f", including {', '.join(item.missed)}" if item.missed else ""
    return f"captured in part: {place} has data-dependent control flow; the rest is not in the figures{missed}"
