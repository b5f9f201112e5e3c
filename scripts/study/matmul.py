"""Square matrix products: NumPy, eager and compiled in each mode, on the CPU and the GPU (Goldfarb, figure 5.1)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from statistics import geometric_mean
from typing import TYPE_CHECKING

import numpy as np
import torch

from costmodel.measurement.timers import Measurement, device_time, latency
from costmodel.measurement.validation import MODES
from study import plots
from study.experiment import Experiment, Point, Row, Setup, SkippedError, Verdict, timed, valued
from study.models import Call, bound, compiled, first_call_s
from study.ratios import paired
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SIZES = (128, 256, 512, 1000, 2000, 4000, 8000, 12000, 17500)
AUTOTUNED = {"cpu": (512,), "cuda": (512, 2000, 8000)}
"""Sizes of the modes that time many kernels before they choose one; a CPU takes half a minute for each."""
LONGEST_S = 4.0
"""Longest product that is measured, by its estimated time."""
LONG_S = 0.5
"""Products longer than this are measured a few times only."""
PARITY = 1.05
"""Speedup up to which compiling gains nothing."""
ALIKE = 1.1
"""Factor between two modes up to which they count as alike."""


def run(setup: Setup) -> Iterator[Point]:
    """Points: a size, a place and a way each."""
    for place in ("cpu", *(("cuda",) if setup.on_cuda else ())):
        for size in setup.chosen(SIZES, SIZES[:3]):
            ways = [*(("numpy",) if place == "cpu" else ()), "eager", *_modes(setup, place, size)]
            for way in ways:
                yield Point(f"{place} {size} {way}", functools.partial(_measure, setup, place, size, way))


def _modes(setup: Setup, place: str, size: int) -> tuple[str, ...]:
    if setup.quick or (place == "cpu" and size not in AUTOTUNED[place]):
        return MODES[:1]
    return MODES if size in AUTOTUNED[place] else MODES[:2]


def _measure(setup: Setup, place: str, size: int, way: str) -> Iterator[Row]:
    labels = {"place": place, "size": size, "way": way}
    device = setup.device if place == "cuda" else "cpu"
    a, b = (torch.rand(size, size, device=device) for _ in range(2))
    expected_s = _estimate_s(size, device)
    if expected_s > LONGEST_S:
        raise SkippedError(f"a product takes about {expected_s:.0f} s here, more than {LONGEST_S:.0f} s")
    if way == "numpy":
        x, y = a.numpy(), b.numpy()
        yield timed(labels, "latency_ms", _timed(lambda: np.dot(x, y), setup, "cpu", expected_s))
        return
    if way == "eager":
        call = bound(torch.mm, (a, b))
    else:
        call = bound(compiled(_product, way), (a, b))
        yield valued(labels, "compile_s", first_call_s(call, device))
    yield timed(labels, "latency_ms", _timed(call, setup, device, expected_s))


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b)


@functools.cache
def _rate(device: str) -> float:
    """Products of numbers a second in a matrix product of size 1024."""
    a = torch.rand(1024, 1024, device=device)
    return 1024**3 / (device_time(lambda: torch.mm(a, a), rounds=3, device=device).median_us / 1e6)


def _estimate_s(size: int, device: str) -> float:
    return size**3 / _rate(device)


def _timed(call: Call, setup: Setup, device: str, expected_s: float) -> Measurement:
    if expected_s > LONG_S and not device.startswith("cuda"):
        return device_time(call, rounds=3, device=device)
    return latency(call, setup.seconds, setup.least, device)


def figure(frame: pd.DataFrame) -> Figure:
    """Latency over size, by place and way; compile time beside it."""
    figure, (left, right) = plots.new_figure(2, 2)
    named = frame.assign(label=frame["place"] + " " + frame["way"])
    plots.lines(left, values(named, "latency_ms"), "size", "label")
    plots.finish(left, "latency of a product", "size of the square matrices", "latency (ms)", log_x=True, log_y=True)
    plots.lines(right, values(named, "compile_s"), "size", "label")
    plots.finish(right, "compilation, apart", "size of the square matrices", "first call (s)", log_x=True, log_y=True)
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Compiled products are not faster, by the geometric mean over sizes, on any device; the modes are alike."""
    parts, ratios = [], []
    for place, rows in frame.groupby("place", sort=False):
        ratio = geometric_mean(paired(rows, "latency_ms", ["size"], "way", "eager", "default")["speedup"])
        ratios.append(ratio)
        parts.append(f"compiled {ratio:.2f} times as fast as eager on {place}")
    differ = mode_differences(frame)
    parts += [f"{mode} {ratio:.2f} times as fast as default" for mode, ratio in differ.items()]
    alike = all(1 / ALIKE < ratio < ALIKE for ratio in differ.values())
    return Verdict(f"{'; '.join(parts)}{_crossing(frame)}", alike and all(ratio < PARITY for ratio in ratios))


def mode_differences(frame: pd.DataFrame) -> dict[str, float]:
    """Speedup of each further mode over the default one, by the geometric mean over sizes and places."""
    found = {mode: paired(frame, "latency_ms", ["place", "size"], "way", "default", mode) for mode in MODES[1:]}
    return {mode: geometric_mean(rows["speedup"]) for mode, rows in found.items() if len(rows)}


def _crossing(frame: pd.DataFrame) -> str:
    """Largest size at which the CPU is faster, in words."""
    eager = values(frame[frame["way"] == "eager"], "latency_ms")
    if set(eager["place"]) != {"cpu", "cuda"}:
        return ""
    both = paired(eager, "latency_ms", ["size"], "place", "cuda", "cpu")
    faster = both[both["speedup"] > 1]["size"]
    return f"; the CPU is faster up to size {faster.max():.0f}" if len(faster) else "; the GPU is faster at every size"


EXPERIMENT = Experiment(
    "matmul",
    "Goldfarb 2024, figure 5.1, appendix 1",
    "Compiling a matrix product gains nothing on either device; the mode makes no difference.",
    run,
    figure,
    judge,
)
