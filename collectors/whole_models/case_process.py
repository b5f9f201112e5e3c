"""One case in a process of its own: prepared, held idle until its turn, then measured alone on the machine.

python -m collectors.whole_models.case_process JOB PARENT

JOB is a JSON object, see `Job`; PARENT is the process id of `collectors.whole_models.held_process`. The process writes
`ready`, waits for a line of input, and writes its record. Output of the model goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from collectors.processes.process import die_with_parent
from collectors.whole_models.built_model import BuiltModel, Call, build
from collectors.whole_models.compilation import compile_mode, phases, synchronize
from collectors.whole_models.records import Record, failure
from collectors.whole_models.timing import RoundSettings, measure_rounds
from collectors.whole_models.training_model import allocated_bytes, build_training, note_peak
from collectors.workloads.model_cases import INFERENCE, TRAINING, WholeModelCase
from costmodel.measurement.cpu_determinism import make_cpu_deterministic

READY = "ready\n"


@dataclass(frozen=True, slots=True)
class Job:
    """Work of a process.

    Attributes:
        case: the case.
        device: `cpu` or `cuda`.
        modes: modes of torch.compile.
        run: `latency`, with the modes compiled before the turn; or `compile`, with compilation timed in the turn.
        rounds: settings of the rounds of a latency.
        cores: cores that the process and all that it starts run on; empty for any.
    """

    case: WholeModelCase
    device: str
    modes: tuple[str, ...] = ()
    run: Literal["latency", "compile"] = "latency"
    rounds: RoundSettings = field(default_factory=RoundSettings)
    cores: tuple[int, ...] = ()

    def dumps(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self))


def loads(text: str) -> Job:
    """The job of a JSON text."""
    fields = json.loads(text)
    tuples = {name: tuple(fields[name]) for name in ("modes", "cores")}
    return Job(**{**fields, **tuples, "rounds": RoundSettings(**fields["rounds"])})


def prepare(job: Job) -> Callable[[], Record]:
    """Build, call and, for latencies, compile a case; returns the function that measures it."""
    import torch

    from costmodel.measurement.reference_network import reference_pass

    if job.device.startswith("cuda"):
        reference_pass(job.device)
    trains = job.case.get("pass", INFERENCE) == TRAINING
    before = allocated_bytes(job.device)
    model = build_training(job.case, job.device) if trains else build(job.case, job.device)
    record: Record = dict(job.case, input_shape=model.input_shape())
    if trains:
        record["peak_bytes"] = {}
        note_peak(record, "eager", model.eager, before, job.device)
    reference = model.outputs(model.module)
    for _ in range(2):
        model.eager()
    if job.run == "compile":
        measure = partial(_compile_times, job, model, reference, record)
    else:
        compiled = _compile_all(job, model, reference, record, before)
        measure = partial(_latencies, job, model, compiled, record)
    gc.collect()
    synchronize(job.device)
    if job.device.startswith("cuda"):
        torch.cuda.empty_cache()
    return measure


def _compile_all(job: Job, model: BuiltModel, reference: list[Any], record: Record, before: int) -> dict[str, Call]:
    """Compiled call of each mode that can be compiled; the others are named in `failed_modes`.

    Raises:
        Exception: the error of the last mode, if none can be compiled.
    """
    compiled: dict[str, Call] = {}
    for mode in job.modes:
        try:
            compiled[mode] = compile_mode(model, mode, job.device, reference, record)
            if "peak_bytes" in record and mode == "default":  # pools of CUDA graphs hide what the others use
                note_peak(record, mode, compiled[mode], before, job.device)
        except Exception as error:
            record.setdefault("failed_modes", {})[mode] = f"{type(error).__name__}: {error}"[:300]
            if mode == job.modes[-1] and not compiled:
                raise
    return compiled


def _latencies(job: Job, model: BuiltModel, compiled: dict[str, Call], record: Record) -> Record:
    return record | measure_rounds(model, compiled, job.device, job.rounds)


def _compile_times(job: Job, model: BuiltModel, reference: list[Any], record: Record) -> Record:
    for mode in job.modes:
        compile_mode(model, mode, job.device, reference, record)
    return record | {"phases": phases()}


def main() -> None:
    """Prepare a job, wait for its turn, measure it, write its record."""
    job = loads(sys.argv[1])
    die_with_parent(int(sys.argv[2]))
    if job.cores:
        os.sched_setaffinity(0, job.cores)  # before torch and Inductor choose their numbers of threads
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # models may print
    import torch

    make_cpu_deterministic(job.device)
    try:
        with torch.no_grad():
            measure = prepare(job)
            out.write(READY)
            out.flush()
            record = measure() if sys.stdin.readline() else {}
    except Exception as error:  # noqa: BLE001 - any error of a model is its result
        record = failure(job.case, error)
    out.write(json.dumps(record) + "\n")
    out.flush()
    os._exit(0)  # CUDA graphs and process pools may take long to close


if __name__ == "__main__":
    main()
