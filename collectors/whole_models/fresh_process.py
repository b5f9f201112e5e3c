"""One case in a fresh process: prepared, held idle until its turn, then measured alone on the machine.

python -m collectors.whole_models.fresh_process JOB

JOB is a JSON object, see `Job`; `collectors.whole_models.fresh_runs` starts these processes.

The process writes `ready`, waits for a line of input, and writes a JSON object for each mode. What the model prints
goes to standard error.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from collectors.processes.process import die_with_parent
from collectors.whole_models.fresh_case import Call, Case, Job, Record, build

if TYPE_CHECKING:
    import torch

    from costmodel.measurement.timers import Measurement

SAMPLES = 200
"""Raw samples kept of a round, evenly spaced over it."""
WARM_UP = 3
"""Calls before a compiled model is in its steady state: reduce-overhead records its CUDA graph in the second."""


def compile_case(case: Case, mode: str) -> Record:
    """Compiles in a mode, timed; counts of graphs, breaks and skipped CUDA graphs, and errors against eager."""
    import torch

    record: Record = {"mode": mode}
    start = time.perf_counter()
    compiled = torch.compile(case.module, mode=None if mode == "default" else mode)
    record["wrap_s"] = round(time.perf_counter() - start, 4)
    counters, reasons = _dynamo()
    said = _skip_messages(case.job.run == "latency")
    graphs, skips, broken = counters["stats"]["unique_graphs"], _skips(counters), len(reasons)
    call = partial(compiled, *case.arguments, **case.keywords)
    record["calls_s"] = [_timed(call, case.job.device) for _ in range(WARM_UP)]
    record["graphs"] = counters["stats"]["unique_graphs"] - graphs
    record["cudagraph_skips"] = _skips(counters) - skips
    record["skip_messages"] = list(dict.fromkeys(said))
    record["breaks"] = [_described(reason) for reason in reasons[broken:]]
    record["errors"] = relative_errors(case.outputs(compiled), case.reference)
    case.compiled[mode] = call
    return record


def _dynamo() -> tuple[Any, list[Any]]:
    """Dynamo's counters and the reasons of its graph breaks so far."""
    from torch._dynamo import utils

    return utils.counters, getattr(utils, "graph_break_reasons", [])


class _Kept(logging.Handler):
    """Puts warnings into a list."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a message."""
        self.said.append(record.getMessage()[:300])


def _skip_messages(wanted: bool) -> list[str]:
    """A list that Inductor's warnings on CUDA graphs are put into from here on, where its import need not be timed."""
    said: list[str] = []
    if wanted:
        import torch._inductor.compile_fx
        import torch._inductor.cudagraph_trees  # noqa: F401 - its logger has to be there

        handler = _Kept(said)
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("torch._inductor") and "__" in name:
                logging.getLogger(name).addHandler(handler)
    return said


def _skips(counters: Any) -> int:
    return int(counters["inductor"]["cudagraph_skips"])


def _described(reason: Any) -> dict[str, str]:
    """A graph break's place and the first line of its reason."""
    stack = getattr(reason, "user_stack", None)
    where = f"{os.path.relpath(stack[-1].filename)}:{stack[-1].lineno}" if stack else ""
    return {"where": where, "reason": str(reason.reason).split("\n", 1)[0]}


def relative_errors(found: list[torch.Tensor], expected: list[torch.Tensor]) -> list[float | None]:
    """Relative L2 error of each output; None for one of another shape, or that is not finite."""
    return [_relative_error(one, other) for one, other in zip(found, expected, strict=False)]


def _relative_error(found: torch.Tensor, expected: torch.Tensor) -> float | None:
    import torch

    if found.shape != expected.shape:
        return None
    wide = torch.complex128 if found.is_complex() else torch.float64
    found, expected = found.to("cpu", wide), expected.to("cpu", wide)
    error = ((found - expected).norm() / expected.norm().clamp_min(1e-12)).item()
    return round(error, 9) if math.isfinite(error) else None


def _timed(call: Call, device: str) -> float:
    from collectors.whole_models.timing import synchronize

    start = time.perf_counter()
    call()
    synchronize(device)
    return round(time.perf_counter() - start, 4)


def time_mode(case: Case, record: Record) -> None:
    """Latency of eager and compiled in turn, raw; then host time of both."""
    from costmodel.measurement.timers import host_time, latency

    job, compiled = case.job, case.compiled[record["mode"]]
    counters, _ = _dynamo()
    graphs = counters["stats"]["unique_graphs"]
    record |= {"eager_us": [], "compiled_us": []}
    for _ in range(job.rounds):
        for name, call in (("eager_us", case.eager), ("compiled_us", compiled)):
            record[name].append(_samples(latency(call, job.seconds, 5, job.device)))
    for name, call in (("eager_host_us", case.eager), ("compiled_host_us", compiled)):
        record[name] = host_time(call, 15, job.device).quantiles_us()
    record["recompiled"] = counters["stats"]["unique_graphs"] - graphs


def _samples(measurement: Measurement) -> list[float]:
    samples = measurement.samples_us
    step = max(1, -(-len(samples) // SAMPLES))
    return [round(us, 2) for us in samples[::step]]


def time_device(case: Case, record: Record) -> None:
    """Device time of eager and of `default`, from a CUDA graph of each; left out where none can be captured."""
    from costmodel.errors import MeasurementError
    from costmodel.measurement.timers import device_time

    calls = {"eager_device_us": case.eager, "compiled_device_us": case.compiled.get("default", case.eager)}
    for name, call in calls.items():
        try:
            record[name] = device_time(call, device=case.job.device).quantiles_us()
        except (MeasurementError, RuntimeError) as error:
            record["not_capturable"] = f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]
            return


def attempt(step: Callable[[], Record | None], record: Record) -> bool:
    """Whether a step succeeded; its result or error goes into the record."""
    import torch

    try:
        record |= step() or {}
    except torch.OutOfMemoryError as error:
        record |= {"status": "oom", "error": str(error).split("\n", 1)[0][:300]}
        return False
    except Exception as error:  # noqa: BLE001 - whatever compiling or running a user's model raises is a result
        record |= {"status": "error", "error": f"{type(error).__name__}: {error}"[:600]}
        return False
    return True


def prepare(job: Job) -> Case:
    """A case that is ready for its turn."""
    import torch

    from collectors.whole_models.timing import synchronize
    from costmodel.execution.inductor_compile import share_cache
    from costmodel.measurement.reference_network import reference_pass

    share_cache()
    reference_pass(job.device)
    case = build(job)
    case.reference = case.outputs(case.module)
    for _ in range(2):
        case.eager()
    if job.run == "latency":
        for mode in job.modes:
            record: Record = {"mode": mode}
            attempt(partial(compile_case, case, mode), record)
            case.records.append(record)
    gc.collect()
    synchronize(job.device)
    if job.device.startswith("cuda"):
        torch.cuda.empty_cache()
    return case


def measure(case: Case, out: TextIO) -> None:
    """Measures a prepared case in its turn, and writes a record for each mode."""
    from collectors.processes.environment import environment
    from costmodel.measurement.timers import host_probe

    job = case.job
    if job.run != "latency":
        for mode in job.modes:
            record: Record = {"mode": mode}
            if attempt(partial(compile_case, case, mode), record):
                record["phases"] = phases()
            case.records.append(record)
    before = host_probe(job.device, 0.15)
    for record in case.records:
        if "status" not in record:
            attempt(partial(time_mode, case, record), record)
    after = host_probe(job.device, 0.05)
    if job.device.startswith("cuda") and job.run == "latency" and case.records:
        attempt(partial(time_device, case, case.records[0]), {})
    for record in case.records:
        record.setdefault("status", "ok")
        facts = {"probe_us": [before, after], "environment": environment(job.device)}
        out.write(json.dumps({**asdict(job), **record, **facts}) + "\n")
        out.flush()


def phases() -> dict[str, float]:
    """Seconds of each phase of compilation that took at least a hundredth of one, as Dynamo counted them."""
    from torch._dynamo.utils import compilation_time_metrics

    sums = {name: round(sum(values), 3) for name, values in compilation_time_metrics.items()}
    return {name: seconds for name, seconds in sums.items() if seconds >= 0.01}


def main() -> None:
    """Prepares a job, waits for its turn, measures it."""
    import torch

    job = Job(**json.loads(sys.argv[1]))
    if len(sys.argv) > 2:
        die_with_parent(int(sys.argv[2]))
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # models may print
    with torch.no_grad():
        case: Case | None = None
        record: Record = {"mode": job.only_mode}

        def prepared() -> None:
            nonlocal case
            case = prepare(job)

        if not attempt(prepared, record):
            out.write(json.dumps({**asdict(job), **record}) + "\n")
            return
        assert case is not None
        out.write("ready\n")
        out.flush()
        if sys.stdin.readline():
            measure(case, out)
    out.flush()
    os._exit(0)  # CUDA graphs and process pools may take long to go


if __name__ == "__main__":
    main()
