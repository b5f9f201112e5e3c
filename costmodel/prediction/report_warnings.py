"""Warnings of a report: graph breaks, operators without a cost rule, kernels unlike measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.features import CONVOLUTIONS, UNMEASURED, group_of
from costmodel.ir import Break, Graph, operators
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.bounds import extrapolated_share
from costmodel.predictor.estimate import Estimate
from costmodel.profiles.profile import Profile
from costmodel.report.figures import counted
from costmodel.report.types import Unsupported


def unsupported_in(graph: Graph) -> tuple[Unsupported, ...]:
    """Operators without a cost rule, and places where the capture lacks values."""
    unknown = {(op.base, op.module): None for op in graph.ops if not operators.lookup(op).supported}
    places: dict[tuple[str, str], list[str]] = {}
    for item in graph.breaks:
        if item.kind != "cut":
            places.setdefault((item.op, item.source), []).append(item.module)
    breaks = {(op, _places(source, modules)): None for (op, source), modules in places.items()}
    return tuple(Unsupported(name, where) for name, where in unknown | breaks)


def _places(source: str, modules: Sequence[str]) -> str:
    """Modules that run a line of source, and the line."""
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0]}{more} ({source})".strip()


def unmeasured_precisions(kernels: Sequence[Kernel], profile: Profile) -> tuple[str, ...]:
    """A warning for precisions that the profile has no measurements of."""
    unknown = [kernel.anchor.type.dtype for kernel in kernels if not profile.predictor.roofline.knows(kernel)]
    names = ", ".join(sorted(set(unknown)))
    share = "every figure is" if len(unknown) == len(kernels) else f"{len(unknown)} of {len(kernels)} kernels are"
    text = f"{names} was not measured on {profile.name}: {share} extrapolated from other precisions"
    return (text,) if unknown else ()


def unmeasured_settings(kernels: Sequence[Kernel], profile: Profile) -> tuple[str, ...]:
    """Warnings of settings of torch that a device's kernels were not measured with."""
    found = []
    groups = {group_of(kernel) for kernel in kernels if kernel.tf32}
    if any(group not in profile.predictor.groups for group in groups):
        found.append(
            f"matmuls in TF32 were not measured on {profile.name}: they count with twice their float16 time, at most "
            "the float32 one, and their intervals span both"
        )
    if profile.device.cudnn_benchmark and any(kernel.anchor.base in CONVOLUTIONS for kernel in kernels):
        found.append(
            "cudnn.benchmark: convolutions count with cuDNN's own choice of algorithm, and may take down to two thirds "
            "of that; the first call of each shape takes longer, as cuDNN times its algorithms"
        )
    return tuple(found)


def unmeasured_kinds(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """A warning for kinds of kernels that no profile has measurements of."""
    names = sorted({kernel.kind for kernel in kernels if group_of(kernel) == UNMEASURED})
    text = f"never measured, so predicted by traffic, arithmetic and launches: {', '.join(names)}"
    return (text,) if names else ()


def warnings_of(graph: Graph, *passes: Sequence[Estimate]) -> tuple[str, ...]:
    """Warnings of graph breaks, operators without a cost rule, and extrapolated kernels.

    Args:
        graph: captured graph.
        passes: estimates of the kernels of each pass, eager and compiled.
    """
    found = [_describe(item, graph.name) for item in graph.breaks if item.kind == "stop"]
    sizes = sorted({item.op for item in graph.breaks if item.kind == "size"})
    if sizes:
        found.append(f"results of data-dependent size are counted at their largest: {', '.join(sizes)}")
    names = sorted({op.base for op in graph.ops if not operators.lookup(op).supported})
    if names:
        found.append(f"operators without a cost rule count with their traffic only: {', '.join(names)}")
    outside = sum(not estimate.in_range for estimates in passes for estimate in estimates)
    if outside:
        share = max(map(extrapolated_share, passes))
        count = (
            f"{outside} of {counted(sum(map(len, passes)), 'kernel')} {'is' if outside == 1 else 'are'} extrapolated"
        )
        found.append(f"{count}, {share:.1%} of the device time: the intervals are wider by that share")
    return tuple(found)


def _describe(item: Break, model: str) -> str:
    place = f"{item.module or model} ({item.source})"
    missed = f", including {', '.join(item.missed)}" if item.missed else ""
    return f"captured in part: {place} has data-dependent control flow; the rest is not in the figures{missed}"
