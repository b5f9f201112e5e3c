"""How analysis grows with a model: seconds and memory at 1,000, 3,000 and 10,000 operators, step by step.

python scripts/benchmark_scale.py            each size in a process of its own, so that peak memory is that size's
python scripts/benchmark_scale.py 1000 3000 -o docs/scale.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

SIZES = (1000, 3000, 10_000)
OPERATORS = 4
"""Of a block: convolution, batch norm, addition, ReLU."""


class Residual(nn.Module):
    """A block that is added to what it reads."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolution, batch norm, addition, ReLU."""
        return torch.relu(self.norm(self.conv(x)) + x)


def measure(operators: int) -> dict[str, Any]:
    """Seconds of each step on a chain of residual blocks with so many operators, and this process's peak memory."""
    from costmodel.capture import capture
    from costmodel.hardware import load_profile
    from costmodel.memory_analysis import analyze_memory
    from costmodel.predict import predict_graph
    from costmodel.streams import operator_tree

    with torch.device("meta"):
        module = nn.Sequential(*(Residual(8) for _ in range(operators // OPERATORS))).eval()
        image = torch.empty(1, 8, 32, 32)
    row: dict[str, Any] = {"operators": operators}
    begin = time.perf_counter()

    def passed(step: str) -> None:
        nonlocal begin
        now = time.perf_counter()
        row[f"{step}_s"] = round(now - begin, 2)
        begin = now

    graph = capture(module, (image,), "chain")
    passed("capture")
    predict_graph(graph, load_profile("nvidia-h200"))
    passed("predict")
    operator_tree(graph)
    passed("streams")
    analyze_memory(module, (image,), hardware="nvidia-h200")
    passed("memory")
    row["total_s"] = round(sum(value for name, value in row.items() if name.endswith("_s")), 2)
    row["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    return row


def main() -> None:
    """Measures each size in a process of its own and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(measure(args.sizes[0])))
        return
    rows = []
    for size in args.sizes:
        command = [sys.executable, __file__, str(size), "--here"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        per = 1e3 * rows[-1]["total_s"] / size
        print(f"{rows[-1]}, {per:.2f} ms an operator", flush=True)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
