"""Reasons behind a prediction: bounds of the modes, graph breaks, fallbacks, recompilations, layers that lose."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from costmodel.features import UNMEASURED, group_of
from costmodel.ir import Graph, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.faster_settings import settings_that_pay
from costmodel.prediction.layer_groups import layers_of
from costmodel.prediction.layer_reasons import CONVOLUTION, COPIES, MATMUL, OTHER, by_part
from costmodel.prediction.recompilation import recompilations
from costmodel.prediction.timed_kernels import Part, timed_kernels
from costmodel.predictor.estimate import Estimate
from costmodel.profiles.profile import Profile
from costmodel.report.figures import counted, seconds
from costmodel.report.types import ModePrediction, Reason, Report
from costmodel.timeline.issue_trace import IssueTrace, issue_traces

LOSING = 0.97
"""Speedup below which a layer loses; closer to 1 is within the noise of a measurement."""
LARGE_PART = 0.2
"""Share of a layer's loss from which a cause is named."""
NEAR = 1.5
"""Factor over a bound within which a kernel is called bound by it."""


def explain(
    graph: Graph,
    profile: Profile,
    report: Report,
    shapes: Sequence[Sequence[int]] = (),
    under_amp: Graph | None = None,
) -> tuple[Reason, ...]:
    """Reasons behind a report, most general first.

    Args:
        graph: predicted graph.
        profile: profile that it was predicted with.
        report: the prediction.
        shapes: further shapes of the main input.
        under_amp: the pass captured under autocast, as `graph_under_amp` returns it.
    """
    eager, compiled = issue_traces(graph, profile.device)
    after = profile.predictor.predict(compiled.kernels, compiled.positions)
    return (
        *_bounds(report.modes, profile.on_cpu),
        *settings_that_pay(graph, profile, report.modes, under_amp),
        *_breaks(graph),
        *_sections(graph),
        *_fallbacks(compiled, after),
        *_in_place(graph),
        *_recompilations(report, shapes),
        *_losses(graph, (eager, compiled), profile),
    )


def _bounds(modes: Mapping[str, ModePrediction], on_cpu: bool) -> list[Reason]:
    reasons = []
    for name, mode in modes.items():
        host, device = mode.host_ms, mode.device_ms
        larger = "host" if host > device else "device"
        why = f"{larger}-bound: the host needs {host:.2f} ms to launch kernels, the device {device:.2f} ms to run them"
        if name == "reduce-overhead":
            why = f"device-bound: one CUDA graph, {device:.2f} ms of kernels and {host:.2f} ms around them"
        if on_cpu:
            why = f"a sum: {device:.2f} ms in kernels, {host:.2f} ms between them, as a CPU runs its kernels itself"
        reasons.append(Reason("mode", name, why))
    return reasons


def _breaks(graph: Graph) -> list[Reason]:
    reasons = []
    for item in graph.breaks:
        rest = f"; the rest is not predicted: {', '.join(item.missed)}" if item.missed else ""
        why = {
            "size": "the size of its result is data-dependent: a graph break, and a recompilation for each size",
            "stop": "data-dependent control flow: a graph break",
            "cut": f"a graph break: {item.op}",
        }[item.kind]
        place = item.source if item.kind == "cut" else f"{item.op} in {item.module or graph.name} ({item.source})"
        reasons.append(Reason("break", place, why + rest))
    return reasons


def _sections(graph: Graph) -> list[Reason]:
    """Sections that graph breaks leave; none for a pass in one graph."""
    numbers = graph.partition.sections if graph.partition else ()
    if len(numbers) < 2:
        return []
    sizes = Counter(op.section for op in graph.ops)
    return [
        Reason(
            "section",
            f"{index + 1} of {len(numbers)}",
            f"{counted(sizes[index], 'operator')} "
            + ("run eagerly" if number is None else f"in compiled graph {number + 1}"),
        )
        for index, number in enumerate(numbers)
    ]


def _fallbacks(compiled: IssueTrace, estimates: Sequence[Estimate]) -> list[Reason]:
    """Library calls of operators in compiled graphs that Inductor generates no code for."""
    found: dict[str, list[float]] = {}
    is_compiled = [section.is_compiled for section in compiled.sections for _ in range(section.kernels)]
    for kernel, estimate in itertools.compress(zip(compiled.kernels, estimates, strict=True), is_compiled):
        if (
            group_of(kernel) in ("aten", "rare_aten", UNMEASURED)
            and operators.lookup(kernel.anchor).role is not Role.VIEW
        ):
            found.setdefault(kernel.anchor.base, []).append(estimate.us)
    return [
        Reason("fall-back", name, f"Inductor calls ATen {len(times)} times, {sum(times):.0f} us; nothing fuses with it")
        for name, times in found.items()
    ]


def _in_place(graph: Graph) -> list[Reason]:
    written = (op for op in graph.ops if op.inplace and operators.lookup(op).role is not Role.VIEW)
    counts = Counter(op.base for op in written if op.base != "as_strided_scatter")  # made for another in-place operator
    names = ", ".join(f"{name} ({count})" for name, count in counts.most_common(4))
    why = "in-place; functionalized when compiled, which costs nothing unless a view of the tensor is read later"
    return [Reason("mutation", names, why)] if counts else []


def _recompilations(report: Report, shapes: Sequence[Sequence[int]]) -> list[Reason]:
    compiled = report.modes.get("default")
    if compiled is None or compiled.compile_s is None:
        return []
    with_graphs = "reduce-overhead" in report.modes
    if shapes:
        return [_variants([report.input_shape, *map(tuple, shapes)], compiled.compile_s, with_graphs)]
    why = f"one recompilation, about {seconds(compiled.compile_s)} s, for the second size, which becomes dynamic"
    why += "; none later"
    why += ". reduce-overhead captures one CUDA graph for each size" if with_graphs else ""
    return [Reason("recompilation", "another batch size", why)]


def _variants(shapes: Sequence[tuple[int, ...]], compile_s: float, with_graphs: bool) -> Reason:
    found = recompilations(shapes)
    made = ", ".join("x".join("?" if size is None else str(size) for size in variant) for variant in found.variants)
    late = f"; {len(found.eager)} shapes run eagerly, beyond the limit of variants" if found.eager else ""
    why = f"{len(found.variants)} variants, about {seconds(len(found.variants) * compile_s)} s to compile: {made}{late}"
    why += f". reduce-overhead captures {len(set(shapes))} CUDA graphs" if with_graphs else ""
    return Reason("recompilation", f"{len(set(shapes))} input shapes", why)


def _losses(graph: Graph, traces: tuple[IssueTrace, IssueTrace], profile: Profile) -> list[Reason]:
    """Layers that are slower compiled, with the causes."""
    layers = layers_of(graph)
    eager, compiled = timed_kernels(graph, layers, traces, profile)
    reasons = []
    for layer, before, after in zip(layers, eager.by_layer(len(layers)), compiled.by_layer(len(layers)), strict=True):
        was, now = sum(part.us for part in before), sum(part.us for part in after)
        if now and was and was / now < LOSING:
            causes = ", ".join(_causes(before, after, profile))
            reasons.append(Reason("layer", layer.name, f"{was:.1f} us to {now:.1f} us: {causes}"))
    return reasons


def _causes(before: Sequence[Part], after: Sequence[Part], profile: Profile) -> list[str]:
    """Causes of a layer's loss: kernels that take longer than in eager mode, and bounds of its kernels.

    The additional times of copies, library calls and other kernels add up to the loss, so one of them is always named.
    """
    predictor = profile.predictor
    now, was = by_part(after), by_part(before)
    more = {part: now[part] - was[part] for part in now}
    causes = [text.format(more[part]) for part, text in _PARTS.items() if more[part] > LARGE_PART * sum(more.values())]
    if all(len(_computing(part.kernel)) < 2 for part in after):
        causes.append("no fusion")
    floor = NEAR * predictor.roofline.floor_us
    if all(part.estimate.us <= floor for part in after):
        causes.append("latency-bound small kernels (each takes about as long as an empty one)")
    if sum(part.us for part in after) <= NEAR * sum(part.share * part.roofline.memory_us for part in after):
        causes.append("memory-bound")
    return causes


_PARTS = {
    COPIES: "layout conversions (copies take {:.1f} us more)",
    CONVOLUTION: "the library's convolution is {:.1f} us slower in Inductor's layout",
    MATMUL: "the library's matmul is {:.1f} us slower as Inductor calls it",
    OTHER: "Inductor's kernels take {:.1f} us longer than the kernels that they replace",
}


def _computing(kernel: Kernel) -> list[str]:
    return [op.name for op in kernel.graph.ops if operators.lookup(op).role is not Role.VIEW]
