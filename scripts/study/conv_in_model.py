"""Convolutions of ResNet-50 alone and inside the model, by wall clock and by profiler (Goldfarb, figure 5.4)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from costmodel.measurement.layer_timing import compiled_calls, profiled
from costmodel.measurement.timers import host_time
from study import plots
from study.experiment import Experiment, Point, Row, Setup, SkippedError, Verdict, timed, valued
from study.models import bound, compiled, first_call_s, load_model, wall, without_host
from study.ratios import paired
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MODEL, QUICK_MODEL = "resnet50", "resnet18"


def run(setup: Setup) -> Iterator[Point]:
    """Points: each different convolution alone, then all inside the model."""
    module, inputs = load_model(setup.chosen(MODEL, QUICK_MODEL), setup)
    different = distinct_convolutions(module, inputs)
    for name in list(different)[: setup.chosen(None, 2)]:
        convolution, shape = different[name]
        yield Point(f"alone {name}", functools.partial(_alone, setup, name, convolution, shape))
    yield Point("inside the model", functools.partial(_inside, setup, module, inputs))


def distinct_convolutions(
    module: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """First convolution of each kind and input shape, by name, with the shape."""
    found: dict[str, tuple[nn.Module, tuple[int, ...]]] = {}
    kinds: set[str] = set()

    def note(name: str, convolution: nn.Module, arguments: Any, _result: Any) -> None:
        kind = f"{convolution} {tuple(arguments[0].shape)}"
        if kind not in kinds:
            kinds.add(kind)
            found[name] = convolution, tuple(arguments[0].shape)

    handles = [
        child.register_forward_hook(functools.partial(note, name))
        for name, child in module.named_modules()
        if isinstance(child, nn.Conv2d)
    ]
    with torch.no_grad():
        module(*inputs)
    for handle in handles:
        handle.remove()
    return found


def _alone(setup: Setup, name: str, convolution: nn.Module, shape: tuple[int, ...]) -> Iterator[Row]:
    image = torch.randn(shape, device=setup.device)
    for way in ("eager", "compiled"):
        labels = {"layer": name, "kernel": convolution.kernel_size[0], "where": "alone", "way": way}  # type: ignore[index]  # of a convolution
        call = bound(convolution if way == "eager" else compiled(convolution), (image,))
        first_call_s(call, setup.device)
        yield timed(labels, "latency_ms", wall(call, setup))
        if setup.on_cuda:
            yield timed(labels, "host_ms", host_time(call, setup.least, setup.device))
            yield timed(labels, "device_ms", without_host(call, setup))


def _inside(setup: Setup, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Iterator[Row]:
    """Device time of each convolution by the profiler, without what is fused around it."""
    sizes = {name: child.kernel_size[0] for name, child in module.named_modules() if isinstance(child, nn.Conv2d)}
    calls, us = profiled(module, inputs)
    eager = [(name, took) for (name, _), took in zip(calls, us, strict=True) if name in sizes]
    runner = compiled(module)
    first_call_s(bound(runner, inputs), setup.device)
    names, us = compiled_calls(runner, inputs)
    made = [took for name, took in zip(names, us, strict=True) if name == "convolution"]
    for name, took in eager:
        labels = {"layer": name, "kernel": sizes[name], "where": "inside", "way": "eager"}
        yield valued(labels, "device_ms", took / 1e3)
    if len(made) != len(eager):
        raise SkippedError(f"the compiled model calls {len(made)} convolutions, the eager one {len(eager)}")
    for (name, _), took in zip(eager, made, strict=True):
        labels = {"layer": name, "kernel": sizes[name], "where": "inside", "way": "compiled"}
        yield valued(labels, "device_ms", took / 1e3)


def figure(frame: pd.DataFrame) -> Figure:
    """Distribution of speedups: alone by wall clock, alone on the device, inside the model."""
    figure, (panel,) = plots.new_figure()
    found = {name: list(each) for name, each in speedups(frame).items() if len(each)}
    panel.boxplot(list(found.values()))
    panel.set_xticks(range(1, len(found) + 1), list(found))
    panel.axhline(1.0, color="red", lw=0.8, ls="--")
    plots.finish(panel, "convolutions of ResNet", "how they are timed", "speedup, eager over compiled")
    return figure


def speedups(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Speedups of the convolutions, by the way of timing."""
    alone, inside = frame[frame["where"] == "alone"], frame[frame["where"] == "inside"]
    compared = {
        "alone, wall": (alone, "latency_ms"),
        "alone, device": (alone, "device_ms"),
        "inside": (inside, "device_ms"),
    }
    return {
        name: list(paired(rows, quantity, ["layer"], "way", "eager", "compiled")["speedup"])
        for name, (rows, quantity) in compared.items()
    }


def judge(frame: pd.DataFrame) -> Verdict:
    """Slower alone by wall clock, faster inside the model by the profiler."""
    means = {name: geometric_mean(each) for name, each in speedups(frame).items() if each}
    text = "speedup " + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    host = paired(values(frame, "host_ms"), "host_ms", ["layer"], "way", "compiled", "eager")
    if len(host):
        extra = (host["base"] - host["other"]).median() * 1e3
        text += f"; the median difference in host time of a call is {extra:.0f} us"
    if not {"alone, wall", "inside"} <= means.keys():
        return Verdict(text, None)
    return Verdict(text, means["alone, wall"] < 1.0 < means["inside"])


EXPERIMENT = Experiment(
    "conv-in-model",
    "Goldfarb 2024, figure 5.4",
    "The convolutions of ResNet are slower compiled one by one, yet faster compiled inside the model.",
    run,
    figure,
    judge,
)
