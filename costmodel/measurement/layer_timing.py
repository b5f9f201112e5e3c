"""Times of layers inside a running eager or compiled model, by torch's profiler, and of a plan's regions alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch has it there, and does not list it
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from costmodel.capture.module_stack import ModuleStack
from costmodel.capture.module_state import scopes
from costmodel.capture.trace import capture, tensors_in
from costmodel.device import Device
from costmodel.errors import MeasurementError
from costmodel.execution.planned_module import Planned
from costmodel.execution.torch_settings import under_autocast
from costmodel.ir import Graph, operators
from costmodel.ir.op_table import Role
from costmodel.measurement.timers import device_time
from costmodel.measurement.validation_report import LayerResult
from costmodel.planning.plan import Region
from costmodel.prediction.layer_groups import Shares, compiled_shares, layers_of
from costmodel.report.types import Report
from costmodel.timeline.issue_trace import compiled_trace

MARK = "costmodel operator "
"""Prefix of an operator's number in a profile."""
PASSES = 5
"""Number of profiled passes; the median over passes counts."""
FUSED = "fused"
"""Name for all kernels that Inductor generates."""
COMPILED = "## Call CompiledFxGraph"
"""Prefix of the event of a compiled graph in a profile."""
_ALLOCATING = ("empty", "empty_strided", "reinterpret_tensor", "as_strided", "view", "select", "slice", "t", "expand")
"""ATen calls of a compiled graph that run no kernel."""
LEAST_US = 300.0
"""Least duration of a CUDA graph that measures a region; short regions are repeated in it."""
MOST_COPIES = 32

Call = tuple[str, tuple[int, ...]]
"""Identity of an operator call: the calling module, and the shape of the first result."""


def measure_layers(
    module: nn.Module,
    runner: Callable[..., object] | None,
    inputs: Sequence[Any],
    report: Report,
    device: Device,
    amp: str | None = None,
) -> tuple[tuple[LayerResult, ...], tuple[LayerResult, ...]]:
    """Measure the layers of a module in eager passes, and in passes compiled in the default mode.

    On a CPU, Inductor records its loops only with `torch._inductor.config.cpp.enable_kernel_profile`; without it,
    layers in loops are not measured.

    Args:
        module: in evaluation mode, on the device to measure.
        runner: the compiled module, already called once; None to measure eager passes only.
        inputs: positional inputs on that device.
        report: prediction for this module.
        device: device of the report's profile.
        amp: precision of an autocast region around each eager pass; None for none. The compiled module brings its own.
    """
    graph = capture(module, inputs, partial=True, amp=amp)
    kernels = compiled_trace(graph, device.is_cpu, device.multiprocessors).kernels
    layers = layers_of(graph)
    called = calls_of(graph, amp)
    us = match(called, *profiled(module, inputs, amp))
    eager = []
    for found, layer in zip(layers, report.layers, strict=True):
        launching = [op.name for op in found.ops if op.name in called]
        known = launching and all(op in us for op in launching)
        measured = sum(us[op] for op in launching) if known else None
        eager.append(LayerResult(layer.name, layer.kind, layer.eager_us, measured))
    if runner is None:
        return tuple(eager), ()
    predicted = [FUSED if kernel.backend == "triton" else kernel.anchor.base for kernel in kernels]
    shares = compiled_shares(graph, layers, kernels)
    served = [tuple(sorted(some)) for some in shares]
    groups = {places: number for number, places in enumerate(dict.fromkeys(served))}
    times = share_out(predicted, [groups[places] for places in served], *compiled_calls(runner, inputs))
    by_layer = divided(shares, served, {places: times.get(number) for places, number in groups.items()})
    compiled = [
        LayerResult(layer.name, layer.kind, layer.compiled_us, by_layer.get(number))
        for number, layer in enumerate(report.layers)
        if layer.compiled_us
    ]
    return tuple(eager), tuple(compiled)


def divided(
    shares: Shares, served: Sequence[tuple[int, ...]], times: Mapping[tuple[int, ...], float | None]
) -> dict[int, float]:
    """Divide times of kernels among the layers that they serve together; a layer with an unknown time is left out.

    Args:
        shares: predicted share of each kernel by layer.
        served: layers that each kernel serves.
        times: microseconds of all kernels that serve the same layers; None if unknown.
    """
    unknown = {place for places, us in times.items() if us is None for place in places}
    weights: dict[tuple[int, ...], dict[int, float]] = {places: {} for places in times}
    for kernel, places in zip(shares, served, strict=True):
        for place, share in kernel.items():
            weights[places][place] = weights[places].get(place, 0.0) + share
    found: dict[int, float] = {}
    for places, of in weights.items():
        total = sum(of.values())
        for place, weight in of.items():
            found[place] = found.get(place, 0.0) + (times[places] or 0.0) * weight / total
    return {place: us for place, us in found.items() if place not in unknown}


def share_out(
    predicted: Sequence[str], homes: Sequence[int | None], made: Sequence[str], us: Sequence[float]
) -> dict[int, float]:
    """Assign the measured calls of a compiled model to layers, or to groups of layers that kernels serve together.

    Library calls must match the prediction in number and order, else nothing is assigned. Between two library calls,
    fused kernels are assigned one by one if there are as many as predicted, else all together if the predicted ones
    belong to one layer. Layers with an unassigned kernel, or a kernel without a recorded time, are left out.

    Args:
        predicted: library call of each predicted kernel, or FUSED.
        homes: number of each predicted kernel's layer; None for a kernel of no layer.
        made: measured calls, by the same names.
        us: microseconds of each measured call.

    Returns:
        Number of the layer -> microseconds.
    """
    ours, theirs = _gaps(predicted), _gaps(made)
    if [predicted[i] for i, _ in ours if i is not None] != [made[i] for i, _ in theirs if i is not None]:
        return {}
    assigned: list[tuple[int | None, float]] = []
    unknown: set[int | None] = {None}
    for (library, fused), (library_made, fused_made) in zip(ours, theirs, strict=True):
        if library is not None and library_made is not None:
            assigned.append((homes[library], us[library_made]))
        layers = [homes[i] for i in fused]
        if len(fused) == len(fused_made):
            assigned += zip(layers, (us[i] for i in fused_made), strict=True)
        elif len(set(layers)) == 1:
            assigned.append((layers[0], sum(us[i] for i in fused_made)))
        else:
            unknown.update(layers)
    unknown.update(home for home, took in assigned if not took)
    found: dict[int, float] = {}
    for home, took in assigned:
        if home is not None and home not in unknown:
            found[home] = found.get(home, 0.0) + took
    return found


def _gaps(names: Sequence[str]) -> list[tuple[int | None, list[int]]]:
    """Places of library calls with those of the fused kernels after each; None stands before the first call."""
    found: list[tuple[int | None, list[int]]] = [(None, [])]
    for place, name in enumerate(names):
        if name == FUSED:
            found[-1][1].append(place)
        else:
            found.append((place, []))
    return found


def compiled_calls(runner: Callable[..., object], inputs: Sequence[Any]) -> tuple[list[str], list[float]]:
    """Kernels that a compiled model calls, FUSED or the base name of a library call, and microseconds of each."""
    times = []
    names: list[str] = []
    with torch.no_grad():
        for _ in range(PASSES):
            called = [
                (_name_of(event.name), took)
                for event, took in _events(lambda: runner(*inputs), _device_of(inputs))
                if event.cpu_parent is not None and event.cpu_parent.name.startswith(COMPILED)
            ]
            names = [name for name, _ in called if name]
            times.append([took for name, took in called if name])
    return names, _medians(times)


def _name_of(event: str) -> str:
    """FUSED for a kernel that Inductor generated, base name of an ATen call that runs a kernel, else empty."""
    if "_fused_" in event:
        return FUSED
    base = event.removeprefix("aten::")
    if base == event or base in _ALLOCATING:
        return ""
    return "scaled_dot_product_attention" if "scaled_dot_product" in base else base


def measure_regions(planned: Planned, inputs: Sequence[Any]) -> tuple[LayerResult, ...]:
    """Measure each region of a plan alone: by replays of a CUDA graph, or call by call on a CPU.

    Args:
        planned: module with an applied plan.
        inputs: inputs that it has run with, on its device.
    """
    device = _device_of(inputs).type

    def measured(call: Callable[[], object], region: Region) -> float | None:
        copies = max(1, min(MOST_COPIES, round(LEAST_US / max(region.us, 1.0))))
        try:
            return device_time(call, copies=copies, device=device).median_us
        except MeasurementError:
            return None

    times = planned.region_times(inputs, measured)
    return tuple(
        LayerResult(region.span, region.backend, region.us, us)
        for region, us in zip(planned.plan.regions, times, strict=True)
    )


def calls_of(graph: Graph, amp: str | None = None) -> dict[str, Call]:
    """Operators of a captured pass other than views, by name, in order.

    Under autocast torch casts the last argument of an operator first, as compilers evaluate arguments in C++; a capture
    casts the first one first.
    """
    launching = [op for op in graph.ops if operators.lookup(op).role is not Role.VIEW]
    if amp is not None:
        runs = (list(run) for _, run in groupby(launching, key=lambda op: (op.base == operators.CAST, op.module)))
        launching = [op for run in runs for op in (run[::-1] if run[0].base == operators.CAST else run)]
    return {op.name: (op.module, op.type.shape) for op in launching}


def match(captured: Mapping[str, Call], made: Sequence[Call], us: Sequence[float]) -> dict[str, float]:
    """Times of captured operators, which are aligned in order with the measured calls (`difflib`).

    Some operators, such as attention and batch norm, dispatch differently on a device than on meta tensors. Calls
    without a partner are left out.
    """
    names = list(captured)
    blocks = SequenceMatcher(None, list(captured.values()), list(made), autojunk=False).get_matching_blocks()
    return {names[a + i]: us[b + i] for a, b, size in blocks for i in range(size)}


def profiled(module: nn.Module, inputs: Sequence[Any], amp: str | None = None) -> tuple[list[Call], list[float]]:
    """Operators that an eager pass calls, under autocast or not, without views, and microseconds of each."""
    times: list[list[float]] = []
    eager = under_autocast(module, _device_of(inputs).type, amp)
    running = ModuleStack(module)
    marks = _Marks(running)

    def marked() -> None:
        marks.calls.clear()
        with marks:
            eager(*inputs)

    with torch.no_grad(), scopes(running):
        eager(*inputs)
        for _ in range(PASSES):
            events = _events(marked, _device_of(inputs))
            found = {int(event.name.removeprefix(MARK)): took for event, took in events if event.name.startswith(MARK)}
            times.append([found.get(number, 0.0) for number in range(len(marks.calls))])
    return list(marks.calls), _medians(times)


def _device_of(inputs: Sequence[Any]) -> torch.device:
    return next(tensors_in(tuple(inputs))).device


def _events(call: Callable[[], object], device: torch.device) -> Iterator[tuple[FunctionEvent, float]]:
    """Host events of a call, in order, with the microseconds of each on its device."""
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as recorded:
        call()
        if cuda:
            torch.cuda.synchronize(device)
    for event in sorted(recorded.events() or (), key=lambda event: event.time_range.start):
        if event.device_type == DeviceType.CPU:
            yield event, _device_us(event) if cuda else event.cpu_time_total


def _device_us(event: FunctionEvent) -> float:
    """Device time of all kernels launched in an event and its children.

    A buffer request of the profiler is a child event with the same id and the same kernels; it is not counted again.
    """
    own = (float(kernel.duration) for kernel in event.kernels)
    return sum(own) + sum(_device_us(child) for child in event.cpu_children if child.id != event.id)


def _medians(times: Sequence[Sequence[float]]) -> list[float]:
    """Median time of each call, over the passes with as many calls as the last one."""
    alike = [found for found in times if len(found) == len(times[-1])]
    return [statistics.median(each) for each in zip(*alike, strict=True)]


class _Marks(TorchDispatchMode):
    """Mark every operator but views with its number, and record the calling module."""

    def __init__(self, running: ModuleStack) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.calls: list[Call] = []
        self._running = running

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view:
            return func(*args, **(kwargs or {}))
        with record_function(f"{MARK}{len(self.calls)}"):
            result = func(*args, **(kwargs or {}))
        first = next(tensors_in(result), None)
        self.calls.append((self._running.path, tuple(first.shape) if first is not None else ()))
        return result
