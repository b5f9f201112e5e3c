"""Number of calls between a convolution module's forward and its kernel (Levental and Orlova, figure 4)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # torch has it there, and does not list it
from torch.profiler import ProfilerActivity, profile

from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, valued
from study.levels import LEVELS, Made
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
CHANNELS, PIXELS = 16, 28


class Convolution(nn.Module):
    """One convolution and a ReLU, which cuDNN can fuse."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve and rectify."""
        return torch.relu(self.conv(x))


def run(setup: Setup) -> Iterator[Point]:
    """Points: a level each."""
    for level in LEVELS:
        yield Point(level, functools.partial(_measure, setup, level))


def _measure(setup: Setup, level: str) -> Iterator[Row]:
    module = Convolution().to(setup.device).eval()
    image = torch.randn(1, CHANNELS, PIXELS, PIXELS, device=setup.device)
    call = LEVELS[level].make(module, (image,))
    call()
    labels = {"level": level}
    yield valued(labels, "python_calls", python_calls(call))
    yield valued(labels, "operator_calls", operator_calls(call, setup))
    if setup.on_cuda and level == "eager":
        yield valued(labels, "native_frames", native_frames(call))


def python_calls(call: Made) -> int:
    """Python functions from `Conv2d.forward` to the call of the convolution, the first included.

    Without it among the callers they are counted from the level's call; 0 where Python calls no convolution.
    """
    counts: list[int] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and "conv" in getattr(function, "__name__", ""):
            counts.append(_callers(frame, call))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return counts[0] if counts else 0


def _callers(frame: FrameType | None, call: Made) -> int:
    """Frames up to that of `Conv2d.forward`, or else up to the call."""
    count = 0
    while frame is not None and frame.f_code is not call.__code__:
        count += 1
        if frame.f_code is nn.Conv2d.forward.__code__:
            return count
        frame = frame.f_back
    return count


def operator_calls(call: Made, setup: Setup) -> int:
    """Most operators and runtime calls nested around a launch, that one included; on a CPU, around any operator."""
    cuda = [ProfilerActivity.CUDA] if setup.on_cuda else []
    with profile(activities=[ProfilerActivity.CPU, *cuda]) as recorded:
        call()
        if setup.on_cuda:
            torch.cuda.synchronize()
    events = [event for event in recorded.events() or () if event.device_type == DeviceType.CPU]
    launching = [event for event in events if event.name in LAUNCHES] if setup.on_cuda else events
    return max((_nesting(event) for event in launching), default=0)


def _nesting(event: Any) -> int:
    depth = 0
    while event is not None:
        depth, event = depth + 1, event.cpu_parent
    return depth


def native_frames(call: Made) -> int:
    """Frames of C++ and Python between `Conv2d.forward` and the allocation of its result, just before the launch."""
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="all")
    try:
        call()
        torch.cuda.synchronize()
        traces = torch.cuda.memory._snapshot()["device_traces"]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    counts = [count for entry in traces[0] if (count := _frames_above_forward(entry.get("frames", ()))) is not None]
    return max(counts, default=0)


def _frames_above_forward(frames: Any) -> int | None:
    """Frames above that of `Conv2d.forward`, the innermost first; None if it is not among them."""
    for place, frame in enumerate(frames):
        if frame["name"] == "forward" and frame["filename"].endswith("conv.py"):
            return place
    return None


def figure(frame: pd.DataFrame) -> Figure:
    """Calls at each level."""
    figure, (panel,) = plots.new_figure()
    rows = frame[frame["quantity"].isin(["python_calls", "operator_calls", "native_frames"])]
    plots.bars(panel, rows.assign(low=None, high=None), "level", "quantity")
    plots.finish(panel, "calls between Conv2d and its kernel", "level", "number of nested calls")
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Eager makes at least as many calls as every lower level."""
    totals = {}
    for level, rows in frame.groupby("level", sort=False):
        totals[str(level)] = sum(values(rows, kind)["value"].sum() for kind in ("python_calls", "operator_calls"))
    text = "nested calls of Python and operators: " + ", ".join(
        f"{level} {count:.0f}" for level, count in totals.items()
    )
    if (native := values(frame, "native_frames")["value"].sum()) > 0:
        text += f"; {native:.0f} frames of C++ and Python in eager"
    if "eager" not in totals or len(totals) < 2:
        return Verdict(text, None)
    return Verdict(text, all(totals["eager"] >= count for count in totals.values()))


EXPERIMENT = Experiment(
    "abstraction-calls",
    "Levental and Orlova 2020, figure 4",
    "The more abstract a level, the more calls lie between Conv2d.forward and the launch of its kernel.",
    run,
    figure,
    judge,
)
