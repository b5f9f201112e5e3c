"""What tells best how fast a host is: a launch in a loop, or a pass of a small network (`costmodel.reference_pass`).

    python scripts/host_probe.py --cases cases.json -o docs/host_probe_h200.jsonl --seconds 300    # on the device
    python scripts/host_probe.py                                   # prints the table
    python scripts/host_probe.py --write docs/accuracy.md          # puts it between its marks there

A process of its own prepares each model; one after another they time it, eager, in turn with both probes. Every case is
measured in two processes, some minutes apart: what a probe has told of the host should not differ between them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from collectors.whole_model import Case, build
from costmodel.scores import replace_section

BEGIN, END = "<!-- host probe: begin -->", "<!-- host probe: end -->"
HELD = 24
"""So many processes get ready side by side; then they measure, one at a time."""
ROUNDS = 3
WAYS: Mapping[str, str] = {"as measured": "", "over a launch": "launch_us", "over a reference pass": "pass_us"}
"""What eager latency is divided by, in words and in a record."""
Record = dict[str, Any]


def launch_us(device: str, launches: int = 100, series: int = 20) -> float:
    """Microseconds a launch of a one-element addition: the median of some series."""
    import torch

    x, found = torch.zeros(1, device=device), []
    for _ in range(series):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(launches):
            x.add_(1.0)
        found.append((time.perf_counter_ns() - start) / 1e3 / launches)
    return float(np.median(found))


def hold(case: Case, device: str) -> None:
    """Prepares a case, waits for a line of input, then times; the record is a line of output."""
    import torch

    from costmodel.measure import host_probe, latency
    from costmodel.reference_pass import LAUNCHES

    warnings.simplefilter("ignore")
    module, x = build(case, device)
    eager = partial(module, x)
    with torch.no_grad():
        for _ in range(3):
            eager()
        print("ready", flush=True)
        sys.stdin.readline()
        host_probe(device, seconds=0.2)
        takes: Mapping[str, Callable[[], float]] = {
            "launch_us": partial(launch_us, device),
            "pass_us": lambda: host_probe(device, seconds=0.06) * LAUNCHES,
            "eager_us": lambda: latency(eager, 0.1, 8, device).median_us,
        }
        record: Record = dict(case, **{name: [] for name in takes})
        for _, (name, take) in itertools.product(range(ROUNDS), takes.items()):
            record[name].append(round(take(), 3))
    print(json.dumps(record), flush=True)


def measured(cases: Sequence[Case], device: str) -> Iterator[Record]:
    """Records of some cases, prepared side by side; one that cannot be measured is passed over."""
    command = [sys.executable, __file__, "--device", device, "--hold"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with ExitStack() as running:
        held = [running.enter_context(subprocess.Popen([*command, json.dumps(case)], **pipes)) for case in cases]
        for process in [process for process in held if process.stdout.readline().startswith("ready")]:
            said, _ = process.communicate("go\n")
            if process.returncode == 0:
                yield json.loads(said)


def measure(cases: Sequence[Case], out: Path, device: str, seconds: float, machine: int) -> None:
    """Measures each case in two processes, HELD cases after HELD, until the time is up; appends to `out`."""
    begin = time.monotonic()
    blocks = [cases[first : first + HELD] for first in range(0, len(cases), HELD)]
    passes = [block for block in blocks for _ in range(2)]
    took = 0.0
    for block in track(passes, "blocks of models"):
        start = time.monotonic()
        if start + took - begin < seconds:
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row | {"machine": machine}) + "\n" for row in measured(block, device))
            took = time.monotonic() - start


def differences(records: Sequence[Record], divisor: str) -> dict[str, float]:
    """How far two processes of a machine are apart in a case's eager latency, over what a probe found, as logarithms.

    Of all that a process found, the fastest round counts: what disturbs a host makes it slower, never faster.
    """
    alike: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for record in records:
        key = record["machine"], record["model"], record["batch_size"], record["precision"], record["layout"]
        over = min(record[divisor]) if divisor else 1.0
        alike[key].append(math.log(min(record["eager_us"]) / over))
    apart = np.abs([one - other for found in alike.values() for one, other in itertools.combinations(found, 2)])
    return {"pairs": len(apart), "mean": float(apart.mean()), "median": float(np.median(apart))}


def table(records: Sequence[Record]) -> str:
    """The differences by machine, in Markdown."""
    lines = ["| machine | eager latency | pairs of processes | mean difference | median |", "|--:|---|--:|--:|--:|"]
    for machine in sorted({record["machine"] for record in records}):
        here = [record for record in records if record["machine"] == machine]
        for way, divisor in WAYS.items():
            found = differences(here, divisor)
            shares = " | ".join(f"{found[name]:.1%}" for name in ("mean", "median"))
            lines.append(f"| {machine} | {way} | {found['pairs']:.0f} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, or prints the table, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, help="measure these: JSON, as collectors.models takes it")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/host_probe_h200.jsonl"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--machine", type=int, default=1, help="its number in the records")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--hold", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hold:
        hold(args.hold, args.device)
        return
    if args.cases:
        measure(
            json.loads(args.cases.read_text(encoding="utf-8")), args.output, args.device, args.seconds, args.machine
        )
        return
    text = table([json.loads(line) for line in args.output.read_text(encoding="utf-8").splitlines()])
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
