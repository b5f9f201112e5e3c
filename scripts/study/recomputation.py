"""Selective recomputation of six models: bytes saved and seconds added, predicted and measured (Zheng 2023)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from costmodel.errors import CostmodelError
from costmodel.measurement.peak_memory import saved_activation_bytes, training_peak_bytes
from costmodel.memory.analysis import analyze_memory
from costmodel.memory.checkpoint import checkpointed
from costmodel.memory.checkpoint_plan import make_plan
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, timed, valued
from study.hardware import profile_name
from study.models import SIX, load_model, wall
from study.table import values
from study.training_batches import MEBIBYTE, training_step

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

BATCH = 16
FEW = 1.35
"""Factor on a step's time up to which the cost counts as low: a whole second forward pass costs a third."""


def run(setup: Setup) -> Iterator[Point]:
    """Points: a model each."""
    for model in setup.chosen(SIX, ("squeezenet1_1",)):
        yield Point(model, functools.partial(_measure, setup, model))


def _measure(setup: Setup, model: str) -> Iterator[Row]:
    module, inputs = load_model(model, setup, setup.chosen(BATCH, 2))
    module.train()
    report = analyze_memory(module, inputs, hardware=profile_name(setup), passes=("training",), check=False)
    assert report.training is not None  # it was asked for
    chosen, theory = report.training.checkpointing, report.training.recomputation
    labels = {"model": model}
    yield valued(labels, "analysis_saved_mib", theory.saved_bytes / MEBIBYTE)
    yield valued(labels, "analysis_added_ms", theory.added_us / 1e3)
    predicted = {"plain": chosen.stashed_before, "recomputed": chosen.stashed_after}
    for way, nbytes in predicted.items():
        yield valued({**labels, "way": way}, "predicted_kept_mib", nbytes / MEBIBYTE)
    yield valued(labels, "predicted_added_ms", (chosen.added_us + report.training.checkpointing_host_us) / 1e3)
    if not chosen.modules:
        raise CostmodelError(f"recomputation saves nothing in {model}")
    again = checkpointed(module, make_plan(model, chosen))
    for way, candidate in (("plain", module), ("recomputed", again)):
        there = {**labels, "way": way}
        yield valued(there, "kept_mib", saved_activation_bytes(candidate, inputs) / MEBIBYTE)
        yield valued(there, "peak_mib", training_peak_bytes(candidate, inputs) / MEBIBYTE)
        yield timed(there, "step_ms", wall(functools.partial(training_step, candidate, inputs), setup))


def figure(frame: pd.DataFrame) -> Figure:
    """Peak memory and time of a step, plain and with recomputation."""
    figure, (left, right) = plots.new_figure(2, 2)
    plots.bars(left, values(frame, "peak_mib"), "model", "way")
    plots.finish(left, "peak of a training step", "model", "memory (MiB)")
    plots.bars(right, values(frame, "step_ms"), "model", "way")
    plots.finish(right, "time of a training step", "model", "time (ms)")
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Every model's peak falls, and a step takes at most a third longer."""
    peaks, steps = (
        values(frame, quantity).pivot_table("value", "model", "way").dropna() for quantity in ("peak_mib", "step_ms")
    )
    added = values(frame, "predicted_added_ms").set_index("model")["value"]
    parts, good = [], []
    for model in steps.index:
        share = 1 - peaks.loc[model, "recomputed"] / peaks.loc[model, "plain"]
        factor = steps.loc[model, "recomputed"] / steps.loc[model, "plain"]
        more = steps.loc[model, "recomputed"] - steps.loc[model, "plain"]
        parts.append(
            f"{model} {share:.0%} less memory, {factor:.2f} times the time "
            f"({more:.1f} ms, predicted {added[model]:.1f})"
        )
        good.append(share > 0 and factor <= FEW)
    return Verdict("; ".join(parts), all(good) if good else None)


EXPERIMENT = Experiment(
    "recomputation",
    "Zheng 2023 (slides), selective recomputation",
    "Recomputing light operators in the backward pass lowers the memory of training at a small cost in time.",
    run,
    figure,
    judge,
    compiles=False,
)
