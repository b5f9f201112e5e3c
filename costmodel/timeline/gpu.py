"""Host and device times of kernels -> wall time of one synchronised call, in each mode.

The host launches kernels one after another. The device starts a kernel once it is launched and the one before it has
ended. Latency is the end of the last kernel, so it is about max(host, device). A CUDA graph replays all kernels with
one launch. On a CPU latency is a sum (`costmodel.timeline.cpu`).
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.timeline.cpu import BETWEEN, SERIAL_MODES, kernel_counts
from costmodel.timeline.host_counts import FURTHER_GRAPH, call_counts, eager_counts, entries, total
from costmodel.timeline.issue_trace import SectionTrace
from costmodel.timeline.queue import Costs, Queue, Timing
from costmodel.timeline.timed_trace import TimedTrace


def device_times(timed: TimedTrace, costs: Costs) -> list[float]:
    """Device time of each kernel inside its model: its isolated time plus a cost for each launch; microseconds."""
    more = costs["launch"]
    return [us + more * kernel.launches for us, kernel in zip(timed.device_us, timed.trace.kernels, strict=True)]


def eager_queue(timed: TimedTrace, tables: Mapping[str, Costs]) -> Queue:
    """Queue of eager execution: total host time spread over the calls in proportion to their isolated host times."""
    costs = tables["eager_host"]
    host = total(eager_counts(timed), costs)
    spread = (host - costs["start"]) / max(1e-9, sum(timed.host_us))
    calls = [us * spread for us in timed.host_us]
    return Queue(costs["start"], calls, device_times(timed, tables["eager_device"]), timed.waits, timed.parts)


def default_queue(timed: TimedTrace, tables: Mapping[str, Costs]) -> Queue:
    """Queue of torch.compile's default mode: guards and arguments first, then a launch for each kernel.

    Graph breaks leave several graphs, each with an entry of its own. The entries after the first and the cost of
    distinct fused kernels are spread over the calls.
    """
    trace, costs = timed.trace, tables["default_host"]
    beside = (entries(trace.subgraphs) - 1.0) * costs["start"] + timed.distinct_fused * costs["distinct"]
    each = beside / max(1, len(trace.kernels))
    calls = [us + each for us in _launches(timed, costs)]
    prologue = trace.parameters * costs["parameter"] + trace.checked_modules * costs["module"] + costs["start"]
    return Queue(prologue, calls, device_times(timed, tables["default_device"]), timed.waits, timed.parts)


def _launches(timed: TimedTrace, costs: Costs) -> list[float]:
    return [total(call_counts(*call), costs) for call in zip(timed.trace.kernels, timed.host_us, strict=True)]


def replay_queue(timed: TimedTrace, tables: Mapping[str, Costs]) -> Queue:
    """Queue of torch.compile's reduce-overhead mode: each compiled graph is one launch, its replay as a CUDA graph.

    Operators that run eagerly between graphs, and kernels that no CUDA graph can hold, are launched one by one. A graph
    that these divide is entered once, and each of its further parts costs what a further graph costs.
    """
    trace, costs, default = timed.trace, tables["graph_host"], tables["default_host"]
    launches, device = _launches(timed, default), device_times(timed, tables["default_device"])
    host_us: list[float] = []
    device_us: list[float] = []
    parts: list[int] = []
    waits: set[int] = set()
    start, share = 0, 1.0
    for section in trace.sections or (SectionTrace(len(trace.kernels), trace.parameters),):
        is_entered = False
        for run, is_replayed in section.runs():
            kernels = range(start + run.start, start + run.stop)
            if is_replayed or (section.is_compiled and not is_entered):
                entry = costs if is_replayed else default
                host_us.append(share * entry["start"] + (not is_entered) * section.parameters * entry["parameter"])
                device_us.append(sum(device[index] for index in kernels) if is_replayed else 0.0)
                parts.append(1)
                is_entered, share = True, FURTHER_GRAPH
            read = [index for index in kernels if index in timed.waits]
            if is_replayed:
                waits.update({len(host_us) - 1} if read else ())
                continue
            waits.update(len(host_us) + index - kernels.start for index in read)
            host_us += launches[kernels.start : kernels.stop]
            device_us += device[kernels.start : kernels.stop]
            parts += timed.parts[kernels.start : kernels.stop] or [1] * len(kernels)
        start += section.kernels
    prologue = trace.checked_modules * costs["module"]
    return Queue(prologue, host_us, device_us, frozenset(waits), parts if timed.parts else ())


def timings(eager: TimedTrace, compiled: TimedTrace, tables: Mapping[str, Costs]) -> dict[str, Timing]:
    """Times of a call in every mode.

    On a CPU, recognised by the cost tables of `SERIAL_MODES`, there is no reduce-overhead mode. Where Dynamo gives up,
    every mode runs eagerly.
    """
    if all(table in tables for table in SERIAL_MODES.values()):
        issued = {"eager": eager, "default": compiled if compiled.trace.subgraphs else eager}
        modes = {"eager": "eager", "default": "default" if compiled.trace.subgraphs else "eager"}
        return {mode: serial_timing(issued[mode], SERIAL_MODES[modes[mode]], tables) for mode in SERIAL_MODES}
    alone = eager_timing(eager, tables)
    if not compiled.trace.subgraphs:
        return dict.fromkeys(("eager", "default", "reduce-overhead"), alone)
    return {
        "eager": alone,
        "default": default_timing(compiled, tables),
        "reduce-overhead": replay_queue(compiled, tables).timing(tables["default_wall"]),
    }


def serial_timing(timed: TimedTrace, name: str, tables: Mapping[str, Costs]) -> Timing:
    """A call on a CPU: kernel times by the factors of a table, plus the time between kernels."""
    device = total(kernel_counts(timed.trace, timed.device_us), tables[name])
    between = max(0.0, total(BETWEEN[name](timed.trace), tables[name]))
    return Timing(device + between, between, device)


def eager_timing(timed: TimedTrace, tables: Mapping[str, Costs]) -> Timing:
    """A synchronised eager call."""
    return eager_queue(timed, tables).timing(tables["eager_wall"])


def default_timing(timed: TimedTrace, tables: Mapping[str, Costs]) -> Timing:
    """A synchronised call of the model compiled in default mode."""
    return default_queue(timed, tables).timing(tables["default_wall"])
