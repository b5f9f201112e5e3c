"""Timing on the machine at hand: wall time of a call, host time to issue it, device time of its kernels.

What was measured (a callable) is kept apart from the measurement (raw samples with derived figures), and a
measurement says itself when it is too noisy to be trusted.
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
from costmodel.measurement.frame_padding import with_frame_padding
from costmodel.measurement.reference_network import LAUNCHES, reference_pass

NOISY_IQR = 0.05
"""A measurement whose interquartile range exceeds this share of its median is called noisy."""
PROBE_SECONDS = 0.5
"""How long a probe of the host lasts."""
PASSES = 10
"""A probe's result is the median of so many passes, some 30 ms."""
LAUNCH_US = 7.0
"""Host times of calls are told for a host on which a launch takes this long."""
NOT_CAPTURABLE = "not capturable in a CUDA graph"
"""After such an error, random numbers fail on CUDA in this process: torch leaves its generator as in a capture."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Raw samples of one quantity, in microseconds, in the order in which they were taken."""

    samples_us: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples_us:
            raise MeasurementError("a measurement without samples says nothing; take at least one")

    def quantile(self, share: float) -> float:
        """The sample below which `share` of the samples lie (nearest rank), in microseconds."""
        ordered = sorted(self.samples_us)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def median_us(self) -> float:
        """Median sample, microseconds."""
        return statistics.median(self.samples_us)

    @property
    def spread(self) -> float:
        """The interquartile range as a share of the median; 0 where all samples are 0."""
        spread_us = self.quantile(0.75) - self.quantile(0.25)
        return spread_us / self.median_us if self.median_us else spread_us

    @property
    def complaint(self) -> str:
        """The condition for trusting the measurement that it fails, in words; empty if it is to be trusted."""
        if self.spread <= NOISY_IQR:
            return ""
        return f"noisy: the interquartile range is {self.spread:.1%} of the median, more than {NOISY_IQR:.0%}"

    @property
    def noisy(self) -> bool:
        """Whether the interquartile range is more than NOISY_IQR of the median."""
        return bool(self.complaint)

    def quantiles_us(self) -> list[float]:
        """The 10, 25, 50, 75 and 90 % quantiles, microseconds: what a dataset keeps of the samples."""
        return [round(self.quantile(q), 4) for q in (0.1, 0.25, 0.5, 0.75, 0.9)]


Call = Callable[[], object]


@with_frame_padding
def latency(call: Call, seconds: float = 0.15, least: int = 10, device: str = "cuda") -> Measurement:
    """Wall time of one synchronised call, sampled for about `seconds` and at least `least` times."""
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
    """Wall time until a call returns, the device idle at its start: what the CPU spends issuing it."""
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
    """Wall time until a call returns that follows others like it, as a model's calls do, for a host of LAUNCH_US.

    Launches before and after tell how fast the host is in this moment. The first call after each wait is left out: it
    finds the CPU's caches as the wait left them, and takes longer.
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
    """What a launch takes on the host now: the best of three series of 50, microseconds."""
    best = min(_series_us(probe, synchronize, 50) for _ in range(3))
    synchronize()
    return best


def _series_us(probe: torch.Tensor, synchronize: Callable[[], None], launches: int) -> float:
    """Microseconds a launch of a series that begins with an idle device."""
    synchronize()
    start = time.perf_counter_ns()
    for _ in range(launches):
        probe.add_(1.0)
    return (time.perf_counter_ns() - start) / 1e3 / launches


@with_frame_padding
def host_probe(device: str = "cuda", seconds: float = PROBE_SECONDS) -> float:
    """How fast this host issues what models do: microseconds a launch, were a reference pass made of launches alone.

    The median of the last passes of so many seconds: a new process on an idle machine is up to 1.6 times slower at
    first.
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
    """Device memory that a call on CUDA allocates at its peak beyond the results that it returns.

    The first call makes what libraries keep, such as cuBLAS's workspace, and is not counted.
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
    """One CUDA graph of `copies` consecutive calls, after a warm-up on a side stream.

    Raises:
        MeasurementError: the call does something that a CUDA graph cannot hold. The process is then unfit to draw
            random numbers on CUDA, and should be replaced.
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
        if shortage := _shortage(error):
            raise shortage from None
        raise MeasurementError(f"{NOT_CAPTURABLE}: {first_line(text_of(error))}") from error
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@functools.cache
def _first_capture() -> tuple[torch.cuda.Stream, torch.cuda.CUDAGraph, torch.Tensor]:
    """The stream that graphs are captured on, and a graph in whose pool the others get their memory.

    With a pool of its own for each graph, as `torch.cuda.graph` has it, all cached memory goes back to the driver
    before a capture and has to be asked for again: most of the time that measuring a small kernel took.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        result = torch.zeros(1, device="cuda")
        graph.capture_end()
    return stream, graph, result


def release_memory() -> None:
    """Gives cached device memory back to the driver, that of captured graphs included; no graph may be in use."""
    _first_capture.cache_clear()
    torch.cuda.empty_cache()


def _shortage(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """The shortage of memory that led to an error: ending a capture that failed raises another one on top of it."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__context__
    return error


def device_time(call: Call, rounds: int = 5, replays: int = 10, copies: int = 1, device: str = "cuda") -> Measurement:
    """Device time of one call: replays of one CUDA graph between events, a sample a round.

    On a CPU, where the host is the device, wall time of `copies` calls in a row.
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
def _wall_time(call: Call, rounds: int, copies: int) -> Measurement:
    call()
    samples: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(copies):
            call()
        samples.append((time.perf_counter_ns() - start) / 1e3 / copies)
    return Measurement(tuple(samples))
