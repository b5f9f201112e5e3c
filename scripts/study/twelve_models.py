"""Twelve vision models at batch 1, eager and compiled, predicted beside measured (Jain, table of an A100)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import torch

from costmodel.errors import CostmodelError
from costmodel.measurement.timers import host_probe
from costmodel.prediction.predict import predict
from costmodel.prediction.recompilation import recompilations
from costmodel.profiles.profile import load_profile
from costmodel.zoo import Loaded, load, load_real
from study import plots
from study.dynamo_counts import compilations, explained
from study.experiment import Experiment, Point, Row, Setup, Verdict, noted, timed, valued
from study.hardware import profile_name
from study.models import compiled, first_call_s, wall
from study.ratios import paired
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PUBLISHED: Mapping[str, tuple[str, float, float]] = {
    "ViT": ("hf:vit", 9.325, 7.584),
    "Segformer": ("hf:segformer", 11.759, 10.500),
    "OwlViT": ("hf:owlvit", 24.978, 18.420),
    "BeiT": ("hf:beit", 11.282, 8.448),
    "DETR": ("hf:detr", 34.619, 19.040),
    "ConvNeXT": ("hf:convnext", 10.410, 10.208),
    "ResNet": ("hf:resnet", 6.531, 4.124),
    "Mask2former": ("hf:mask2former", 60.188, 49.117),
    "Maskformer": ("hf:maskformer", 75.764, 59.487),
    "MobileNet": ("hf:mobilenet_v2", 8.583, 3.974),
    "ResNet-101": ("resnet101", 36.276, 18.197),
    "Conditional DETR": ("hf:conditional_detr", 31.219, 17.993),
}
"""Model -> our configuration of it, and the slide's eager and compiled milliseconds."""
QUICK = ("MobileNet",)
FASTEST = 1.5
"""Speed of a host relative to the profile's above which a probe is not believed."""
LARGER = 2
"""Batch size of the second and third shape that recompilations are counted for: 1, LARGER, LARGER + 1."""


def run(setup: Setup) -> Iterator[Point]:
    """Points: a model each."""
    for model in setup.chosen(tuple(PUBLISHED), QUICK):
        yield Point(model, functools.partial(_times, setup, model))


def graph_points(setup: Setup) -> Iterator[Point]:
    """Points: a model each; Dynamo traces it on the CPU in any case."""
    for model in setup.chosen(tuple(PUBLISHED), QUICK):
        yield Point(model, functools.partial(_graphs, setup, model))


def _inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})


def _times(setup: Setup, model: str) -> Iterator[Row]:
    spec, eager_ms, compiled_ms = PUBLISHED[model]
    loaded = load_real(spec, torch.device(setup.device), img_size=setup.chosen(None, 64))
    args, kwargs = _inputs(loaded.inputs)
    for way, published in (("eager", eager_ms), ("compiled", compiled_ms)):
        labels = {"model": model, "spec": spec, "way": way}
        function = loaded.module if way == "eager" else compiled(loaded.module)

        def call(function: Any = function) -> Any:
            with torch.no_grad():
                return function(*args, **kwargs)

        first = first_call_s(call, setup.device)
        if way == "compiled":
            yield valued(labels, "compile_s", first)
        yield timed(labels, "latency_ms", wall(call, setup))
        yield valued(labels, "published_ms", published)
    yield from _predictions(setup, model, loaded)


def _predictions(setup: Setup, model: str, loaded: Loaded) -> Iterator[Row]:
    """Predictions for the profile's host, and on a GPU for this machine's, which a probe of a second calibrates."""
    hardware = profile_name(setup)
    hosts: dict[str, float | None] = {"predicted_ms": None}
    own_us = load_profile(hardware).summary.host.probe_us
    if setup.on_cuda and own_us is not None:
        hosts["calibrated_ms"] = min(FASTEST, own_us / host_probe(setup.device))
    for quantity, host in hosts.items():
        report = predict(loaded.module, loaded.inputs, hardware=hardware, check=False, host=host)
        for way, mode in (("eager", "eager"), ("compiled", "default")):
            labels, found = {"model": model, "spec": PUBLISHED[model][0], "way": way}, report.modes[mode]
            yield valued(labels, quantity, found.latency_ms, found.low_ms, found.high_ms)


def _graphs(setup: Setup, model: str) -> Iterator[Row]:
    """Graphs, breaks, guards and recompilations, predicted and counted."""
    spec = PUBLISHED[model][0]
    size = setup.chosen(None, 64)
    loaded = load(spec, img_size=size)
    labels = {"model": model, "spec": spec}
    report = predict(loaded.module, loaded.inputs, hardware=profile_name(setup))
    yield valued(labels, "predicted_graphs", report.graphs.count)
    yield valued(labels, "predicted_breaks", len(report.graphs.breaks))
    real = load_real(spec, torch.device("cpu"), img_size=size)
    args, kwargs = _inputs(real.inputs)
    counts = explained(real.module, *args, **kwargs)
    yield valued(labels, "graphs", counts.graphs)
    yield valued(labels, "breaks", counts.breaks)
    yield valued(labels, "guards", counts.guards)
    try:
        yield from _recompilations(labels, spec, size, real.module)
    except (CostmodelError, RuntimeError) as error:  # a model may refuse other batch sizes
        yield noted(labels, f"recompilations are not counted: {error}")


def _recompilations(labels: Row, spec: str, size: int | None, module: torch.nn.Module) -> Iterator[Row]:
    batches = (1, LARGER, LARGER + 1)
    calls = [_inputs(load_real(spec, torch.device("cpu"), batch_size=batch, img_size=size).inputs) for batch in batches]
    made = compilations(module, calls)
    yield valued(labels, "recompilations", sum(1 for graphs in made[1:] if graphs))
    shapes = [
        next(leaf.shape for leaf in (*args, *kwargs.values()) if hasattr(leaf, "shape")) for args, kwargs in calls
    ]
    yield valued(
        labels, "predicted_recompilations", len(recompilations([tuple(shape) for shape in shapes]).variants) - 1
    )


def figure(frame: pd.DataFrame) -> Figure:
    """Measured latencies, and predicted beside measured speedups."""
    figure, (left, right) = plots.new_figure(2, 2)
    plots.bars(left, values(frame, "latency_ms"), "model", "way")
    plots.finish(left, "batch 1", "model", "latency (ms)")
    rows = []
    for name, quantity in (("measured", "latency_ms"), ("predicted", "predicted_ms"), ("slide (A100)", "published_ms")):
        found = paired(frame, quantity, ["model"], "way", "eager", "compiled")
        rows.append(found.assign(value=found["speedup"], low=None, high=None, by=name))
    import pandas as pd

    plots.bars(right, pd.concat([each for each in rows if len(each)]), "model", "by")
    right.axhline(1.0, color="red", lw=0.8, ls="--")
    plots.finish(right, "speedup", "model", "eager over compiled")
    return figure


def judge(frame: pd.DataFrame) -> Verdict:
    """Every model gains from compiling."""
    measured = paired(frame, "latency_ms", ["model"], "way", "eager", "compiled").set_index("model")["speedup"]
    text = f"{int((measured > 1).sum())} of {len(measured)} models are faster compiled"
    if len(measured):
        text += f", geometric mean {geometric_mean(measured):.2f}"
    for quantity, host in (("predicted_ms", "the profile's host"), ("calibrated_ms", "this host")):
        predicted = paired(frame, quantity, ["model"], "way", "eager", "compiled").set_index("model")["speedup"]
        both = [abs(predicted[model] / measured[model] - 1) for model in measured.index if model in predicted.index]
        if both:
            text += f"; speedups predicted for {host} are {sum(both) / len(both):.0%} off on average"
    return Verdict(text, bool((measured > 1).all()) if len(measured) else None)


def graphs_figure(frame: pd.DataFrame) -> Figure:
    """Graphs, breaks and recompilations, counted and predicted; guards beside them."""
    figure, (left, right) = plots.new_figure(2, 2)
    plots.bars(left, frame[frame["quantity"] != "guards"], "model", "quantity")
    plots.finish(left, "what Dynamo makes of a model", "model", "count")
    plots.bars(right, values(frame, "guards"), "model", "quantity")
    plots.finish(right, "guards", "model", "count")
    return figure


def judge_graphs(frame: pd.DataFrame) -> Verdict:
    """Every model is one graph without a break; a second batch size compiles again, a third does not."""
    table = frame.pivot_table("value", "model", "quantity")
    parts = [f"{int((table['graphs'] == 1).sum())} of {len(table)} models are one graph"]
    parts.append(f"{table['guards'].min():.0f} to {table['guards'].max():.0f} guards")
    for kind in ("graphs", "breaks", "recompilations"):
        if {kind, f"predicted_{kind}"} <= set(table):
            known = table[[kind, f"predicted_{kind}"]].dropna()
            right = int((known[kind] == known[f"predicted_{kind}"]).sum())
            parts.append(f"{kind} predicted for {right} of {len(known)}")
    return Verdict(", ".join(parts), bool((table["graphs"] == 1).all()))


EXPERIMENT = Experiment(
    "twelve-models",
    "Jain (slides), table at batch 1",
    "Each of twelve vision models is faster compiled, by a factor of 1.02 to 2.16 on an A100.",
    run,
    figure,
    judge,
)
GRAPHS = Experiment(
    "twelve-graphs",
    "Jain (slides), graph acquisition",
    "Dynamo captures whole vision models, without a graph break.",
    graph_points,
    graphs_figure,
    judge_graphs,
    compiles=False,
)
