"""ResNet-50 at levels of abstraction, over batch size and resolution (Levental and Orlova, figures 6 and 7)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from statistics import geometric_mean
from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_leaves

from costmodel.execution.numerics import worst_error
from costmodel.measurement.timers import Measurement
from costmodel.zoo import load_real
from study import plots
from study.experiment import Experiment, Point, Row, Setup, SkippedError, Verdict, noted, timed, valued
from study.levels import LEVELS
from study.models import bound, wall
from study.ratios import paired
from study.table import values
from study.utilisation import gpu_utilisation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MODEL, QUICK_MODEL = "resnet50", "resnet18"
BATCHES, RESOLUTION = (1, 8, 32, 128, 256), 64
RESOLUTIONS, BATCH = (32, 64, 128, 256, 512), 32
COMPILED = {(1, 64), (32, 64), (256, 64), (32, 32), (32, 256), (32, 512)}
"""Cases, batch and resolution, of the levels that compile for each shape, which takes half a minute a case."""
SLOW_LEVELS = ("Inductor", "C++ runtime")
MEGABYTE = 1e6


def run(setup: Setup) -> Iterator[Point]:
    """Points: a batch size, a resolution and a level each; then copies of the inputs to the device."""
    cases = [(batch, RESOLUTION) for batch in BATCHES] + [(BATCH, size) for size in RESOLUTIONS if size != RESOLUTION]
    for batch, size in setup.chosen(cases, [(1, RESOLUTION)]):
        for level in LEVELS:
            if setup.quick or level not in SLOW_LEVELS or (batch, size) in COMPILED:
                yield Point(
                    f"{level} batch {batch} size {size}", functools.partial(_measure, setup, level, batch, size)
                )
        if setup.on_cuda:
            yield Point(f"copy batch {batch} size {size}", functools.partial(_copies, setup, batch, size))


def _measure(setup: Setup, level: str, batch: int, size: int) -> Iterator[Row]:
    device = torch.device(setup.device)
    name = setup.chosen(MODEL, QUICK_MODEL)
    loaded = load_real(name, device, batch_size=batch, img_size=size)
    assert isinstance(loaded.inputs, tuple)  # of a torchvision model
    inputs = loaded.inputs
    labels = {"level": level, "batch": batch, "size": size}
    expected = tree_leaves(bound(loaded.module, inputs)())
    call = LEVELS[level].make(loaded.module, inputs)
    yield valued(labels, "output_error", worst_error(tree_leaves(call()), expected))
    yield timed(labels, "latency_ms", wall(call, setup))
    if not setup.on_cuda:
        return
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    yield valued(labels, "peak_mb", torch.cuda.max_memory_allocated() / MEGABYTE)
    try:
        samples = sorted(gpu_utilisation(call, setup.chosen(0.6, 0.3)))
    except SkippedError as error:
        yield noted(labels, str(error))
    else:
        low, high = samples[len(samples) // 4], samples[-1 - len(samples) // 4]
        yield valued(labels, "gpu_utilisation_percent", samples[len(samples) // 2], low, high, len(samples))


def _copies(setup: Setup, batch: int, size: int) -> Iterator[Row]:
    image = torch.rand(batch, 3, size, size)
    for name, source in (("pageable", image), ("pinned", image.pin_memory())):
        labels = {"level": f"copy, {name}", "batch": batch, "size": size}
        found: Measurement = wall(functools.partial(source.to, setup.device, non_blocking=name == "pinned"), setup)
        yield timed(labels, "copy_ms", found)


def figure(frame: pd.DataFrame) -> Figure:
    """Latency, memory, utilisation and copies, over batch size and over resolution."""
    quantities = {
        "latency_ms": "latency (ms)",
        "peak_mb": "peak memory (MB)",
        "gpu_utilisation_percent": "GPU utilisation (%)",
        "copy_ms": "copy to the device (ms)",
    }
    there = [quantity for quantity in quantities if len(values(frame, quantity))]
    figure, axes = plots.new_figure(2 * len(there), 2)
    for place, quantity in enumerate(there):
        rows = values(frame, quantity)
        over_batch, over_size = rows[rows["size"] == RESOLUTION], rows[rows["batch"] == BATCH]
        log_y = quantity != "gpu_utilisation_percent"
        plots.lines(axes[2 * place], over_batch, "batch", "level")
        title = f"{RESOLUTION}x{RESOLUTION} pixels"
        plots.finish(axes[2 * place], title, "batch size (images)", quantities[quantity], log_x=True, log_y=log_y)
        plots.lines(axes[2 * place + 1], over_size, "size", "level")
        title = f"batch {BATCH}"
        plots.finish(
            axes[2 * place + 1], title, "height and width (pixels)", quantities[quantity], log_x=True, log_y=log_y
        )
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Eager is slower than every other level at the smallest batch, and the gap narrows as the batch grows."""
    gains = {}
    for level in LEVELS:
        if level != "eager":
            found = paired(frame, "latency_ms", ["batch", "size"], "level", "eager", level)
            found = found[found["size"] == RESOLUTION].sort_values("batch")
            if len(found):
                gains[level] = (found["speedup"].iloc[0], found["speedup"].iloc[-1])
    parts = [
        f"{level} {small:.2f} at the smallest batch, {large:.2f} at the largest"
        for level, (small, large) in gains.items()
    ]
    worst = values(frame, "output_error")["value"].max()
    text = f"speedup over eager: {'; '.join(parts)}; outputs differ by at most {worst:.1e}"
    for level in gains:
        memory = paired(frame, "peak_mb", ["batch", "size"], "level", level, "eager")
        if len(memory):
            text += f"; {level} needs {geometric_mean(memory['speedup']):.2f} times the memory"
    copies = paired(frame, "copy_ms", ["batch", "size"], "level", "copy, pageable", "copy, pinned")
    if len(copies):
        text += f"; copies from pinned memory {geometric_mean(copies['speedup']):.2f} times as fast"
    if not gains:
        return Verdict(text, None)
    return Verdict(
        text, all(small > 1.0 for small, _ in gains.values()) and all(large <= small for small, large in gains.values())
    )


EXPERIMENT = Experiment(
    "abstraction-levels",
    "Levental and Orlova 2020, figures 6 and 7",
    "Eager PyTorch is slower than every lower level; the gap narrows as batch or resolution grows.",
    run,
    figure,
    judge,
)
