"""Throughput of a sweep (compile in parallel, measure alone) against a simple loop.

python scripts/sweep.py --units 4000 --naive-seconds 100 --seconds 220 -o docs/data/sweep_h200.json

Both measure the same units on the same device, one after the other: convolution units in every way, or a random sample
of a profile's dataset. Each runs in a process of its own with empty Inductor and Triton caches; its clock starts before
Python. The loop runs one case after another in one process, with torch.compile for compiled cases and
`triton.testing.do_bench` (`torch.utils.benchmark` on a CPU). It checks no result and does not time the host. It may get
less time, since the order is random and its rate holds for the rest. Its start (imports, device) counts once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from sample import conv_units, quick_units, sample_units
from throughput import apart, rate, report, results
from torch.utils.benchmark import Timer

from collectors.processes.environment import environment
from collectors.processes.process import die_with_parent
from collectors.processes.process_pool import default_processes
from collectors.processes.run_graph import make_tensor
from collectors.sweep.ledger import Ledger
from collectors.sweep.supervisor import Progress
from collectors.sweep.sweep import Settings, sweep
from collectors.sweep.worker import RECYCLE, attempt, make_ready
from collectors.workloads.cases import Case, read_cases, write_cases
from costmodel.errors import MeasurementError
from costmodel.execution.fx_module import build_module
from costmodel.ir import parse
from costmodel.measurement.timers import Measurement

CONTENDERS = ("naive", "sweep")
WORKLOADS = ("dataset", "conv")
QUICK_UNITS = 6


def measure_naively(case: Case, device: str) -> tuple[str, dict[str, Any]]:
    """Status and record of a case, measured as in a simple loop."""
    graph = parse(case.graph)
    arguments = [make_tensor(value.type, device) for value in graph.values]
    function: Callable[..., Any] = build_module(graph)
    with torch.no_grad():
        if case.runner == "inductor":
            torch._dynamo.reset()
            function = torch.compile(function)
        samples_us = _samples_us(lambda: function(*arguments), device)
    return "ok", {"device_us": Measurement(samples_us).quantiles_us()}


def _samples_us(call: Callable[[], Any], device: str) -> tuple[float, ...]:
    if device.startswith("cuda"):
        from triton.testing import do_bench

        return tuple(1e3 * milliseconds for milliseconds in do_bench(call, return_mode="all"))
    return tuple(1e6 * seconds for seconds in Timer("call()", globals={"call": call}).blocked_autorange().times)


def naive_loop(cases: Sequence[Case], ledger: Ledger, device: str, end: float) -> bool:
    """Measure cases missing in the ledger until `end` (monotonic seconds); False if a new process must go on."""
    finished = ledger.finished()
    for case in cases:
        if time.monotonic() > end:
            break
        if (case.key, case.unit) not in finished:
            status, record, healthy = attempt(case, device, measure_naively)
            ledger.finish(case, status, record)
            if not healthy:
                return False
    return True


def contend(args: argparse.Namespace) -> int:
    """Run one contender in this process; print the seconds of its start or of the sweep's phases."""
    die_with_parent(args.parent)
    cases = list(read_cases(args.cases))
    if args.contender == "naive":
        warnings.filterwarnings("ignore")
        make_ready(args.device)
        print(json.dumps({"start_s": round(time.monotonic() - args.begun, 1)}), flush=True)
        with Ledger(args.ledger, environment(args.device)) as ledger:
            return 0 if naive_loop(cases, ledger, args.device, time.monotonic() + args.seconds) else RECYCLE
    phases: dict[str, float] = {}

    def note(progress: Progress) -> None:
        phases[f"{progress.phase}_s"] = round(progress.seconds, 1)

    sweep(cases, args.ledger, Settings(args.device, args.seconds, processes=args.processes), note)
    print(json.dumps(phases))
    return 0


def run(contender: str, cases: Sequence[Case], place: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run a contender with cold caches, in a new process after a case that spoiled the old one.

    Raises:
        MeasurementError: the contender failed.
    """
    place.mkdir()
    write_cases(place / "cases.jsonl", cases)
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"), "TRITON_CACHE_DIR": str(place / "triton")}
    command = [sys.executable, __file__, "--contender", contender, "--cases", str(place / "cases.jsonl")]
    command += ["--ledger", str(place / "ledger.sqlite"), "--device", args.device, "--parent", str(os.getpid())]
    command += ["--processes", str(args.processes)]
    start = time.monotonic()
    command += ["--begun", str(start)]
    printed: list[str] = []
    end = start + (args.naive_seconds if contender == "naive" else args.seconds)
    while True:
        left = str(max(0.0, end - time.monotonic()))
        done = subprocess.run(
            [*command, "--seconds", left], env={**os.environ, **caches}, capture_output=True, text=True, check=False
        )
        printed += done.stdout.splitlines()
        if done.returncode != RECYCLE:
            break
    seconds = time.monotonic() - start
    if done.returncode:
        raise MeasurementError(f"{contender} failed: {done.stderr.strip().rpartition(chr(10))[2]}")
    phases: dict[str, float] = json.loads(printed[0]) if printed else {}
    return {**rate(cases, results(place / "ledger.sqlite"), seconds, phases.get("start_s", 0.0)), **phases}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Rates of both contenders, and their ratio."""
    if args.quick:
        units = quick_units(QUICK_UNITS, args.device)
    elif args.workload == "conv":
        units = conv_units(args.units, args.seed)
    else:
        units = sample_units(args.hardware, args.units, args.seed, args.device)
    cases = [case for unit in units for case in unit]
    with tempfile.TemporaryDirectory() as place:
        ways = {name: run(name, cases, Path(place) / name, args) for name in CONTENDERS}
        naive, swept = (results(Path(place) / name / "ledger.sqlite") for name in CONTENDERS)
    sample = {"units": len(units), "cases": dict(Counter(case.runner for case in cases))}
    source = {"dataset": f"the dataset of {args.hardware}", "conv": "convolution units in every way"}[args.workload]
    sample |= {"drawn_from": "quick" if args.quick else source, "seed": args.seed}
    slow = ways["naive"]["units_per_minute"]
    return {
        "environment": environment(args.device),
        "processes": args.processes,
        "sample": sample,
        **ways,
        "ratio": round(ways["sweep"]["units_per_minute"] / slow, 2) if slow else None,
        "device_time_of_naive_apart": apart(naive, swept, "device_us"),
    }


def main() -> None:
    """Print and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workload", choices=WORKLOADS, default="dataset", help="source of the units")
    parser.add_argument("--hardware", default="nvidia-h200", help="profile whose dataset it is")
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=default_processes(), help="compiling processes of the sweep")
    parser.add_argument("--seconds", type=float, default=400, help="limit for the sweep")
    parser.add_argument("--naive-seconds", type=float, default=180, help="limit for the loop")
    parser.add_argument("--quick", action="store_true", help="a few tiny units, for a trial run")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--cases", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ledger", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        sys.exit(contend(args))
    report(parser, args, compare)


if __name__ == "__main__":
    main()
