"""Timers: wall time of a call, host time to launch its kernels, device time of its kernels.

Timers take a callable and return a `Measurement`: raw samples with derived figures, which reports whether it is noisy.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from costmodel.errors import MeasurementError, first_line, text_of
from costmodel.execution.out_of_memory import shortage_behind
from costmodel.measurement.frame_padding import with_frame_padding
from costmodel.measurement.reference_network import LAUNCHES, reference_pass

NOISY_IQR = 0.05
"""Interquartile range, as a share of the median, above which a measurement is noisy."""
PROBE_SECONDS = 0.5
"""Duration of a host probe."""
PASSES = 10
"""Number of last passes, about 30 ms, whose median is the result of a host probe."""
LAUNCH_US = 7.0
"""Time of a launch on the reference host, to which host times of calls are scaled."""
NOT_CAPTURABLE = "not capturable in a CUDA graph"
"""Start of the error message. Afterwards random numbers on CUDA fail in this process: its generator stays capturing."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Raw samples of one quantity in microseconds, in the order of measurement."""

    samples_us: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples_us:
            raise MeasurementError("a measurement needs at least one sample")

    def quantile(self, share: float) -> float:
        """Sample below which `share` of the samples lie (nearest rank), in microseconds."""
        ordered = sorted(self.samples_us)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def median_us(self) -> float:
        """Median sample, microseconds."""
        return statistics.median(self.samples_us)

    @property
    def spread(self) -> float:
        """Interquartile range as a share of the median; 0 if all samples are 0."""
        spread_us = self.quantile(0.75) - self.quantile(0.25)
        return spread_us / self.median_us if self.median_us else spread_us

    @property
    def complaint(self) -> str:
        """Reason for not trusting the measurement, in words; empty if there is none."""
        if self.spread <= NOISY_IQR:
            return ""
        return f"noisy: the interquartile range is {self.spread:.1%} of the median, more than {NOISY_IQR:.0%}"

    @property
    def noisy(self) -> bool:
        """Whether the interquartile range is more than NOISY_IQR of the median."""
        return bool(self.complaint)

    def quantiles_us(self) -> list[float]:
        """The 10, 25, 50, 75 and 90 % quantiles in microseconds, as stored in a dataset."""
        return [round(self.quantile(q), 4) for q in (0.1, 0.25, 0.5, 0.75, 0.9)]


Call = Callable[[], object]


@with_frame_padding
def latency(call: Call, seconds: float = 0.15, least: int = 10, device: str = "cuda") -> Measurement:
    """Measure wall time of one synchronised call, for about `seconds` and at least `least` times."""
    synchronize = _synchronizer(device)
    for _ in range(3):
        call()
    synchronize()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < least or time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        synchronize()
        samples.append((time.perf_counter_ns() - start) / 1e3)
    return Measurement(tuple(samples))


@with_frame_padding
def host_time(call: Call, repeats: int = 30, device: str = "cuda") -> Measurement:
    """Measure wall time until a call returns, with an idle device at its start: time of the CPU to launch kernels."""
    synchronize = _synchronizer(device)
    samples: list[float] = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - start) / 1e3)
    synchronize()
    return Measurement(tuple(samples))


@with_frame_padding
def issue_time(call: Call, device: str = "cuda", rounds: int = 3, calls: int = 8) -> Measurement:
    """Measure wall time until a call returns in a series of calls, as in a model, scaled to a host of LAUNCH_US.

    Launches before and after measure the present speed of the host. The first call after each synchronisation is left
    out, because it finds cold CPU caches.
    """
    synchronize = _synchronizer(device)
    probe = torch.zeros(1, device=device)
    launches = [_launch_us(probe, synchronize)]
    for _ in range(3):
        call()
    samples: list[float] = []
    for _ in range(rounds):
        synchronize()
        call()
        for _ in range(calls):
            start = time.perf_counter_ns()
            call()
            samples.append((time.perf_counter_ns() - start) / 1e3)
    launches.append(_launch_us(probe, synchronize))
    scale = LAUNCH_US / statistics.mean(launches)
    return Measurement(tuple(us * scale for us in samples))


def _launch_us(probe: torch.Tensor, synchronize: Callable[[], None]) -> float:
    """Present time of a launch on this host: the best of three series of 50, microseconds."""
    best = min(_series_us(probe, synchronize, 50) for _ in range(3))
    synchronize()
    return best


def _series_us(probe: torch.Tensor, synchronize: Callable[[], None], launches: int) -> float:
    """Microseconds a launch, in a series that starts with an idle device."""
    synchronize()
    start = time.perf_counter_ns()
    for _ in range(launches):
        probe.add_(1.0)
    return (time.perf_counter_ns() - start) / 1e3 / launches


@with_frame_padding
def host_probe(device: str = "cuda", seconds: float = PROBE_SECONDS) -> float:
    """Measure the launch speed of this host by a reference network: microseconds of its pass divided by LAUNCHES.

    The result is the median of the last passes within `seconds`; a new process on an idle machine is up to 1.6 times
    slower at first.
    """
    call, synchronize = reference_pass(device), _synchronizer(device)
    samples: deque[float] = deque(maxlen=PASSES)
    end = time.perf_counter() + seconds
    synchronize()
    while len(samples) < PASSES or time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        synchronize()
        samples.append((time.perf_counter_ns() - start) / 1e3)
    return round(statistics.median(samples) / LAUNCHES, 4)


def workspace_bytes(call: Call) -> int:
    """Measure the peak device memory of a call on CUDA beyond its results.

    A first call, which allocates persistent workspaces such as that of cuBLAS, is not counted.
    """
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    peak, after = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    del result
    return peak - before - (after - before)


def _synchronizer(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device.startswith("cuda") else lambda: None


def capture_graph(call: Call, copies: int = 1) -> torch.cuda.CUDAGraph:
    """Capture `copies` consecutive calls in one CUDA graph, after a warm-up on a side stream.

    Raises:
        MeasurementError: the call cannot be captured. Random numbers on CUDA then fail in this process, which should
            be replaced.
    """
    stream, first, _ = _first_capture()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=first.pool())
            try:
                for _ in range(copies):
                    call()
            finally:
                graph.capture_end()
    except RuntimeError as error:
        if shortage := shortage_behind(error):
            raise shortage from None
        raise MeasurementError(f"{NOT_CAPTURABLE}: {first_line(text_of(error))}") from error
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@functools.cache
def _first_capture() -> tuple[torch.cuda.Stream, torch.cuda.CUDAGraph, torch.Tensor]:
    """Stream for captures, and a first graph whose memory pool all later graphs share.

    With one pool a graph, as in `torch.cuda.graph`, cached memory returns to the driver before each capture and is
    allocated again, which took most of the time of measuring a small kernel.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        result = torch.zeros(1, device="cuda")
        graph.capture_end()
    return stream, graph, result


def release_memory() -> None:
    """Return cached device memory to the driver, that of captured graphs included; no graph may be in use."""
    _first_capture.cache_clear()
    torch.cuda.empty_cache()


def device_time(call: Call, rounds: int = 5, replays: int = 10, copies: int = 1, device: str = "cuda") -> Measurement:
    """Measure device time of one call by replays of one CUDA graph between events, one sample a round.

    On a CPU, where the host is the device: wall time of `copies` consecutive calls.
    """
    if not device.startswith("cuda"):
        return _wall_time(call, rounds, copies)
    graph = capture_graph(call, copies)
    for _ in range(2):
        graph.replay()
    samples: list[float] = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / replays / copies)
    return Measurement(tuple(samples))


@with_frame_padding
def stream_time(call: Call, rounds: int = 5, copies: int = 10) -> Measurement:
    """Measure time of one of `copies` consecutive calls between events on CUDA, one sample a round.

    For calls that wait for the device, which no CUDA graph captures: the host's time between launches counts.
    """
    for _ in range(3):
        call()
    samples: list[float] = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(copies):
            call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1e3 / copies)
    return Measurement(tuple(samples))


def profiled_device_time(call: Call, rounds: int = 5) -> Measurement:
    """Measure device time of one call on CUDA as the sum of its kernels by torch's profiler, one sample a round.

    For calls that no CUDA graph captures. The profiler slows the host down, not the kernels.
    """
    from torch.profiler import ProfilerActivity, profile

    samples: list[float] = []
    call()
    for _ in range(rounds):
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            call()
            torch.cuda.synchronize()
        samples.append(sum(event.self_device_time_total for event in profiled.key_averages()))
    return Measurement(tuple(samples))


def _wall_time(call: Call, rounds: int, copies: int) -> Measurement:
    call()
    samples: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(copies):
            call()
        samples.append((time.perf_counter_ns() - start) / 1e3 / copies)
    return Measurement(tuple(samples))
