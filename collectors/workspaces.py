"""What convolutions allocate beside their results (cuDNN's workspaces, copies in another order), for a dataset without.

    python -m collectors.workspaces units.parquet -o units.parquet --seconds 60

A sweep on CUDA records it for each lone convolution that it measures; this fills it in for rows that were measured
before. No time is taken, so that many processes may share the device.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path

from collectors.pool import ONE_THREAD, default_processes, in_parallel
from collectors.process import pinned
from collectors.worker import MOST_BYTES, lone_convolution, size_bytes
from collectors.workloads import SEED
from costmodel.dataset import TRUSTED, WORKSPACE, read_frame, write_frame
from costmodel.errors import CostmodelError
from costmodel.ir import parse

AT_ONCE = 25
"""Convolutions of a job."""


def measure_workspaces(job: tuple[Sequence[str], str]) -> dict[str, int]:
    """Bytes that each graph's convolution allocates at its peak, its result left out; by the graph's text.

    Args:
        job: texts of graphs of one convolution each, and the device.
    """
    import torch

    from collectors.run import make_tensor
    from costmodel.emit import build_module
    from costmodel.measure import workspace_bytes

    texts, device = job
    found: dict[str, int] = {}
    with torch.no_grad():
        for text in texts:
            graph = parse(text)
            module = build_module(graph)
            arguments = [make_tensor(value.type, device) for value in graph.values]
            found[text] = workspace_bytes(lambda: module(*arguments))  # noqa: B023 - called here and now
    torch.cuda.empty_cache()
    return found


def fill(path: Path, out: Path, device: str, seconds: float, processes: int) -> tuple[int, int]:
    """Fills in what the rows of a dataset lack; how many convolutions know theirs then, and how many there are.

    Raises:
        DatasetError: the file is no dataset.
    """
    end = time.monotonic() + seconds
    frame, about = read_frame(path)
    if WORKSPACE not in frame:
        frame[WORKSPACE] = float("nan")
    graphs = frame.loc[(frame["runner"] == "aten") & (frame["status"] == TRUSTED), "graph"].unique()
    parsed = {text: parse(text) for text in graphs if "convolution(" in text}
    texts = sorted(text for text, graph in parsed.items() if lone_convolution(graph))
    known = set(frame.loc[frame[WORKSPACE].notna(), "graph"])
    todo = [text for text in texts if text not in known and size_bytes(parsed[text]) <= MOST_BYTES]
    random.Random(SEED).shuffle(todo)  # noqa: S311 - repeatable is what it should be
    variables, name = pinned(device)
    jobs = [(todo[start : start + AT_ONCE], name) for start in range(0, len(todo), AT_ONCE)]
    found: dict[str, int] = {}
    for _, outcome in in_parallel(measure_workspaces, jobs, processes, end, {**ONE_THREAD, **variables}):
        if isinstance(outcome, dict):  # a job that failed leaves its rows as they are
            found |= outcome
    frame[WORKSPACE] = frame["graph"].map(found).fillna(frame[WORKSPACE])
    write_frame(frame, out, about)
    return len(known & set(texts)) + len(found), len(texts)


def main() -> None:
    """Measures the workspaces of the convolutions of a dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=default_processes())
    args = parser.parse_args()
    try:
        known, of = fill(args.units, args.output, args.device, args.seconds, args.processes)
        print(f"{known} of {of} convolutions know their workspace in {args.output}")
    except CostmodelError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
