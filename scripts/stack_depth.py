"""Host time of a model's call, eager and compiled, by how deep Python's stack is when it is called.

    python scripts/stack_depth.py --cases cases.json -o docs/stack_depth_h200.json   # on the device
    python scripts/stack_depth.py                                                  # prints the table
    python scripts/stack_depth.py --write docs/accuracy.md                       # puts it between its marks there

The depth grows by 32 slots (256 bytes) at a time, by a chunk of Python's stack in all; `costmodel.python_stack` says
what happens at its end.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from collectors.environment import environment
from collectors.whole_model import Case, build
from costmodel.python_stack import framed
from costmodel.scores import replace_section

BEGIN, END = "<!-- stack depth: begin -->", "<!-- stack depth: end -->"
SLOTS = tuple(range(10, 2058, 32))
"""Depths: a chunk of 16 KiB has 2,048 slots, so that one of them is at its end."""
CALLS = 7
SLOW = 1.2
"""A depth is slow where a call takes so many times what it takes at most depths."""
WAYS = ("eager", "default")


def measure(case: Case, device: str) -> dict[str, Any]:
    """Host time at every depth, microseconds, median of CALLS calls; and with room on the stack."""
    import torch

    from costmodel.inductor import share_cache
    from costmodel.measure import host_time

    share_cache()
    torch._dynamo.reset()
    module, x = build(case, device)
    calls: Mapping[str, Callable[[], Any]] = {
        "eager": functools.partial(module, x),
        "default": functools.partial(torch.compile(module), x),
    }
    row: dict[str, Any] = dict(case, slots=SLOTS)
    with torch.no_grad():
        for way, call in calls.items():
            for _ in range(3):
                call()
            bare = functools.partial(host_time.__wrapped__, call, CALLS, device)
            row[f"{way}_us"] = [round(framed(bare, slots)().median_us, 1) for slots in SLOTS]
            row[f"{way}_with_room_us"] = round(host_time(call, CALLS, device).median_us, 1)
    return row


def shares(row: Mapping[str, Any], way: str) -> dict[str, float]:
    """What depth does to one model: host time at most depths and at the worst, milliseconds; how many are slow."""
    us = np.array(row[f"{way}_us"])
    usual = float(np.median(us))
    return {
        "with room": row[f"{way}_with_room_us"] / 1e3,
        "usual": usual / 1e3,
        "worst": float(us.max()) / 1e3,
        "slow": float((us > SLOW * usual).mean()),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The models' host times by depth, in Markdown."""
    lines = ["| model | batch | way | with room | at most depths | at the worst | slow depths |"]
    lines.append("|---|--:|---|--:|--:|--:|--:|")
    for row in rows:
        for way in WAYS:
            found = shares(row, way)
            times = " | ".join(f"{found[name]:.1f} ms" for name in ("with room", "usual", "worst"))
            lines.append(f"| {row['model']} | {row['batch_size']} | {way} | {times} | {found['slow']:.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, or prints the table, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, help="measure these: JSON, as collectors.models takes it")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/stack_depth_h200.json"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.cases:
        rows: list[dict[str, Any]] = []
        for case in track(json.loads(args.cases.read_text(encoding="utf-8")), "models"):
            rows.append(measure(case, args.device))
            found = {"environment": environment(args.device), "rows": rows}
            args.output.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
    text = table(json.loads(args.output.read_text(encoding="utf-8"))["rows"])
    print(text)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")


if __name__ == "__main__":
    main()
