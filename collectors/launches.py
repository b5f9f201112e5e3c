"""Which kernels models launch, by torch's profiler: the truth that the fusion rules are judged by.

    python -m collectors.launches cases.json launches.jsonl

A process that has once profiled launches kernels 20-25 % slower from then on (CUPTI stays attached). So this is a
program of its own, and nothing that measures times may call it.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collectors.models import append, done_keys
from collectors.whole_model import Case, build, case_key


def profile_case(case: Case) -> dict[str, Any]:
    """The kernels of one forward pass, eager and compiled."""
    import torch

    torch._dynamo.reset()
    module, x = build(case, "cuda")
    with torch.no_grad():
        eager = kernels(functools.partial(module, x))
        compiled = kernels(functools.partial(torch.compile(module), x))
    return dict(case, eager=eager, default=compiled)


def kernels(call: Callable[[], Any], repeats: int = 3) -> dict[str, list[float]]:
    """Kernel name -> [launches a call, device microseconds a call]."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    table: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in recorded.events() or ():
        if event.device_type.name == "CUDA":
            row = table[event.name[:120]]
            row[0] += 1 / repeats
            row[1] += event.device_time / repeats
    return {name: [round(launches, 2), round(us, 3)] for name, (launches, us) in table.items()}


def main() -> None:
    """Profiles the cases of a JSON file that the records do not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path, help="records, JSON lines")
    args = parser.parse_args()
    done = done_keys(args.out)
    for case in json.loads(args.cases.read_text()):
        if case_key(case) not in done:
            append(args.out, profile_case(case))
            print(case_key(case), flush=True)


if __name__ == "__main__":
    main()
