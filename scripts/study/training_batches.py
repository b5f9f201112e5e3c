"""Memory and throughput of training over batch size, with saved activations apart (Zheng 2023)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from costmodel.errors import RequestError
from costmodel.measurement.peak_memory import (
    backward_of_sum,
    floating_outputs,
    saved_activation_bytes,
    training_peak_bytes,
)
from costmodel.memory.analysis import analyze_memory
from costmodel.zoo import load_real
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, timed, valued
from study.hardware import profile_name
from study.models import wall
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODELS, BATCHES = ("resnet50", "vit_b_16"), (1, 2, 4, 8, 16, 32, 64, 128)
QUICK_MODELS, QUICK_BATCHES = ("squeezenet1_1",), (1, 2, 4)
MEBIBYTE = 2.0**20
DOMINANT = 0.5


def memory_points(setup: Setup) -> Iterator[Point]:
    """Points: a model and a batch size each."""
    for model, batch in _cases(setup):
        yield Point(f"{model} batch {batch}", functools.partial(_memory, setup, model, batch))


def throughput_points(setup: Setup) -> Iterator[Point]:
    """Points: a model and a batch size each."""
    for model, batch in _cases(setup):
        yield Point(f"{model} batch {batch}", functools.partial(_throughput, setup, model, batch))


def _cases(setup: Setup) -> Iterator[tuple[str, int]]:
    for model in setup.chosen(MODELS, QUICK_MODELS):
        for batch in setup.chosen(BATCHES, QUICK_BATCHES):
            if setup.on_cuda or batch <= 16:
                yield model, batch


def _loaded(setup: Setup, model: str, batch: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    size = setup.chosen(None, 64)
    loaded = load_real(model, torch.device(setup.device), batch_size=batch, img_size=size)
    if not isinstance(loaded.inputs, tuple):
        raise RequestError(f"{model} takes keyword inputs")
    return loaded.module.train(), loaded.inputs


def _memory(setup: Setup, model: str, batch: int) -> Iterator[Row]:
    labels = {"model": model, "batch": batch}
    module, inputs = _loaded(setup, model, batch)
    name = profile_name(setup)
    report = analyze_memory(module, inputs, hardware=name, passes=("training",), check=False)
    assert report.training is not None  # it was asked for
    workspace = 0 if setup.on_cuda else report.training.workspace_bytes
    state = report.parameter_bytes + report.buffer_bytes + report.input_bytes
    yield valued(labels, "predicted_peak_mib", (report.training.peak_bytes - workspace) / MEBIBYTE)
    yield valued(labels, "predicted_saved_mib", report.training.feature_map_bytes / MEBIBYTE)
    yield valued(labels, "state_mib", (state + report.training.gradient_bytes) / MEBIBYTE)
    yield valued(labels, "saved_mib", saved_activation_bytes(module, inputs) / MEBIBYTE)
    yield valued(labels, "peak_mib", training_peak_bytes(module, inputs) / MEBIBYTE)


def training_step(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """One step of SGD on the sum of the outputs, by the usual three passes."""
    for parameter in module.parameters():
        parameter.grad = None
    backward_of_sum(floating_outputs(module(*inputs)))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=1e-9)


def _throughput(setup: Setup, model: str, batch: int) -> Iterator[Row]:
    labels = {"model": model, "batch": batch}
    module, inputs = _loaded(setup, model, batch)
    found = wall(functools.partial(training_step, module, inputs), setup)
    yield timed(labels, "step_ms", found)
    low, high = (batch / found.quantile(share) * 1e6 for share in (0.75, 0.25))
    yield valued(labels, "images_per_s", batch / found.median_us * 1e6, low, high, len(found.samples_us))


def memory_figure(frame: pd.DataFrame) -> Figure:
    """Peak and saved activations over batch size, measured and predicted, a panel for each model."""
    kinds = ["peak_mib", "predicted_peak_mib", "saved_mib", "predicted_saved_mib"]
    rows = frame[frame["quantity"].isin(kinds)]

    def draw(panel: Axes, found: pd.DataFrame, model: str) -> None:
        plots.lines(panel, found, "batch", "quantity")
        plots.finish(panel, model, "batch size (images)", "memory (MiB)", log_x=True, log_y=True)

    return plots.panels(rows, "model", draw, 2)


def throughput_figure(frame: pd.DataFrame) -> Figure:
    """Images a second over batch size."""
    figure, (panel,) = plots.new_figure()
    plots.lines(panel, values(frame, "images_per_s"), "batch", "model")
    plots.finish(panel, "training step", "batch size (images)", "throughput (images/s)", log_x=True)
    return figure


def judge_memory(frame: pd.DataFrame) -> Verdict:
    """At the largest batch the saved activations are more than half of the peak."""
    parts, shares = [], []
    for model, rows in frame.groupby("model", sort=False):
        last = rows[rows["batch"] == rows["batch"].max()].set_index("quantity")["value"]
        shares.append(last["saved_mib"] / last["peak_mib"])
        error = last["predicted_peak_mib"] / last["peak_mib"] - 1
        parts.append(f"{model}, batch {rows['batch'].max()}: {shares[-1]:.0%} of the peak, predicted peak {error:+.1%}")
    return Verdict(f"saved activations: {'; '.join(parts)}", all(share > DOMINANT for share in shares))


def judge_throughput(frame: pd.DataFrame) -> Verdict:
    """The largest batch trains more images a second than the smallest."""
    parts, gains = [], []
    for model, rows in values(frame, "images_per_s").groupby("model", sort=False):
        ordered = rows.sort_values("batch")
        gains.append(ordered["value"].iloc[-1] / ordered["value"].iloc[0])
        best = ordered.loc[ordered["value"].idxmax(), "batch"]
        parts.append(f"{model} {gains[-1]:.2f} times from the smallest to the largest batch, best at {best}")
    return Verdict(f"throughput grows {'; '.join(parts)}", all(gain > 1 for gain in gains))


MEMORY = Experiment(
    "training-memory",
    "Zheng 2023 (slides), memory profile",
    "Saved activations make up most of the memory of training, and grow with the batch.",
    memory_points,
    memory_figure,
    judge_memory,
    compiles=False,
)
THROUGHPUT = Experiment(
    "training-throughput",
    "Zheng 2023 (slides), throughput over batch size",
    "A larger batch trains more examples a second.",
    throughput_points,
    throughput_figure,
    judge_throughput,
    compiles=False,
)
