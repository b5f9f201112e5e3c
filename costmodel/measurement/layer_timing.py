"""Layers, eager and compiled, inside the running model, as a profiler sees them, and the regions of a plan alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
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
from costmodel.errors import MeasurementError
from costmodel.execution.planned_module import Planned
from costmodel.ir import Graph, operators
from costmodel.ir.op_table import Role
from costmodel.measurement.timers import device_time
from costmodel.measurement.validation_report import LayerResult
from costmodel.planning.plan import Region
from costmodel.prediction.layers import group_units
from costmodel.report.types import Report
from costmodel.timeline.issue_trace import compiled_trace

MARK = "costmodel operator "
"""What marks an operator in a profile, before its number."""
PASSES = 5
"""Passes that are profiled; of each operator the median counts."""
FUSED = "fused"
"""What a kernel of Inductor's own is known by."""
COMPILED = "## Call CompiledFxGraph"
"""How a profile names the call of a compiled graph, before its key."""
_ALLOCATING = ("empty", "empty_strided", "reinterpret_tensor", "as_strided", "view", "select", "slice", "t", "expand")
"""What a compiled graph asks of ATen without running a kernel."""
LEAST_US = 300.0
"""What a CUDA graph that measures a region should take, with as many copies of it as that needs."""
MOST_COPIES = 32

Call = tuple[str, tuple[int, ...]]
"""What an operator is known by: the module that calls it and the shape of its first result."""


def measure_layers(
    module: nn.Module,
    runner: Callable[..., object] | None,
    inputs: Sequence[Any],
    report: Report,
    on_cpu: bool,
) -> tuple[tuple[LayerResult, ...], tuple[LayerResult, ...]]:
    """Layers of a module, measured in eager passes, and in passes as torch.compile runs it in its default mode.

    On a CPU Inductor marks its loops only with `torch._inductor.config.cpp.enable_kernel_profile`; without, what is in
    a loop is not measured.

    Args:
        module: in evaluation mode, where it is to be measured.
        runner: the same compiled, called before; None to measure eager passes only.
        inputs: positional inputs there; of the runner's calls.
        report: the prediction for this module.
        on_cpu: whether it is for a CPU.
    """
    graph = capture(module, inputs, partial=True)
    kernels = compiled_trace(graph, on_cpu).kernels
    units = group_units(graph, kernels)
    called = calls_of(graph)
    us = match(called, *profiled(module, inputs))
    eager = []
    for unit, layer in zip(units, report.layers, strict=True):
        launching = [op.name for op in unit.ops if op.name in called]
        known = launching and all(op in us for op in launching)
        measured = sum(us[op] for op in launching) if known else None
        eager.append(LayerResult(layer.name, layer.kind, layer.eager_us, measured))
    if runner is None:
        return tuple(eager), ()
    predicted = [FUSED if kernel.backend == "triton" else kernel.anchor.base for kernel in kernels]
    home = {place: number for number, unit in enumerate(units) for place in unit.kernels}
    told = share_out(predicted, [home.get(place) for place in range(len(kernels))], *compiled_calls(runner, inputs))
    compiled = [
        LayerResult(layer.name, layer.kind, layer.compiled_us, told.get(number))
        for number, layer in enumerate(report.layers)
        if layer.compiled_us
    ]
    return tuple(eager), tuple(compiled)


def share_out(
    predicted: Sequence[str], homes: Sequence[int | None], made: Sequence[str], us: Sequence[float]
) -> dict[int, float]:
    """What each layer took, of the calls that a compiled model made.

    Library calls have to be the same in the same order, or nothing is told. Of the fused kernels between two of them
    there may be more or fewer than predicted: where they are as many, they are told one by one, else together, if all
    that were predicted there are of one layer. A call that a profile has no time of is not told.

    Args:
        predicted: each kernel's library call, or FUSED.
        homes: the number of each kernel's layer; None for a kernel of no layer.
        made: the calls that were made, by the same names.
        us: microseconds of each.

    Returns:
        Microseconds by number of the layer, of those layers of which every kernel is told.
    """
    ours, theirs = _gaps(predicted), _gaps(made)
    if [predicted[i] for i, _ in ours if i is not None] != [made[i] for i, _ in theirs if i is not None]:
        return {}
    told: list[tuple[int | None, float]] = []
    untold: set[int | None] = {None}
    for (library, fused), (library_made, fused_made) in zip(ours, theirs, strict=True):
        if library is not None and library_made is not None:
            told.append((homes[library], us[library_made]))
        of = [homes[i] for i in fused]
        if len(fused) == len(fused_made):
            told += zip(of, (us[i] for i in fused_made), strict=True)
        elif len(set(of)) == 1:
            told.append((of[0], sum(us[i] for i in fused_made)))
        else:
            untold.update(of)
    untold.update(home for home, took in told if not took)
    found: dict[int, float] = {}
    for home, took in told:
        if home is not None and home not in untold:
            found[home] = found.get(home, 0.0) + took
    return found


def _gaps(names: Sequence[str]) -> list[tuple[int | None, list[int]]]:
    """Places of library calls, each with those of the fused kernels behind it; under None those ahead of the first."""
    found: list[tuple[int | None, list[int]]] = [(None, [])]
    for place, name in enumerate(names):
        if name == FUSED:
            found[-1][1].append(place)
        else:
            found.append((place, []))
    return found


def compiled_calls(runner: Callable[..., object], inputs: Sequence[Any]) -> tuple[list[str], list[float]]:
    """The kernels that a compiled model calls, FUSED or a library call by its base name, and what each takes."""
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
    """FUSED for a kernel of Inductor's, the base name of ATen's operators that run kernels; nothing for others."""
    if "_fused_" in event:
        return FUSED
    base = event.removeprefix("aten::")
    if base == event or base in _ALLOCATING:
        return ""
    return "scaled_dot_product_attention" if "scaled_dot_product" in base else base


def measure_regions(planned: Planned, inputs: Sequence[Any]) -> tuple[LayerResult, ...]:
    """The regions of a plan as it runs, each measured by itself: by replays of a CUDA graph, or call after call.

    Args:
        planned: a module with its plan.
        inputs: of the kind that it was made for, on its device.
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


def calls_of(graph: Graph) -> dict[str, Call]:
    """The operators of a captured pass that are more than views, by name, in order."""
    launching = [op for op in graph.ops if operators.lookup(op).role is not Role.VIEW]
    return {op.name: (op.module, op.type.shape) for op in launching}


def match(captured: Mapping[str, Call], made: Sequence[Call], us: Sequence[float]) -> dict[str, float]:
    """What each captured operator took: those that were made are aligned with them in order (`difflib`).

    A pass on a device makes other operators than one on meta tensors here and there, attention and batch norm above
    all; where it makes several for one they stay without a partner, and so does that one.
    """
    names = list(captured)
    blocks = SequenceMatcher(None, list(captured.values()), list(made), autojunk=False).get_matching_blocks()
    return {names[a + i]: us[b + i] for a, b, size in blocks for i in range(size)}


def profiled(module: nn.Module, inputs: Sequence[Any]) -> tuple[list[Call], list[float]]:
    """The operators that an eager pass makes, views left out, and the microseconds that each takes on its device."""
    times: list[list[float]] = []
    running = ModuleStack(module)
    marks = _Marks(running)

    def marked() -> None:
        marks.calls.clear()
        with marks:
            module(*inputs)

    with torch.no_grad(), scopes(running):
        module(*inputs)
        for _ in range(PASSES):
            events = _events(marked, _device_of(inputs))
            found = {int(event.name.removeprefix(MARK)): took for event, took in events if event.name.startswith(MARK)}
            times.append([found.get(number, 0.0) for number in range(len(marks.calls))])
    return list(marks.calls), _medians(times)


def _device_of(inputs: Sequence[Any]) -> torch.device:
    return next(tensors_in(tuple(inputs))).device


def _events(call: Callable[[], object], device: torch.device) -> Iterator[tuple[FunctionEvent, float]]:
    """What the host did in a call, in order, and the microseconds of each thing on the device that it ran on."""
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
    """Of all kernels that were launched in an event, and in what it called.

    When the profiler asks for a buffer, that is an event of the same identity within the operator's, and has the
    kernels of the operator, too.
    """
    own = (float(kernel.duration) for kernel in event.kernels)
    return sum(own) + sum(_device_us(child) for child in event.cpu_children if child.id != event.id)


def _medians(times: Sequence[Sequence[float]]) -> list[float]:
    """Of each call the median over the passes that made as many calls as the last one."""
    alike = [found for found in times if len(found) == len(times[-1])]
    return [statistics.median(each) for each in zip(*alike, strict=True)]


class _Marks(TorchDispatchMode):
    """Marks every operator that is no view with its number, and notes which module called it."""

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
