"""What the host takes to issue each kernel among others (`costmodel.measure.issue_time`), for a dataset without.

    python -m collectors.issue units.parquet -o units.parquet --seconds 300

A sweep records it with the device times; this fills it in for rows that have none. One process measures alone: the time
of the host is what it is about. A graph that fails is passed over, and its row stays without. Some kernels that know
theirs are measured again in between: two machines of one kind, each told by its own launches, were 6 % apart.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from tqdm import tqdm

from collectors.process import pinned
from collectors.worker import MOST_BYTES, size_bytes
from collectors.workloads import SEED
from costmodel.dataset import QUANTILES, TRUSTED, read_frame, write_frame
from costmodel.errors import CostmodelError, MeasurementError
from costmodel.ir import parse

COLUMNS = [f"host_us_{quantile}" for quantile in QUANTILES]
MEDIAN_PLACE = QUANTILES.index("p50")
MEDIAN = COLUMNS[MEDIAN_PLACE]
COLLECTED = 500
"""After so many kernels memory is given back; Python's own collector, which would pause a call, is off between."""
RECURRENT = re.compile(r"= (?:lstm|gru)\.")
"""Kernels that are passed over: a graph's weights lie apart, and cuDNN packs them at every call, as in no module."""
AGAIN, LEAST_AGAIN = 400, 20
"""So many kernels at most are measured again to tell how this host compares; fewer than the least tell nothing."""


def measure_issue(texts: Iterable[str], device: str, end: float) -> dict[str, list[float]]:
    """Quantiles of the host time of each graph's call by the graph's text, as far as `end` allows; microseconds.

    Args:
        texts: graphs of ATen's operators.
        device: `cuda`, `cuda:N` or `cpu`.
        end: of `time.monotonic`.
    """
    import torch

    found: dict[str, list[float]] = {}
    gc.disable()
    try:
        for number, text in enumerate(texts):
            if time.monotonic() > end:
                break
            if number % COLLECTED == 0:
                gc.collect()
                torch.cuda.empty_cache()
            try:
                found[text] = issue_quantiles(text, device)
            except (RuntimeError, NotImplementedError, IndexError, MeasurementError) as error:
                if "CUDA error" in str(error):  # the device is lost to this process
                    break
    finally:
        gc.enable()
    return found


def issue_quantiles(text: str, device: str) -> list[float]:
    """Quantiles of the host time of one graph's call, microseconds.

    Raises:
        MeasurementError: its tensors are too large; torch's own errors pass through.
    """
    import torch

    from collectors.run import make_tensor
    from costmodel.emit import build_module
    from costmodel.measure import issue_time

    graph = parse(text)
    if size_bytes(graph) > MOST_BYTES:
        raise MeasurementError(f"its tensors take more than {MOST_BYTES >> 30} GiB")
    with torch.no_grad():
        module = build_module(graph)
        arguments = [make_tensor(value.type, device) for value in graph.values]
        return issue_time(lambda: module.forward(*arguments), device).quantiles_us()


def fill(path: Path, out: Path, device: str, seconds: float) -> tuple[int, int]:
    """Fills in what the rows of a dataset lack; how many kernels know theirs then, and how many there are.

    Raises:
        DatasetError: the file is no dataset.
    """
    end = time.monotonic() + seconds
    frame, about = read_frame(path)
    mine = (frame["runner"] == "aten") & (frame["status"] == TRUSTED)
    known = set(frame.loc[mine & frame[COLUMNS[0]].notna(), "graph"])
    everything = {text for text in frame.loc[mine, "graph"] if not RECURRENT.search(text)}
    todo = sorted(everything - known)
    lot = random.Random(SEED)  # noqa: S311 - repeatable is what it should be
    again = lot.sample(sorted(known), min(AGAIN, len(known))) if todo else []
    texts = [*todo, *again]
    lot.shuffle(texts)
    _, name = pinned(device)
    found = measure_issue(tqdm(texts, unit="kernel", mininterval=5), name, end)
    before = frame.loc[mine].drop_duplicates("graph").set_index("graph")[MEDIAN]
    slower = slowness({text: before[text] for text in again}, {text: us[MEDIAN_PLACE] for text, us in found.items()})
    rows = frame["graph"].isin(found.keys() - known) & mine
    quantiles = np.array([found[text] for text in frame.loc[rows, "graph"]], dtype="float32") / slower
    frame.loc[rows, COLUMNS] = quantiles.reshape(-1, len(COLUMNS))
    write_frame(frame, out, about)
    return len(known | found.keys()), len(known) + len(todo)


def slowness(before_us: Mapping[str, float], now_us: Mapping[str, float]) -> float:
    """How many times longer calls take than they did, the middle one of those in both; 1 of fewer than LEAST_AGAIN."""
    ratios = [now_us[text] / us for text, us in before_us.items() if text in now_us]
    return float(np.median(ratios)) if len(ratios) >= LEAST_AGAIN else 1.0


def main() -> None:
    """Measures what the host takes to issue the kernels of a dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    args = parser.parse_args()
    try:
        known, of = fill(args.units, args.output, args.device, args.seconds)
    except CostmodelError as error:
        parser.error(str(error))
    print(f"{known} of {of} kernels know what the host takes to issue them")


if __name__ == "__main__":
    main()
