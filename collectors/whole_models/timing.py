"""Time a whole model, eager and compiled calls in turn, with the host's speed watched or recorded."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from collectors.processes.host_noise import HostWatch, watch_host
from collectors.whole_models.built_model import BuiltModel, Call, build
from collectors.whole_models.compilation import MODES, compile_mode, modes_on
from collectors.whole_models.records import Record
from collectors.workloads.model_cases import WholeModelCase
from costmodel.calibration.measured_model import EAGER_ALONE, PROBES

Found = TypeVar("Found")
INTERLEAVED, CPU_INTERLEAVED = 2, 3
"""Rounds of eager and compiled calls in turn."""
CPU_SECONDS, CPU_LEAST = 0.3, 5
"""Length of a round on a CPU, and its least number of calls."""
HOST_CALLS = 15
MOST_SAMPLES = 200
"""Raw samples kept of a round, evenly spaced over it."""


def measure_modes(
    case: WholeModelCase,
    device: str,
    with_device: bool = True,
    modes: Collection[str] = tuple(MODES),
    watch: HostWatch | None = None,
) -> Record:
    """Build, compile and measure a case in this process, eager and compiled in turn; returns its record.

    `unstable` in the record names modes that were compiled again while they were timed, `graph_breaks` the number of
    breaks: the speedup of such a mode is not that of one compiled graph. `disturbed` names what was timed while other
    processes slowed the host down, in spite of several tries.

    Args:
        case: the case.
        device: `cpu`, `cuda` or `cuda:N`.
        with_device: measure device times too.
        modes: modes of torch.compile.
        watch: watch of the host; a new one by default.
    """
    import torch

    model = build(case, device)
    record: Record = dict(case, input_shape=model.input_shape(), latency_us={}, disturbed=[])
    timer = _Timer(device, watch or watch_host(device), record)
    with torch.no_grad():
        reference = model.outputs(model.module)
        for mode in modes_on(device, modes):
            compiled = compile_mode(model, mode, device, reference, record)
            timer.time_mode(mode, model.eager, compiled, with_device and mode == "default")
    if device.startswith("cuda"):
        record["probe_us"] = round(timer.watch.usual_us, 4)
    return record


@dataclass(frozen=True, slots=True)
class _Timer:
    """Timer of calls on a watched host; results go into the record of a case."""

    device: str
    watch: HostWatch
    record: Record

    def time_mode(self, mode: str, eager: Call, compiled: Call, with_device: bool) -> None:
        """Time a mode's call and the eager one in turn; then, on a GPU, host and device time of each."""
        from costmodel.measurement.timers import device_time, host_time

        graphs = _graphs()
        on_gpu = self.device.startswith("cuda")
        for _ in range(INTERLEAVED if on_gpu else CPU_INTERLEAVED):
            taken = self._undisturbed(mode, partial(self._round, eager, compiled))
            for name, quantiles in zip((f"eager/{mode}", mode), taken, strict=True):
                self.record["latency_us"].setdefault(name, []).append(quantiles)
        for name, call in (("eager", eager), (mode, compiled)) if on_gpu else ():
            host = self._undisturbed(f"{name} host", partial(host_time, call, device=self.device))
            self.record[f"{name}_host_us"] = host.quantiles_us()
            if with_device:
                self.record[f"{name}_device_us"] = device_time(call, device=self.device).quantiles_us()
        note_recompiled(self.record, mode, graphs)

    def _round(self, *calls: Call) -> list[list[float]]:
        """Latency of each call, in turn, as quantiles in microseconds."""
        from costmodel.measurement.timers import latency

        seconds, least = (0.12, 10) if self.device.startswith("cuda") else (CPU_SECONDS, CPU_LEAST)
        return [latency(call, seconds, least, self.device).quantiles_us() for call in calls]

    def _undisturbed(self, name: str, take: Callable[[], Found]) -> Found:
        """Measurement taken on a quiet host; if the host never was quiet, the record says so."""
        found, quiet = self.watch.measure(take)
        if not quiet and name not in self.record["disturbed"]:
            self.record["disturbed"].append(name)
        return found


def _graphs() -> int:
    """Number of graphs that Dynamo has compiled."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def note_recompiled(record: Record, mode: str, graphs: int) -> None:
    """Name a mode `unstable` if Dynamo has compiled more graphs than before it was timed."""
    if _graphs() != graphs:
        record.setdefault("unstable", []).append(mode)


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """Settings of rounds that a process of its own measures.

    Attributes:
        rounds: number of rounds.
        seconds: length of each series of calls.
        samples: keep raw samples too.
        kernels: measure host and device times too.
    """

    rounds: int = 8
    seconds: float = 0.04
    samples: bool = False
    kernels: bool = False


def measure_rounds(model: BuiltModel, compiled: Mapping[str, Call], device: str, settings: RoundSettings) -> Record:
    """Measure rounds of a host probe and of each call, in a process in its turn; returns fields of a record.

    Args:
        model: the model.
        compiled: compiled call of each mode; without any, eager calls are measured alone.
        device: `cpu` or `cuda`.
        settings: number and length of rounds.
    """
    from costmodel.measurement.timers import host_probe, latency

    calls = {name: call for mode, one in compiled.items() for name, call in _beside(mode, model.eager, one).items()}
    calls = calls or {EAGER_ALONE: model.eager}
    graphs = _graphs() if compiled else 0
    probes = [host_probe(device, seconds=0.15)]
    found: Record = {"latency_us": {name: [] for name in calls}}
    samples: dict[str, list[list[float]]] = {name: [] for name in calls}
    for _ in range(settings.rounds):
        for name, call in calls.items():
            taken = latency(call, settings.seconds, CPU_LEAST, device)
            found["latency_us"][name].append(taken.quantiles_us())
            samples[name].append(_thinned(taken.samples_us))
        probes.append(host_probe(device, seconds=0.0))
    for mode in compiled:
        note_recompiled(found, mode, graphs)
    if settings.samples:
        found["latency_samples"] = samples
    found |= {PROBES: probes, "probe_us": statistics.median(probes)}
    return found | (_host_and_device(model, compiled, device) if settings.kernels else {})


def _beside(mode: str, eager: Call, compiled: Call) -> dict[str, Call]:
    return {f"{EAGER_ALONE}/{mode}": eager, mode: compiled}


def _thinned(samples_us: Collection[float]) -> list[float]:
    step = max(1, -(-len(samples_us) // MOST_SAMPLES))
    return [round(us, 2) for us in tuple(samples_us)[::step]]


def _host_and_device(model: BuiltModel, compiled: Mapping[str, Call], device: str) -> Record:
    """Host time of each call; on a GPU also device time of eager and `default`, where a CUDA graph can be captured."""
    from costmodel.errors import MeasurementError
    from costmodel.measurement.timers import device_time, host_time, profiled_device_time

    calls = {"eager": model.eager, **compiled}
    found: Record = {
        f"{name}_host_us": host_time(call, HOST_CALLS, device).quantiles_us() for name, call in calls.items()
    }
    for name in ("eager", "default") if device.startswith("cuda") else ():
        if name in calls and not model.is_capturable:
            found[f"{name}_device_us"] = profiled_device_time(calls[name]).quantiles_us()
            continue
        try:
            if name in calls:
                found[f"{name}_device_us"] = device_time(calls[name], device=device).quantiles_us()
        except (MeasurementError, RuntimeError) as error:
            return found | {"not_capturable": f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]}
    return found
