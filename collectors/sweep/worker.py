"""The worker of a sweep: measures case after case in a process of its own, with nothing else running.

It is started by `collectors.sweep.supervisor`, and is replaced when it ends with RECYCLE, dies, or hangs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.processes.environment import environment
from collectors.processes.process import die_with_parent, interruptions
from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import MOST_BYTES, Case, lone_convolution, read_cases, size_bytes
from costmodel.errors import CostmodelError, MeasurementError
from costmodel.ir import Graph, parse
from costmodel.measurement.cpu_determinism import make_cpu_deterministic
from costmodel.training.dataset import WORKSPACE

if TYPE_CHECKING:
    from costmodel.measurement.timers import Measurement

REFUSED = 2
RECYCLE = 3
"""Exit status of a worker that a case has left unfit to measure another one."""
MOST_RESERVED = 0.4
"""The part of a GPU's memory that torch may keep from one case to the next."""
WRONG_ERROR = 0.02
"""A compiled result further from eager than this gives no speedup (float16 sums of thousands stay below it)."""
TARGET_US = 300.0
"""About how long one captured graph should run, so that its launch weighs little."""
CPU_SAMPLE_US, CPU_ROUND_US = 1500.0, 40e3
"""About how long a sample on a CPU should take, and all samples of a try, so that interruptions weigh little."""
LOOK_SECONDS = 0.1
CPU_TRIES = 3
"""So often a CPU is asked for samples if they scatter; all of them count."""
CPU_SCATTER = 0.12
"""Interquartile range over median up to which a CPU's samples are trusted: a dozen's median is then good to 4 %."""
OUT_OF_MEMORY = ("can't allocate memory", "out of memory")


def estimate_us(graph: Graph) -> float:
    """A rough device time, only to choose how often to repeat: traffic at 2 TB/s, arithmetic at 40 TFLOP/s."""
    from costmodel.ir import operators

    arithmetic = sum(operators.flops(graph, op) for op in graph.ops)
    return 2.0 + size_bytes(graph) / 2e6 + arithmetic / 4e7


def measure_case(case: Case, device: str) -> tuple[str, dict[str, Any]]:
    """Status and record of one case measured here and now.

    Raises:
        MeasurementError: there is nothing to measure, or it cannot be measured; torch's own errors pass through.
    """
    import torch

    from collectors.processes.run_graph import callables, relative_error
    from costmodel.measurement.timers import workspace_bytes

    graph = parse(case.graph)
    if not graph.ops or not graph.outputs:
        raise MeasurementError("the graph computes nothing: there is no time to measure")
    if size_bytes(graph) > MOST_BYTES:
        return "oom", {"error": f"its tensors take more than {MOST_BYTES >> 30} GiB"}
    record: dict[str, Any] = {}
    start = time.perf_counter()
    with torch.no_grad():
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
    """Why the times are not to be trusted; empty if they are.

    Another process on a CPU's cores need not show as scatter: threads that wait for one another then wait for the
    scheduler, in every call alike.
    """
    if device.startswith("cuda") or device_us.spread > CPU_SCATTER:
        return device_us.complaint
    often, samples = record["interruptions"], record["samples"]
    return f"noisy: other processes took a core {often} times in {samples} samples" if often >= samples else ""


def _time(graph: Graph, calls: Sequence[Callable[[], Any]], device: str, record: dict[str, Any]) -> Measurement:
    """Device and host time into `record`; on a CPU they are the same."""
    from costmodel.measurement.timers import device_time, issue_time

    if device.startswith("cuda"):
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
        raise MeasurementError("the clock saw no time pass")
    record |= {
        "device_us": device_us.quantiles_us(),
        "host_us": host_us.quantiles_us(),
        "samples": len(device_us.samples_us),
        "copies": copies,
    }
    return device_us


def _time_on_cpu(calls: Sequence[Callable[[], Any]]) -> tuple[Measurement, int]:
    """Wall time of a call, with more samples while they scatter; and of how many calls each sample is the mean."""
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
    case: Case, device: str, measure: Callable[[Case, str], tuple[str, dict[str, Any]]] | None = None
) -> tuple[str, dict[str, Any], bool]:
    """Status, record, and whether this process can measure another case; by `measure_case` if by nothing else."""
    from costmodel.measurement.timers import NOT_CAPTURABLE

    try:
        return *(measure or measure_case)(case, device), True
    except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY):
            return "oom", {"error": text[:200]}, False
        # a failed capture leaves CUDA's random numbers unusable, a CUDA error perhaps the whole context
        poisoned = "CUDA error" in text or NOT_CAPTURABLE in text
        return "failed", {"error": text[:300]}, not poisoned


def measure_alone(cases: Sequence[Case], ledger: Ledger, device: str, end: float) -> bool:
    """Measures case after case until `end` (monotonic seconds); False if a new process has to go on."""
    for count, case in enumerate(cases):
        if time.monotonic() > end:
            return True
        ledger.start(case)
        status, record, healthy = attempt(case, device)
        ledger.finish(case, status, record)
        if not healthy:
            return False
        tidy(count, device)
    return True


def tidy(count: int, device: str) -> None:
    """After every fiftieth case, and when memory runs short: what torch keeps of earlier ones is let go."""
    import torch

    from costmodel.measurement.timers import release_memory

    on_cuda = device.startswith("cuda")
    short = on_cuda and torch.cuda.memory_reserved() > MOST_RESERVED * torch.cuda.get_device_properties(0).total_memory
    if count % 50 and not short:
        return
    if "torch._dynamo" in sys.modules:  # importing it takes seconds, and aten cases do without
        torch._dynamo.reset()
    if on_cuda:
        release_memory()


def warm(job: tuple[Case, str]) -> None:
    """Compiles one case in this process, so that the cache on disk holds it."""
    import torch
    from torch._inductor import config

    from collectors.processes.run_graph import make_tensor
    from costmodel.execution.fx_module import build_module
    from costmodel.execution.inductor_compile import compile_module

    case, device = job
    warnings.filterwarnings("ignore")
    graph = parse(case.graph)
    if size_bytes(graph) > MOST_BYTES:
        return
    arguments = [make_tensor(value.type, device) for value in graph.values]
    tuned = case.runner == "autotune"
    choices_kept = not tuned  # made while others use the device, they are no good: only the kernels are kept
    with torch.no_grad(), config.patch(fx_graph_cache=choices_kept, autotune_local_cache=choices_kept):
        compiled = compile_module(build_module(graph), arguments, templates=tuned)
        if device.startswith("cuda"):
            compiled(*arguments)
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def make_ready(device: str) -> None:
    """Does what the first case would wait for: imports of torch's compiler, the start of the device."""
    import torch
    import torch._inductor.compile_fx

    import collectors.processes.run_graph  # noqa: F401

    torch.zeros(1, device=device)


def main() -> int:
    """Measures the cases of a work list that have not ended; the exit status says whether to go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--wait", action="store_true", help="for the work list, having made ready to compile")
    args = parser.parse_args()
    die_with_parent(args.parent)
    make_cpu_deterministic(args.device)
    end = time.monotonic() + args.seconds
    warnings.filterwarnings("ignore")
    if args.wait:
        make_ready(args.device)
        while not args.work.exists():
            time.sleep(LOOK_SECONDS)
    try:
        with Ledger(args.ledger, environment(args.device)) as ledger:
            finished = ledger.finished()
            todo = [case for case in read_cases(args.work) if (case.key, case.unit) not in finished]
            return 0 if measure_alone(todo, ledger, args.device, end) else RECYCLE
    except CostmodelError as error:
        print(error, file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
