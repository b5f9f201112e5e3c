"""Six models end to end, eager and compiled, at batch 1 and 32 (Goldfarb, figure 5.6)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from costmodel.execution.numerics import worst_error
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, timed, valued
from study.models import QUICK, SIX, bound, compiled, first_call_s, load_model, wall
from study.ratios import paired
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BATCHES = (1, 32)
FASTER = ("googlenet", "mobilenet_v2", "resnet50")
"""Models with significant speedups in the paper: 1.43, 1.63 and 1.61."""
SIGNIFICANT, MARGINAL = 1.2, 1.1


def run(setup: Setup) -> Iterator[Point]:
    """Points: a model and a batch size each."""
    for batch in setup.chosen(BATCHES, BATCHES[:1]):
        for model in setup.chosen(SIX, QUICK):
            yield Point(f"{model} batch {batch}", functools.partial(_measure, setup, model, batch))


def _measure(setup: Setup, model: str, batch: int) -> Iterator[Row]:
    module, inputs = load_model(model, setup, batch)
    expected = bound(module, inputs)()
    for way in ("eager", "compiled"):
        labels = {"model": model, "batch": batch, "way": way}
        call = bound(module if way == "eager" else compiled(module), inputs)
        first = first_call_s(call, setup.device)
        if way == "compiled":
            yield valued(labels, "compile_s", first)
            yield valued(labels, "output_error", worst_error([call()], [expected]))
        yield timed(labels, "latency_ms", wall(call, setup))


def figure(frame: pd.DataFrame) -> Figure:
    """Latency of each model, a panel for each batch size."""

    def draw(panel: Axes, rows: pd.DataFrame, batch: str) -> None:
        plots.bars(panel, rows, "model", "way")
        plots.finish(panel, f"batch {batch}", "model", "latency (ms)")

    return plots.panels(values(frame, "latency_ms"), "batch", draw, 2)


def judge(frame: pd.DataFrame) -> Verdict:
    """At batch 1 the three gain much, DenseNet and SqueezeNet little, AlexNet loses."""
    found = paired(frame, "latency_ms", ["model", "batch"], "way", "eager", "compiled")
    one = found[found["batch"] == 1].set_index("model")["speedup"].to_dict()
    text = "speedup at batch 1: " + ", ".join(f"{model} {gain:.2f}" for model, gain in one.items())
    larger = found[found["batch"] > 1]
    if len(larger):
        text += "; at batch 32: " + ", ".join(
            f"{m} {g:.2f}" for m, g in zip(larger["model"], larger["speedup"], strict=True)
        )
    if not set(SIX) <= one.keys():
        return Verdict(text, None)
    gains = all(one[model] > SIGNIFICANT for model in FASTER)
    small = all(one[model] < MARGINAL for model in ("densenet121", "squeezenet1_1"))
    return Verdict(text, gains and small and one["alexnet"] < 1.0)


EXPERIMENT = Experiment(
    "end-to-end",
    "Goldfarb 2024, figure 5.6, appendix 3",
    "GoogLeNet, MobileNetV2 and ResNet gain much from compiling, DenseNet and SqueezeNet little, AlexNet loses.",
    run,
    figure,
    judge,
)
