"""Measure one unit in this process: device time, CPU launch time, and the error of a compiled result."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collectors.processes.process import interruptions
from collectors.workloads.cases import MOST_TENSOR_BYTES, UnitCase, lone_convolution, size_bytes
from costmodel.errors import MeasurementError
from costmodel.execution.torch_settings import matmul_precision
from costmodel.ir import Graph, parse
from costmodel.kernels.kernel import TF32_RUNNER
from costmodel.training.dataset import WORKSPACE

if TYPE_CHECKING:
    from costmodel.measurement.timers import Measurement

MOST_RESERVED = 0.4
"""Share of a GPU's memory that torch may keep from one case to the next."""
WRONG_ERROR = 0.02
"""Relative error above which a compiled result is wrong (float16 sums of thousands of terms stay below it)."""
TARGET_US = 300.0
"""Target run time of one captured graph, so that its launch weighs little."""
CPU_SAMPLE_US, CPU_ROUND_US = 1500.0, 40e3
"""Target time of one sample on a CPU, and of all samples of a try, so that interruptions weigh little."""
CPU_TRIES = 3
"""Tries on a CPU while samples scatter; the samples of all tries count."""
CPU_SCATTER = 0.12
"""Largest trusted interquartile range over median of a CPU's samples; the median of a dozen is then within 4 %."""
WAITING = frozenset({"torchvision_nms", "nonzero", "masked_select", "_unique2"})
"""Operators that wait for the device, because the size of the result depends on values: no CUDA graph captures them."""
OUT_OF_MEMORY = ("can't allocate memory", "out of memory")


def estimate_us(graph: Graph) -> float:
    """Rough device time, only to choose the number of repeats: traffic at 2 TB/s, arithmetic at 40 TFLOP/s."""
    from costmodel.ir import operators

    arithmetic = sum(operators.flops(graph, op) for op in graph.ops)
    return 2.0 + size_bytes(graph) / 2e6 + arithmetic / 4e7


def measure_case(case: UnitCase, device: str) -> tuple[str, dict[str, Any]]:
    """Measure one case in this process; returns its status and record.

    Raises:
        MeasurementError: the graph has no operators, or cannot be measured; torch's own errors pass through.
    """
    import torch

    from collectors.processes.run_graph import callables, relative_error
    from costmodel.measurement.timers import workspace_bytes

    graph = parse(case.graph)
    if not graph.ops or not graph.outputs:
        raise MeasurementError("the graph computes nothing: there is no time to measure")
    if size_bytes(graph) > MOST_TENSOR_BYTES:
        return "oom", {"error": f"its tensors take more than {MOST_TENSOR_BYTES >> 30} GiB"}
    record: dict[str, Any] = {}
    start = time.perf_counter()
    with torch.no_grad(), matmul_precision("high" if case.runner == TF32_RUNNER else "highest"):
        calls, reference, arguments = callables(graph, case.runner, device)
        result = calls[0]()
        record["setup_s"] = round(time.perf_counter() - start, 3)
        if case.compiled:
            record["relative_error"] = relative_error(result, reference(*arguments))
        del result
        if device.startswith("cuda") and case.runner == "aten" and lone_convolution(graph):
            record[WORKSPACE] = workspace_bytes(calls[0])
        device_us = _time(graph, calls, device, record)
    if case.compiled and not record["relative_error"] < WRONG_ERROR:
        return "wrong", record
    if complaint := _complaint(device_us, device, record):
        return "noisy", {**record, "complaint": complaint}
    return "ok", record


def _complaint(device_us: Measurement, device: str, record: Mapping[str, Any]) -> str:
    """Reason not to trust the times; empty if there is none.

    Another process on a CPU's cores need not show as scatter: threads that wait for one another then wait for the
    operating system's scheduler in every call alike.
    """
    if device.startswith("cuda") or device_us.spread > CPU_SCATTER:
        return device_us.complaint
    often, samples = record["interruptions"], record["samples"]
    return f"noisy: other processes took a core {often} times in {samples} samples" if often >= samples else ""


def _time(graph: Graph, calls: Sequence[Callable[[], Any]], device: str, record: dict[str, Any]) -> Measurement:
    """Measure device and host time into `record`; on a CPU they are the same."""
    from costmodel.measurement.timers import device_time, issue_time, stream_time

    copies = 1
    if device.startswith("cuda") and any(op.base in WAITING for op in graph.ops):
        device_us = stream_time(_rotate(calls), rounds=9)
        host_us = device_us
    elif device.startswith("cuda"):
        estimate = estimate_us(graph)
        copies = max(len(calls) if estimate < 100 else 1, min(20, int(TARGET_US / estimate)), 1)
        replays = max(1, min(10, int(2 * TARGET_US / (estimate * copies))))
        device_us = device_time(_rotate(calls), rounds=5, replays=replays, copies=copies, device=device)
        host_us = issue_time(calls[0], device)
    else:
        before = interruptions()
        device_us, copies = _time_on_cpu(calls)
        host_us = device_us
        record["interruptions"] = interruptions() - before
    if device_us.median_us <= 0:
        raise MeasurementError("the measured time is zero: the clock did not advance")
    record |= {
        "device_us": device_us.quantiles_us(),
        "host_us": host_us.quantiles_us(),
        "samples": len(device_us.samples_us),
        "copies": copies,
    }
    return device_us


def _time_on_cpu(calls: Sequence[Callable[[], Any]]) -> tuple[Measurement, int]:
    """Wall time of a call, with more samples while they scatter; and the number of calls in each sample."""
    from collectors.processes.run_graph import MOST_COPIES
    from costmodel.measurement.timers import Measurement, device_time, host_time

    estimate = max(host_time(_rotate(calls), repeats=5, device="cpu").median_us, 0.1)
    copies = max(1, min(MOST_COPIES, int(CPU_SAMPLE_US / estimate)))
    rounds = max(5, min(15, int(CPU_ROUND_US / (estimate * copies))))
    found = device_time(_rotate(calls), rounds=rounds, copies=copies, device="cpu")
    for _ in range(CPU_TRIES - 1):
        if found.noisy:
            again = device_time(_rotate(calls), rounds=rounds, copies=copies, device="cpu")
            found = Measurement(found.samples_us + again.samples_us)
    return found, copies


def _rotate(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    state = {"next": 0}

    def call() -> Any:
        state["next"] = (state["next"] + 1) % len(calls)
        return calls[state["next"]]()

    return call


def attempt(
    case: UnitCase, device: str, measure: Callable[[UnitCase, str], tuple[str, dict[str, Any]]] | None = None
) -> tuple[str, dict[str, Any], bool]:
    """Measure a case, turning errors into a result: status, record, and whether this process can measure another case.

    Args:
        case: the case.
        device: `cpu` or `cuda`.
        measure: measuring function; default: `measure_case`.
    """
    from costmodel.measurement.timers import NOT_CAPTURABLE

    try:
        return *(measure or measure_case)(case, device), True
    except Exception as error:  # noqa: BLE001 - any error of a case is its result
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY):
            return "oom", {"error": text[:200]}, False
        # a failed capture leaves CUDA's random number generator unusable, a CUDA error perhaps the whole context
        poisoned = "CUDA error" in text or NOT_CAPTURABLE in text
        return "failed", {"error": text[:300]}, not poisoned


def tidy(count: int, device: str) -> None:
    """Release memory and compiled code of earlier cases, after every fiftieth case and when memory runs short."""
    import torch

    from costmodel.measurement.timers import release_memory

    on_cuda = device.startswith("cuda")
    short = on_cuda and torch.cuda.memory_reserved() > MOST_RESERVED * torch.cuda.get_device_properties(0).total_memory
    if count % 50 and not short:
        return
    if "torch._dynamo" in sys.modules:  # importing it takes seconds, and eager cases do not need it
        torch._dynamo.reset()
    if on_cuda:
        release_memory()


def warm(job: tuple[UnitCase, str]) -> None:
    """Compile one case in this process, so that the cache on disk holds it."""
    import torch
    from torch._inductor import config

    from collectors.processes.run_graph import arguments_of
    from costmodel.execution.fx_module import build_module
    from costmodel.execution.inductor_compile import compile_module

    case, device = job
    warnings.filterwarnings("ignore")
    graph = parse(case.graph)
    if size_bytes(graph) > MOST_TENSOR_BYTES:
        return
    arguments = arguments_of(graph, device)
    tuned = case.runner == "autotune"
    choices_kept = not tuned  # choices made while other processes use the device are wrong: only kernels are kept
    with torch.no_grad(), config.patch(fx_graph_cache=choices_kept, autotune_local_cache=choices_kept):
        compiled = compile_module(build_module(graph), arguments, templates=tuned)
        if device.startswith("cuda"):
            compiled(*arguments)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def make_ready(device: str) -> None:
    """Import torch's compiler and start the device, which the first compiled case would wait for."""
    import torch
    import torch._inductor.compile_fx

    import collectors.processes.run_graph  # noqa: F401

    torch.zeros(1, device=device)
