"""Module -> report: what torch.compile would do to it on some hardware, with nothing run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from costmodel import checks
from costmodel.capture.inputs import Arguments, Inputs, inputs_fault, module_fault
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, ProfileError, RequestError
from costmodel.ir import Break, Graph, operators
from costmodel.kernels.kernel import Kernel
from costmodel.memory.capacity import device_bytes, eager_bytes, shortage
from costmodel.prediction.layers import Unit, group_units
from costmodel.predictor.predictor import Estimate
from costmodel.profiles.hosts import resolve_host
from costmodel.profiles.profile import Profile, load_profile, resolve_default
from costmodel.report.figures import counted
from costmodel.report.types import LayerPrediction, ModePrediction, Report, Unsupported
from costmodel.timeline import gpu, host_counts, queue
from costmodel.timeline.cost_tables import COSTS, CPU_COSTS
from costmodel.timeline.issue_trace import (
    Program,
    compile_counts,
    compiled_program,
    eager_program,
    fragments_of,
    layout_of,
    main_input,
    origin_of,
)
from costmodel.timeline.timed_program import TimedProgram

if TYPE_CHECKING:
    from torch import nn

    from costmodel.capture.frontends import Fragment

WAYS = ("run", "fx", "export", "dynamo")
"""Ways of capture: the keys of `costmodel.capture.frontends.WAYS`, which is loaded when one other than the first is
wanted."""
UNKNOWN_WIDTH = 0.5
"""What operators without a rule, and modules that data leads into, add at most to the half-width of an interval."""
UNKNOWN_SHARE = 0.1
"""So large a part of the operators, and they add all of it: nothing tells how long they take."""
EXTRAPOLATED_WIDTH = 0.5
"""What kernels unlike all measured ones add to it, for their share of the time."""


@takes_turns
@checked(
    module=module_fault,
    inputs=inputs_fault,
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    explain=checks.flag,
    host=checks.optional(checks.host),
    shapes=checks.each(checks.shape, "shapes, which are sequences of sizes above 0"),
    frontend=checks.one_of(WAYS),
)
def predict(
    module: nn.Module,
    inputs: Inputs,
    *,
    hardware: str | None = None,
    model_name: str | None = None,
    explain: bool = False,
    host: str | float | None = None,
    shapes: Sequence[Sequence[int]] = (),
    frontend: str = "run",
) -> Report:
    """What torch.compile would do to a module.

    Args:
        module: in evaluation mode; real or meta parameters; it is not changed.
        inputs: positional inputs, or a mapping of keyword inputs; real, meta or fake tensors, also inside lists,
            tuples and dicts. Of a list of images, each is one of the batch.
        hardware: a profile's name; None for this machine's GPU if there is a profile for it, else the default.
        model_name: what the report calls the model; None for its class.
        explain: whether to give the reasons too.
        shapes: of the main input that the model will meet afterwards: with `explain`, what that recompiles.
        frontend: the way of capture, one of `costmodel.capture.frontends.WAYS`.
        host: the name of a host, or its speed against the profile's own; None for that one.

    Raises:
        UnknownHardwareError: there is no such profile.
        RequestError: there is no such host, or a shape has another number of dimensions than the input's.
        CaptureError: the module cannot be turned into a graph, or has nothing to compile.
        ProfileError: the profile is damaged or of another version.
    """
    from costmodel.capture.trace import capture

    profile = load_profile(resolve_default()[0] if hardware is None else hardware)
    chosen = resolve_host(None if host is None else str(host), profile)
    profile = replace(profile, host_speed=chosen.speed, host_told=host is not None)
    name = model_name or type(module).__name__
    cuts: tuple[Break, ...] = ()
    fragments: tuple[Fragment, ...] = ()
    if frontend != "run":
        from costmodel.capture.frontends import convert

        converted = convert(module, inputs, frontend)
        module, cuts, fragments = converted.module, converted.cuts, converted.fragments
    graph = capture(module, inputs, name, partial=True)
    known = {item.source for item in graph.breaks}
    graph = replace(graph, breaks=(*graph.breaks, *(item for item in cuts if item.source not in known)))
    found = predict_graph(graph, profile, _images(inputs))
    calibrated = None if profile.on_cpu else host is not None
    report = replace(found, host=chosen.name, host_speed=chosen.speed, host_calibrated=calibrated)
    if explain:
        from costmodel.prediction.explain import explain as reasons

        if odd := [shape for shape in shapes if len(shape) != len(report.input_shape)]:
            wanted, given = ("x".join(map(str, shape)) for shape in (report.input_shape, odd[0]))
            raise RequestError(f"the shape {given} is none of this model's input; give one like {wanted}")
        return replace(report, explanation=reasons(graph, profile, report, shapes, fragments))
    return report


def _images(inputs: Inputs) -> int | None:
    """How many images a list of images holds; None where the input is no list."""
    call = Arguments.of(inputs)
    first = next(iter((*call.args, *call.kwargs.values())), None)
    return len(first) if isinstance(first, (list, tuple)) else None


def predict_graph(graph: Graph, profile: Profile, batch_size: int | None = None) -> Report:
    """The report for a captured graph.

    Args:
        graph: of a whole model, or of a part of it.
        profile: of the hardware.
        batch_size: None for the first size of its input.

    Raises:
        CaptureError: the graph has no operator that computes anything.
        ProfileError: the profile is damaged or of another version.
    """
    eager, compiled = eager_program(graph, profile.on_cpu), compiled_program(graph, profile.on_cpu)
    if not eager.kernels:
        raise CaptureError(f"{graph.name}: the model has no operator to run, so there is nothing to predict")
    needed = CPU_COSTS if profile.on_cpu else COSTS
    tables = {name: profile.costs(name, costs) for name, costs in needed.items()}
    eager_kernels = profile.predictor.predict(eager.kernels, eager.positions)
    compiled_kernels = profile.predictor.predict(compiled.kernels, compiled.positions)
    unsupported = _unsupported(graph)
    unknown = 1.0 if graph.partial else min(1.0, len(unsupported) / UNKNOWN_SHARE / max(1, len(graph.ops)))
    modes = _modes(graph, eager, compiled, eager_kernels, compiled_kernels, tables, profile, unknown)
    too_large = shortage(eager_bytes(graph), device_bytes(profile))
    trusted = not (unsupported or too_large) and all(
        estimate.in_range for estimate in (*eager_kernels, *compiled_kernels)
    )
    layers = _layers(graph, eager, compiled, eager_kernels, compiled_kernels)
    main = main_input(graph)
    return Report(
        model=graph.name,
        hardware=profile.name,
        batch_size=batch_size or (main.shape[0] if main.shape else 1),
        input_shape=main.shape,
        precision=main.dtype,
        layout=layout_of(graph),
        modes=modes,
        best_mode=min(modes, key=lambda mode: modes[mode].latency_ms),
        verdict=_verdict(modes, trusted),
        layers=layers,
        unsupported=unsupported,
        warnings=(
            *([too_large] if too_large else []),
            *_unmeasured((*eager.kernels, *compiled.kernels), profile),
            *_warnings(graph, (*eager_kernels, *compiled_kernels)),
        ),
        partial=graph.partial,
        too_large=too_large,
    )


def _modes(
    graph: Graph,
    eager: Program,
    compiled: Program,
    eager_kernels: Sequence[Estimate],
    compiled_kernels: Sequence[Estimate],
    tables: Mapping[str, Mapping[str, float]],
    profile: Profile,
    unknown: float,
) -> dict[str, ModePrediction]:
    timed = TimedProgram.of(eager, eager_kernels), TimedProgram.of(compiled, compiled_kernels)
    timings = profile.discrepancy.correct(gpu.timings(*timed, tables), *timed)
    _check_timings(timings, profile)
    latency_widths, speedup_widths = profile.intervals("latency"), profile.intervals("speedup")
    if "eager" not in latency_widths:
        raise ProfileError(f"{profile.name}: the profile has no interval for eager execution; train it again")
    extra = UNKNOWN_WIDTH * unknown + _range_width(eager_kernels, compiled_kernels)
    compile_s = host_counts.compile_us(compile_counts(compiled.kernels), tables["compile"]) / 1e6
    base = timings["eager"]
    modes = {}
    for mode, timing in timings.items():
        if mode not in latency_widths or (mode != "eager" and mode not in speedup_widths):
            continue  # a mode that the profile cannot predict is left out, never guessed
        if mode == "reduce-overhead" and graph.breaks:
            continue  # it would not be one CUDA graph
        spread = math.exp(latency_widths[mode] + extra)
        latency = timing.latency_us / 1e3
        common = (latency, latency / spread, latency * spread, timing.host_us / 1e3, timing.device_us / 1e3)
        if mode == "eager":
            modes[mode] = ModePrediction(*common)
            continue
        speedup = base.latency_us / timing.latency_us
        wide = math.exp(speedup_widths[mode] + extra)
        saved = (base.latency_us - timing.latency_us) / 1e6
        calls = math.ceil(compile_s / saved) if saved > 0 else None
        modes[mode] = ModePrediction(*common, speedup, speedup / wide, speedup * wide, compile_s, calls)
    return modes


def _check_timings(timings: Mapping[str, queue.Timing], profile: Profile) -> None:
    """Refuses times that no call takes: each cost of a card may be possible, and their sum not be."""
    for mode, timing in timings.items():
        parts_us = timing.latency_us, timing.host_us, timing.device_us
        if not all(0 <= us < math.inf for us in parts_us) or not timing.latency_us:
            latency, host, device = (f"{us:g} us" for us in parts_us)
            raise ProfileError(
                f"{profile.path / 'card.json'}: its costs give {mode} a latency of {latency}, {host} of the host and "
                f"{device} of the device; train the profile again"
            )


def _range_width(*groups: Sequence[Estimate]) -> float:
    """What kernels outside the measured range add to an interval: a share of their share of the time."""
    share = 0.0
    for estimates in groups:
        total = sum(estimate.us for estimate in estimates)
        outside = sum(estimate.us for estimate in estimates if not estimate.in_range)
        share = max(share, outside / max(1e-9, total))
    return EXTRAPOLATED_WIDTH * share


def _layers(
    graph: Graph,
    eager: Program,
    compiled: Program,
    eager_kernels: Sequence[Estimate],
    compiled_kernels: Sequence[Estimate],
) -> tuple[LayerPrediction, ...]:
    eager_of: dict[str, list[Estimate]] = {}
    for kernel, estimate in zip(eager.kernels, eager_kernels, strict=True):
        eager_of.setdefault(origin_of(kernel.ops[0]), []).append(estimate)
    return tuple(_layer(unit, eager_of, compiled_kernels) for unit in group_units(graph, compiled.kernels))


def _layer(unit: Unit, eager_of: Mapping[str, Sequence[Estimate]], compiled: Sequence[Estimate]) -> LayerPrediction:
    before = [estimate for op in unit.ops for estimate in eager_of.get(op.name, ())]
    after = [compiled[index] for index in unit.kernels]
    eager_us, compiled_us = sum(e.us for e in before), sum(e.us for e in after)
    speedup = eager_us / compiled_us if compiled_us and eager_us else None
    width = math.hypot(_log_width(before), _log_width(after))
    return LayerPrediction(
        name=unit.name,
        kind=unit.kind,
        ops=tuple(map(operators.kind_of, unit.ops)),
        position=unit.position,
        eager_us=eager_us or None,
        compiled_us=compiled_us or None,
        speedup=speedup,
        speedup_low=speedup / math.exp(width) if speedup else None,
        speedup_high=speedup * math.exp(width) if speedup else None,
        backend="inductor",
        in_range=all(estimate.in_range for estimate in (*before, *after)),
    )


def _log_width(estimates: Sequence[Estimate]) -> float:
    """Half-width of the logarithm of a sum: the parts' widths, weighted by their times, as if independent."""
    total = sum(estimate.us for estimate in estimates)
    if not total:
        return 0.0
    parts = [(e.us / total) * math.log(e.high_us / e.us) for e in estimates]
    return math.sqrt(sum(part**2 for part in parts))


def _unsupported(graph: Graph) -> tuple[Unsupported, ...]:
    unknown = {(op.base, op.module): None for op in graph.ops if operators.lookup(op) is operators.UNKNOWN}
    places: dict[tuple[str, str], list[str]] = {}
    for item in graph.breaks:
        places.setdefault((item.op, item.source), []).append(item.module)
    breaks = {(op, _places(source, modules)): None for (op, source), modules in places.items()}
    return tuple(Unsupported(name, where) for name, where in unknown | breaks)


def _places(source: str, modules: Sequence[str]) -> str:
    """A line of the model, and the modules that run it."""
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0]}{more} ({source})".strip()


def _verdict(modes: Mapping[str, ModePrediction], trusted: bool) -> str:
    compiled = [mode for name, mode in modes.items() if name != "eager"]
    if not trusted or not compiled:
        return "uncertain"
    best = max(compiled, key=lambda mode: mode.speedup or 0.0)
    if best.speedup_low is not None and best.speedup_low > 1.0:
        return "compile"
    return "leave" if all((mode.speedup_high or 0.0) < 1.0 for mode in compiled) else "uncertain"


def _unmeasured(kernels: Sequence[Kernel], profile: Profile) -> tuple[str, ...]:
    """A line for precisions that nobody measured."""
    unknown = {kernel.anchor.type.dtype for kernel in kernels if not profile.predictor.roofline.knows(kernel)}
    names = ", ".join(sorted(unknown))
    text = f"{names} was not measured on {profile.name}: every figure is a guess from other precisions"
    return (text,) if unknown else ()


def _warnings(graph: Graph, estimates: Sequence[Estimate]) -> tuple[str, ...]:
    found = [_describe(item, graph.name) for item in graph.breaks if item.kind == "stop"]
    sizes = sorted({item.op for item in graph.breaks if item.kind == "size"})
    if sizes:
        found.append(f"results whose size depends on data are counted at their largest: {', '.join(sizes)}")
    cuts = [item for item in graph.breaks if item.kind == "cut"]
    if cuts:
        pieces = f"{counted(len(cuts), 'place')}, into {fragments_of(graph)} graphs or so"
        found.append(f"torch.compile cuts the graph at {pieces}; what that costs beyond entering each is in no figure")
    if len(cuts) < len(graph.breaks):
        found.append("torch.compile breaks the graph where data decides; what that costs is in no figure")
    names = sorted({op.base for op in graph.ops if operators.lookup(op) is operators.UNKNOWN})
    if names:
        found.append(f"operators without a rule are counted in the intervals only: {', '.join(names)}")
    outside = sum(not estimate.in_range for estimate in estimates)
    if outside:
        found.append(
            f"{outside} of {len(estimates)} kernels are unlike any that was measured; their times are extrapolated"
        )
    return tuple(found)


def _describe(item: Break, model: str) -> str:
    place = f"{item.module or model} ({item.source})"
    missed = f", {', '.join(item.missed)} among it" if item.missed else ""
    return f"captured in part: {place} goes by the values of a tensor, and what follows is in no figure{missed}"
