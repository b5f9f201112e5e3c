"""Oracles of layers: theoretical, best of two runs, dynamic program; applied and measured (Goldfarb, 5.9 and 5.10)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from costmodel.errors import CostmodelError
from costmodel.execution.planned_module import apply
from costmodel.measurement.layer_sequence import Layers
from costmodel.measurement.layer_timing import measure_layers
from costmodel.measurement.timing_methods import EndToEnd, LayerSubtraction, LayerTimers, Subject, TimingMethod
from costmodel.planning.api import plan
from costmodel.planning.oracle import STRATEGIES
from costmodel.planning.series_parallel import BlockPipeline, block_tree
from costmodel.prediction.predict import predict
from costmodel.profiles.profile import load_profile
from study import plots
from study.experiment import Experiment, Point, Row, Setup, Verdict, noted, timed, valued
from study.hardware import profile_name
from study.models import QUICK, SIX, bound, compiled, first_call_s, load_model, wall
from study.table import values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAYS = ("eager", "compiled")
SUBTRACTED = ("alexnet", "squeezenet1_1")
"""Models by layer subtraction, which compiles a model anew for each of its layers."""
PLANNED = ("googlenet", "resnet50", "squeezenet1_1")
"""Models that this project plans, which compiles further parts of them."""


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Measured times of layers as the oracle's costs: two ways each, and switching is free."""

    times: Sequence[Mapping[str, float]]

    def choices(self, block: int) -> Sequence[str]:
        """Ways to run a layer."""
        return WAYS if block < len(self.times) else WAYS[:1]

    def run(self, block: int, choice: object) -> float:
        """Microseconds of a layer."""
        return self.times[block][str(choice)] if block < len(self.times) else 0.0

    def edge(self, _producer: int, _before: object, _consumer: int, _after: object) -> float:
        """Nothing: the study's methods have no cost of switching."""
        return 0.0

    def together(self, branches: Sequence[float]) -> float:
        """Layers run one after another."""
        return sum(branches)


def chain(count: int) -> BlockPipeline:
    """Tree of so many layers in series."""
    return block_tree(count, [(layer, layer + 1) for layer in range(count - 1)])


def run(setup: Setup) -> Iterator[Point]:
    """Points: a model and a timing method each; then this project's plan; last the profiler, which slows launches."""
    for model in setup.chosen(SIX, QUICK):
        yield Point(f"{model} layer timing", functools.partial(_oracles, setup, model, LayerTimers(setup.least)))
    for model in setup.chosen(SUBTRACTED, ()):
        method = LayerSubtraction(3, setup.seconds / 4)
        yield Point(f"{model} layer subtraction", functools.partial(_oracles, setup, model, method))
    for model in setup.chosen(PLANNED, QUICK):
        yield Point(f"{model} plan", functools.partial(_planned, setup, model))
    for model in setup.chosen(SIX, QUICK):
        yield Point(f"{model} profiler", functools.partial(_by_profiler, setup, model))


def _oracles(setup: Setup, model: str, method: TimingMethod) -> Iterator[Row]:
    """Times of all layers by a method, what each oracle makes of them, and the choice applied."""
    module, inputs = load_model(model, setup)
    layers = Layers(module, "block")
    eager = Subject(layers, inputs)
    full = replace(eager, only=frozenset(layers.names[:2])) if setup.quick else replace(eager, compiled=True)
    subjects = dict(zip(WAYS, (eager, full), strict=True))
    found = {way: method.measure(subject).layers for way, subject in subjects.items()}
    labels = {"model": model, "method": method.name}
    for number, name in enumerate(layers.names):
        for way in WAYS:
            yield timed(
                {**labels, "way": way, "number": number, "layer": name}, "layer_us", found[way][name], scale=1.0
            )
    times = [{way: found[way][name].median_us for way in WAYS} for name in layers.names]
    for oracle, cost in oracle_costs(times).items():
        yield valued({**labels, "oracle": oracle}, "sum_us", cost)
    chosen = frozenset(name for name, us in zip(layers.names, times, strict=True) if us["compiled"] < us["eager"])
    applied = {"eager": eager, "custom": replace(eager, only=chosen)} | ({} if setup.quick else {"compiled": full})
    for name, subject in applied.items():
        total = EndToEnd(setup.seconds, setup.least).measure(subject).total
        yield timed({**labels, "applied": name}, "latency_ms", total)


def oracle_costs(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Cost of each oracle's choice, and of running all layers one way, microseconds."""
    tree, costs = chain(len(times)), LayerCosts(times)
    whole = {f"all {way}": sum(layer[way] for layer in times) for way in WAYS}
    return whole | {name: strategy(tree, costs).cost for name, strategy in STRATEGIES.items()}


def _by_profiler(setup: Setup, model: str) -> Iterator[Row]:
    """Oracle of profiled layers: device times of the prediction's units, eager and compiled."""
    module, inputs = load_model(model, setup)
    profile = load_profile(profile_name(setup))
    report = predict(module, inputs, hardware=profile.name, check=False)
    with torch._inductor.config.patch({"cpp.enable_kernel_profile": True}), torch.no_grad():
        runner = compiled(module)
        first_call_s(bound(runner, inputs), setup.device)
        eager, made = measure_layers(module, runner, inputs, report, profile.device)
    both = {layer.name: layer.measured_us for layer in made if layer.measured_us}
    pairs = [(layer.measured_us, both[layer.name]) for layer in eager if layer.measured_us and layer.name in both]
    sums = {
        "all eager": [a for a, _ in pairs],
        "all compiled": [b for _, b in pairs],
        "theoretical": [min(p) for p in pairs],
    }
    for oracle, each in sums.items():
        yield valued({"model": model, "method": "profiler", "oracle": oracle}, "sum_us", sum(each), samples=len(each))


def _planned(setup: Setup, model: str) -> Iterator[Row]:
    """Latency of this project's plan, beside eager execution and torch.compile."""
    module, inputs = load_model(model, setup)
    labels = {"model": model, "method": "plan"}
    made = plan(module, inputs, hardware=profile_name(setup), check=False)
    ways = {"eager": lambda: module, "compiled": lambda: compiled(module)}
    if setup.on_cuda:
        ways["reduce-overhead"] = lambda: compiled(module, "reduce-overhead")
    ways["plan"] = lambda: apply(module, made, inputs)
    for name, make in ways.items():
        try:
            call = bound(make(), inputs)
            first_call_s(call, setup.device)
        except CostmodelError as error:
            yield noted({**labels, "applied": name}, str(error))
            continue
        yield timed({**labels, "applied": name}, "latency_ms", wall(call, setup))


def figure(frame: pd.DataFrame) -> Figure:
    """Latency of each configuration as it was applied, a panel for each method."""

    def draw(panel: Axes, rows: pd.DataFrame, method: str) -> None:
        plots.bars(panel, rows, "model", "applied")
        plots.finish(panel, f"configurations by {method}", "model", "latency (ms)")

    return plots.panels(values(frame, "latency_ms"), "method", draw, 2)


def judge(frame: pd.DataFrame) -> Verdict:
    """The theoretical oracle gains a few percent over the better run; applied, it loses to compiling everything."""
    sums = values(frame[frame["method"] == "layer timing"], "sum_us").pivot_table("value", "model", "oracle")
    gains = (sums[["all eager", "all compiled"]].min(axis=1) / sums["theoretical"]).to_dict()
    text = "theoretical speedup over the better run " + ", ".join(
        f"{model} {gain:.3f}" for model, gain in gains.items()
    )
    applied = values(frame, "latency_ms").pivot_table("value", ["method", "model"], "applied")
    losses = []
    for (method, model), row in applied.iterrows():
        if row.get("custom", 0) > 0 and row.get("compiled", 0) > 0:
            losses.append(row["compiled"] / row["custom"])
            text += f"; {model} by {method}: custom {losses[-1]:.2f} times as fast as compiled"
        if row.get("plan", 0) > 0 and row.get("compiled", 0) > 0:
            text += f"; {model} by this project's plan: {row['compiled'] / row['plan']:.2f} times"
    text += "; without a cost of switching, the published dynamic program and the best of two runs are one"
    if not losses:
        return Verdict(text, None)
    return Verdict(text, all(gain > 1 for gain in gains.values()) and all(loss < 1 for loss in losses))


EXPERIMENT = Experiment(
    "oracles",
    "Goldfarb 2024, figures 5.9 and 5.10, table 5.1, appendix 4",
    "Choosing the faster way layer by layer would gain 2 to 5 %; applied, the mix loses to compiling everything.",
    run,
    figure,
    judge,
)
