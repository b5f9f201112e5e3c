"""Layer by layer: eager ones inside the running model, as a profiler sees them, and the regions of a plan alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch has it there, and does not list it
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from costmodel import ops
from costmodel.apply import Planned
from costmodel.capture import capture, tensors_in
from costmodel.errors import MeasurementError
from costmodel.forward import scopes
from costmodel.ir import Graph
from costmodel.measure import device_time
from costmodel.ops import Role
from costmodel.plan import Region
from costmodel.program import compiled_program
from costmodel.units import group_units

MARK = "costmodel operator "
"""What marks an operator in a profile, before its number."""
PASSES = 5
"""Passes that are profiled; of each operator the median counts."""
LEAST_US = 300.0
"""What a CUDA graph that measures a region should take, with as many copies of it as that needs."""
MOST_COPIES = 32

Call = tuple[str, tuple[int, ...]]
"""What an operator is known by: the module that calls it and the shape of its first result."""


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One layer of a report, eager, or one region of a plan, predicted beside measured.

    Attributes:
        name: the module's, as in the report; of a region the first and the last one's.
        kind: of the layer's main operator; of a region its backend.
        predicted_us: time on the device; None where nothing predicts it.
        measured_us: the same, of a layer inside the running model, on a CPU with what PyTorch takes to call its
            operators, of a region alone. None where a pass called other operators than were captured, or where the
            region cannot be measured.
    """

    name: str
    kind: str
    predicted_us: float | None
    measured_us: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured time, minus one."""
        return self.predicted_us / self.measured_us - 1 if self.predicted_us and self.measured_us else None


def measure_layers(
    module: nn.Module, inputs: Sequence[Any], predicted: Sequence[tuple[str, str, float | None]], on_cpu: bool
) -> tuple[LayerResult, ...]:
    """Layers of a module, measured in eager passes.

    Args:
        module: in evaluation mode, where it is to be measured.
        inputs: positional inputs there.
        predicted: name, kind and eager microseconds of each layer, in the order of the report for this module.
        on_cpu: whether the report is for a CPU.
    """
    graph = capture(module, inputs, partial=True)
    us = match(calls_of(graph), *profiled(module, inputs))
    units = group_units(graph, compiled_program(graph, on_cpu).kernels)
    found = []
    for unit, (name, kind, expected) in zip(units, predicted, strict=True):
        launching = [op.name for op in unit.ops if ops.lookup(op).role is not Role.VIEW]
        known = launching and all(op in us for op in launching)
        found.append(LayerResult(name, kind, expected, sum(us[op] for op in launching) if known else None))
    return tuple(found)


def measure_regions(planned: Planned, inputs: Sequence[Any]) -> tuple[LayerResult, ...]:
    """The regions of a plan as it runs, each measured by itself: by replays of a CUDA graph, or call after call.

    Args:
        planned: a module with its plan.
        inputs: of the kind that it was made for, on its device.
    """
    device = next(tensors_in(tuple(inputs))).device.type

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
    launching = [op for op in graph.ops if ops.lookup(op).role is not Role.VIEW]
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
    cuda = any(tensor.is_cuda for tensor in tensors_in(tuple(inputs)))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    times: list[list[float]] = []
    marks = _Marks(module)
    with torch.no_grad(), scopes(marks), marks:
        module(*inputs)
        for _ in range(PASSES):
            marks.calls.clear()
            with profile(activities=activities) as recorded:
                module(*inputs)
                if cuda:
                    torch.cuda.synchronize()
            found = [0.0] * len(marks.calls)
            for event in recorded.events() or ():
                if event.name.startswith(MARK) and event.device_type == DeviceType.CPU:
                    took = event.device_time_total if cuda else event.cpu_time_total
                    found[int(event.name.removeprefix(MARK))] = took
            times.append(found)
    alike = [found for found in times if len(found) == len(times[-1])]
    return list(marks.calls), [statistics.median(each) for each in zip(*alike, strict=True)]


class _Marks(TorchDispatchMode):
    """Marks every operator that is no view with its number, and notes which module called it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.calls: list[Call] = []
        self._paths = {child: path for path, child in module.named_modules()}
        self._running: list[nn.Module] = [module]

    def enter(self, child: nn.Module) -> None:
        """A submodule starts to run."""
        self._running.append(child)

    def leave(self, child: nn.Module) -> None:
        """A submodule has returned, and so have those that it called."""
        while self._running.pop() is not child:
            pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view:
            return func(*args, **(kwargs or {}))
        with record_function(f"{MARK}{len(self.calls)}"):
            result = func(*args, **(kwargs or {}))
        first = next(tensors_in(result), None)
        where = next((self._paths[child] for child in reversed(self._running) if child in self._paths), "")
        self.calls.append((where, tuple(first.shape) if first is not None else ()))
        return result
