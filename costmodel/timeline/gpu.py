"""Host and device times of kernels -> wall time of one synchronised call, in each mode.

The host issues calls one after another; the device starts a kernel once it is issued and the one before it has ended.
Wall time is the end of the last kernel. In graph mode one launch replays all.
On a CPU the host is the device: it runs what it issues before it goes on, and wall time is a sum
(`costmodel.timeline.cpu`).
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.timeline.cpu import BETWEEN, SERIAL_MODES, kernel_counts
from costmodel.timeline.host_counts import _call_counts, eager_counts, graph_counts, total
from costmodel.timeline.queue import Costs, Queue, Timing
from costmodel.timeline.timed_trace import TimedTrace


def device_times(timed: TimedTrace, costs: Costs) -> list[float]:
    """Device time of each kernel inside its model: alone, plus what its launches take there; microseconds."""
    more = costs["launch"]
    return [us + more * kernel.launches for us, kernel in zip(timed.device_us, timed.trace.kernels, strict=True)]


def eager_queue(timed: TimedTrace, tables: Mapping[str, Costs]) -> Queue:
    """Eager execution: the host's whole time spread over the calls in proportion to what each takes alone."""
    costs = tables["eager_host"]
    host = total(eager_counts(timed), costs)
    spread = (host - costs["start"]) / max(1e-9, sum(timed.host_us))
    calls = [us * spread for us in timed.host_us]
    return Queue(costs["start"], calls, device_times(timed, tables["eager_device"]))


def default_queue(timed: TimedTrace, tables: Mapping[str, Costs]) -> Queue:
    """torch.compile's default mode: guards and arguments first, then a launch a kernel.

    A pass that was cut enters its graphs one after another: all but the first entry are spread over the calls, and so
    is what fused kernels that are not alike take more than as many that are.
    """
    trace, costs = timed.trace, tables["default_host"]
    beside = (trace.subgraphs - 1) * costs["start"] + timed.distinct_fused * costs["distinct"]
    each = beside / max(1, len(trace.kernels))
    calls = [total(_call_counts(*call), costs) + each for call in zip(trace.kernels, timed.host_us, strict=True)]
    prologue = trace.parameters * costs["parameter"] + trace.checked_modules * costs["module"] + costs["start"]
    return Queue(prologue, calls, device_times(timed, tables["default_device"]))


def timings(eager: TimedTrace, compiled: TimedTrace, tables: Mapping[str, Costs]) -> dict[str, Timing]:
    """A call in every mode there is, from what is issued eager and compiled.

    On a CPU, whose tables of costs are those of `SERIAL_MODES`, there are no CUDA graphs; nor is a pass that was cut
    one of them. Microseconds.
    """
    if all(table in tables for table in SERIAL_MODES.values()):
        issued = {"eager": eager, "default": compiled}
        return {mode: serial_timing(issued[mode], table, tables) for mode, table in SERIAL_MODES.items()}
    found = {"eager": eager_timing(eager, tables), "default": default_timing(compiled, tables)}
    if compiled.trace.subgraphs == 1:
        found["reduce-overhead"] = graph_timing(compiled, tables)
    return found


def serial_timing(timed: TimedTrace, name: str, tables: Mapping[str, Costs]) -> Timing:
    """A call on a CPU: kernels one after another, at the factors of a table, and what is between them."""
    device = total(kernel_counts(timed.trace, timed.device_us), tables[name])
    between = max(0.0, total(BETWEEN[name](timed.trace), tables[name]))
    return Timing(device + between, between, device)


def eager_timing(timed: TimedTrace, tables: Mapping[str, Costs]) -> Timing:
    """A synchronised eager call."""
    return eager_queue(timed, tables).timing(tables["eager_wall"])


def default_timing(timed: TimedTrace, tables: Mapping[str, Costs]) -> Timing:
    """A synchronised call of the model compiled in default mode."""
    return default_queue(timed, tables).timing(tables["default_wall"])


def graph_timing(timed: TimedTrace, tables: Mapping[str, Costs]) -> Timing:
    """torch.compile's reduce-overhead mode: the compiled kernels as one CUDA graph."""
    device = sum(device_times(timed, tables["default_device"]))
    host = total(graph_counts(timed.trace), tables["graph_host"])
    return Timing(device + host, host, device)
