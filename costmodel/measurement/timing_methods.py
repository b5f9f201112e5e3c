"""Methods of timing a forward pass and its layers, of the kinds that Goldfarb (2024) compares (table 4.1).

    layers = Layers(model.eval(), "block")
    LayerTimers().measure(Subject(layers, (image,))).layers["layer1.0"].median_us

Each method takes a `Subject` and returns a `Timing`. They differ in what they disturb: a timer between two layers ends
a compiled graph, a synchronisation ends the overlap of host and device, and the profiler adds time to every operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch has it there, and does not list it
from torch.profiler import ProfilerActivity, profile

from costmodel.errors import MeasurementError
from costmodel.measurement.frame_padding import with_frame_padding
from costmodel.measurement.layer_sequence import Layers
from costmodel.measurement.timers import Measurement, latency

PROFILED: Mapping[str, str] = {
    "device total": "device_time_total",
    "device self": "self_device_time_total",
    "host self": "self_cpu_time_total",
}
"""Sums that the profiler offers, and the attribute of an event that each adds up."""
WARM_UP = 3
"""Passes before a measurement: the first compiles, in `reduce-overhead` the second records a CUDA graph."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Model in one configuration, to be timed.

    Attributes:
        layers: the model's layers.
        inputs: positional inputs on the device.
        compiled: whether the model is compiled: whole, or layer by layer where a method needs calls between layers.
        only: names of the layers to compile, each alone, while the others run eagerly; None for all of them.
        mode: mode of torch.compile.
    """

    layers: Layers
    inputs: tuple[torch.Tensor, ...]
    compiled: bool = False
    only: frozenset[str] | None = None
    mode: str = "default"

    @property
    def device(self) -> str:
        """Type of the device: `cpu` or `cuda`."""
        return self.inputs[0].device.type

    def run(self, calls: Sequence[Callable[[], object]] = ()) -> Callable[[], Any]:
        """A warmed-up forward pass, with calls between its layers."""
        with_layers = self.only if self.only is not None else self.layers.names if self.compiled else ()
        if self.compiled and not calls and self.only is None:
            whole = self.layers.prefix(len(self.layers.names))
            return self._warm(torch.compile(whole, dynamic=False, mode=self.mode))
        return self._warm(self.layers.with_calls(calls, with_layers, self.mode))

    def run_prefix(self, count: int) -> Callable[[], Any]:
        """A warmed-up forward pass that stops after so many layers, compiled whole if the model is."""
        prefix = self.layers.prefix(count)
        return self._warm(torch.compile(prefix, dynamic=False, mode=self.mode) if self.compiled else prefix)

    def _warm(self, module: Callable[..., Any]) -> Callable[[], Any]:
        replays = self.device == "cuda" and (self.compiled or self.only is not None) and self.mode != "default"

        def call() -> Any:
            if replays:  # layers with a CUDA graph each belong to one pass, whose results stay valid together
                torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad():
                return module(*self.inputs)

        for _ in range(WARM_UP):
            call()
        return call


@dataclass(frozen=True, slots=True)
class Timing:
    """Times by one method.

    Attributes:
        total: time of a pass; for methods that time layers, the sum over layers in each pass (arr_sum).
        layers: time of each layer, in execution order; empty for methods that see the pass as a whole.
    """

    total: Measurement
    layers: Mapping[str, Measurement] = field(default_factory=dict)


class TimingMethod(Protocol):
    """Way to time a forward pass."""

    @property
    def name(self) -> str:
        """Name in tables."""

    def measure(self, subject: Subject) -> Timing:
        """Measure a subject.

        Raises:
            MeasurementError: the device lacks what the method reads.
        """


class Clock:
    """Times of ticks between layers, nanoseconds.

    Attributes:
        ticks: times since the last reset.

    Args:
        device: `cpu` or `cuda`.
    """

    def __init__(self, device: str) -> None:
        self.ticks: list[int] = []
        self._on_cuda = device.startswith("cuda")

    def tick(self) -> None:
        """Take the time."""
        self.ticks.append(time.perf_counter_ns())

    def wait(self) -> None:
        """Wait for the device."""
        if self._on_cuda:
            torch.cuda.synchronize()

    def calls(self, *, timed: bool, synchronized: bool) -> tuple[Callable[[], object], ...]:
        """Calls to make between layers: the wait comes before the time is taken."""
        return (*((self.wait,) if synchronized else ()), *((self.tick,) if timed else ()))


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Wall time of a synchronised forward pass.

    Attributes:
        seconds: duration of the measurement.
        least: fewest passes.
        timed: whether timers run between layers, whose results are ignored.
        synchronized: whether the host waits for the device between layers.
        profiled: whether torch's profiler is active.
    """

    seconds: float = 0.15
    least: int = 10
    timed: bool = False
    synchronized: bool = False
    profiled: bool = False

    @property
    def name(self) -> str:
        """Name in tables."""
        return "end to end"

    def measure(self, subject: Subject) -> Timing:
        """Measure a subject."""
        clock = Clock(subject.device)
        call = subject.run(clock.calls(timed=self.timed, synchronized=self.synchronized))
        with _profiling(subject.device) if self.profiled else nullcontext():
            return Timing(latency(call, self.seconds, self.least, subject.device))


@dataclass(frozen=True, slots=True)
class LayerTimers:
    """Layer timing: a timer on either side of each layer; their sum is arr_sum.

    Attributes:
        passes: number of passes.
        synchronized: whether the host waits for the device before each time is taken; otherwise the times are those of
            launching on a GPU.
        profiled: whether torch's profiler is active.
    """

    passes: int = 10
    synchronized: bool = True
    profiled: bool = False

    @property
    def name(self) -> str:
        """Name in tables."""
        return "layer timing"

    def measure(self, subject: Subject) -> Timing:
        """Measure a subject; compiled layers are compiled one by one, as a timer ends a compiled graph."""
        clock = Clock(subject.device)
        call = subject.run(clock.calls(timed=True, synchronized=self.synchronized))
        with _profiling(subject.device) if self.profiled else nullcontext():
            rounds = _ticked(call, clock, self.passes)
        names = subject.layers.names
        layers = {name: Measurement(us) for name, us in zip(names, zip(*rounds, strict=True), strict=True)}
        return Timing(Measurement(tuple(map(sum, rounds))), layers)


@dataclass(frozen=True, slots=True)
class LayerSubtraction:
    """Layer subtraction: time of a pass up to a layer, less that of a pass up to the layer before.

    The pass is not disturbed within, so fusion and overlap count; differences of noisy times may be negative. A
    compiled model is compiled anew for each layer.

    Attributes:
        rounds: number of times that all prefixes are timed in turn.
        seconds: duration of timing one prefix in a round.
    """

    rounds: int = 5
    seconds: float = 0.05

    @property
    def name(self) -> str:
        """Name in tables."""
        return "layer subtraction"

    def measure(self, subject: Subject) -> Timing:
        """Measure a subject."""
        prefixes = [subject.run_prefix(count) for count in range(1, len(subject.layers.names) + 1)]
        rounds = [
            [latency(call, self.seconds, 3, subject.device).median_us for call in prefixes] for _ in range(self.rounds)
        ]
        return Timing(Measurement(tuple(found[-1] for found in rounds)), differences(subject.layers.names, rounds))


def differences(names: Sequence[str], rounds: Sequence[Sequence[float]]) -> dict[str, Measurement]:
    """Time of each layer as the difference of the prefixes that end with it and before it.

    Args:
        names: layers in execution order.
        rounds: microseconds of the prefix that ends with each layer, in each round.
    """
    steps = [[after - before for before, after in zip((0.0, *found), found, strict=False)] for found in rounds]
    return {name: Measurement(tuple(step[place] for step in steps)) for place, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class ProfilerSum:
    """Sum over all operators of a pass under torch's profiler.

    `device total` counts a kernel once for each operator around its launch, `device self` once; `host self` is the time
    of the CPU in each operator without the operators that it calls.

    Attributes:
        quantity: a key of PROFILED.
        passes: number of profiled passes.
        timed, synchronized: whether timers run between layers, and whether the host waits for the device there.
    """

    quantity: str = "device total"
    passes: int = 5
    timed: bool = False
    synchronized: bool = False

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"profiler, {self.quantity}"

    def measure(self, subject: Subject) -> Timing:
        """Measure a subject.

        Raises:
            MeasurementError: device times of a CPU, which the profiler does not have; or an unknown quantity.
        """
        if self.quantity not in PROFILED:
            raise MeasurementError(f"unknown quantity {self.quantity!r}; choose {', '.join(PROFILED)}")
        if self.quantity.startswith("device") and subject.device != "cuda":
            raise MeasurementError(f"torch's profiler has no {self.quantity} times on {subject.device}, only on cuda")
        clock = Clock(subject.device)
        call = subject.run(clock.calls(timed=self.timed, synchronized=self.synchronized))
        return Timing(Measurement(tuple(self._sum(call, subject.device) for _ in range(self.passes))))

    def _sum(self, call: Callable[[], object], device: str) -> float:
        with _profiling(device) as recorded:
            call()
            Clock(device).wait()
        return operator_sum(recorded.key_averages(), PROFILED[self.quantity])


def operator_sum(events: Iterable[Any], attribute: str) -> float:
    """Sum of an attribute over the operators of a profile; events of the kernels themselves would count twice."""
    return float(sum(getattr(event, attribute) for event in events if event.device_type == DeviceType.CPU))


def default_methods(passes: int = 10) -> tuple[TimingMethod, ...]:
    """One of each method."""
    sums = (ProfilerSum(quantity, passes) for quantity in PROFILED)
    return (EndToEnd(least=passes), LayerTimers(passes), LayerSubtraction(), *sums)


@with_frame_padding
def _ticked(call: Callable[[], object], clock: Clock, passes: int) -> list[list[float]]:
    """Microseconds between ticks, in each pass."""
    rounds = []
    for _ in range(passes):
        clock.wait()
        clock.ticks.clear()
        call()
        clock.wait()
        rounds.append([(after - before) / 1e3 for before, after in zip(clock.ticks, clock.ticks[1:], strict=False)])
    return rounds


def _profiling(device: str) -> AbstractContextManager[Any]:
    cuda = [ProfilerActivity.CUDA] if device == "cuda" else []
    return profile(activities=[ProfilerActivity.CPU, *cuda])


def eager_of(subject: Subject) -> Subject:
    """The same model with every layer eager."""
    return replace(subject, compiled=False, only=None)
