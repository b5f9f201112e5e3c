"""Network that predicts convolutions: share within 5 % on random rows and on held-out shapes (Goldfarb, section 5.4.2).

Rows of one sweep are near copies of each other: the same shape in another batch size or precision. A random split puts
copies of a test row into training, and flatters. Nothing is measured here: the rows are those of a shipped profile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from costmodel.predictor.network import scaled
from costmodel.profiles.profile import DEFAULT, load_profile
from costmodel.training.baselines import BASELINES, Fit, Predict, cross_validate, score_group
from costmodel.training.dataset import DEVICE, kernel_of, read_frame
from costmodel.training.folds import Folds, by_shape
from costmodel.training.kernel_models import TrainingSettings, moments, train_network
from costmodel.training.tables import Table, drop, shape_group, tabulate, trusted
from study import plots
from study.experiment import Experiment, Point, Row, Setup, SkippedError, Verdict, valued
from study.table import values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGETS = ("speedup", "time")
SPLITS = ("random rows", "held-out shapes")
FOLDS, ROWS, QUICK_ROWS = 4, 4000, 400
SEED = 0
CLAIM = 0.95
UNIT = ("batch", "in_channels", "out_channels", "size", "kernel", "stride", "padding", "dilation", "groups")
"""Fields at the beginning of a unit's name, after `conv`."""


def run(setup: Setup) -> Iterator[Point]:
    """Points: a target, a way to split and a fit each."""
    if not (load_profile(DEFAULT).path / "units.parquet").exists():
        raise SkippedError(f"the profile {DEFAULT} has no dataset of units here; run from a checkout of the repository")
    for target in TARGETS:
        for split in SPLITS:
            for fit in ("network", "network without position", "constant"):
                if fit != "network without position" or target == "time":
                    yield Point(f"{target} {split} {fit}", functools.partial(_measure, setup, target, split, fit))


def _measure(setup: Setup, target: str, split: str, fit: str) -> Iterator[Row]:
    table = speedup_table() if target == "speedup" else time_table(setup.chosen(ROWS, QUICK_ROWS))
    if fit == "network without position":
        table = drop(table, ["position"])
    settings = TrainingSettings(epochs=setup.chosen(60, 5))
    folds = random_rows(len(table.time_us)) if split == "random rows" else by_shape(table.shape, FOLDS)
    chosen = BASELINES["constant"] if fit == "constant" else network_alone(settings)
    scores = score_group(table, cross_validate(table, folds, chosen))
    labels = {"target": target, "split": split, "fit": fit}
    for quantity in ("within_5", "mean_error", "median_error"):
        yield valued(labels, f"{quantity}_share", scores[quantity], samples=int(scores["kernels"]))


def network_alone(settings: TrainingSettings) -> Fit:
    """Fit of the multilayer perceptron alone, as in the study."""

    def fit(table: Table) -> Predict:
        mean, scale = moments(table)
        network = train_network(scaled(table.raw, mean, scale), table.target, settings, SEED)
        return lambda test: np.asarray(network.forward(scaled(test.raw, mean, scale)), dtype=np.float32)

    return fit


def random_rows(rows: int) -> Folds:
    """Folds that rows are assigned to at random."""
    tests = np.random.default_rng(SEED).permutation(rows) % FOLDS
    return Folds(tests, tests != np.arange(FOLDS)[:, None])


@functools.cache
def speedup_table() -> Table:
    """Convolution units that were measured eager and compiled: their parameters, and eager over compiled time."""
    frame, _ = read_frame(load_profile(DEFAULT).path / "units.parquet")
    units = frame[(frame["source"] == "conv") & frame["way"].isin(["eager", "inductor"]) & (frame["status"] == "ok")]
    times = units.pivot_table(DEVICE, "unit", "way").dropna()
    parsed = {name: fields for name in times.index if (fields := unit_fields(name)) is not None}
    times = times.loc[list(parsed)]
    raw = np.array(list(parsed.values()), dtype=np.float32)
    speedup = (times["eager"] / times["inductor"]).to_numpy(dtype=float)
    shape = np.array([shape_of(name) for name in parsed], dtype=np.int64)
    return Table((*UNIT, "is_half"), raw, np.ones(len(speedup)), speedup, shape)


def unit_fields(name: str) -> list[float] | None:
    """Parameters in a unit's name, sizes as logarithms; None for a kernel that is not square."""
    parts = name.split("-")
    if parts[0] != "conv" or not all(part.isdigit() for part in parts[1 : len(UNIT) + 1]) or len(parts) != 14:
        return None
    return [*(math.log2(1 + int(part)) for part in parts[1 : len(UNIT) + 1]), float(parts[10] != "float32")]


def shape_of(name: str) -> int:
    """Hash of a unit's shape without batch size and precision."""
    parts = name.split("-")
    return shape_group("-".join(parts[2:10]))


@functools.cache
def time_table(rows: int) -> Table:
    """Convolutions of models by ATen's library calls: the predictor's features, and device times."""
    profile = load_profile(DEFAULT)
    frame = trusted(read_frame(profile.path / "units.parquet")[0])
    found = frame[
        frame["graph"].str.contains("= convolution") & (frame["runner"] == "aten") & frame["position"].notna()
    ]
    found = found[whole_shapes(found["graph"].map(shape_group).to_numpy(), rows)].reset_index(drop=True)
    kernels = [kernel_of(graph, runner) for graph, runner in zip(found["graph"], found["runner"], strict=True)]
    return tabulate(kernels, found, profile.predictor.roofline, profile.device.multiprocessors)["conv"]


def whole_shapes(shape: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.bool_]:
    """Mask of at least so many rows: random shapes, each with all its batch sizes, precisions and layouts.

    Random rows would be of many shapes with few copies each, and so hide what a random split gains by copies.
    """
    unique, counts = np.unique(shape, return_counts=True)
    order = np.random.default_rng(SEED).permutation(len(unique))
    enough = int(np.searchsorted(counts[order].cumsum(), rows)) + 1
    return np.isin(shape, unique[order[:enough]])


def figure(frame: pd.DataFrame) -> Figure:
    """Share within 5 %, by way to split and fit, a panel for each target."""
    rows = values(frame, "within_5_share")

    def draw(panel: Axes, found: pd.DataFrame, target: str) -> None:
        plots.bars(panel, found.assign(low=None, high=None), "split", "fit", 100.0)
        plots.finish(panel, f"{target} of convolutions", "test rows", "predicted within 5 % (%)")

    return plots.panels(rows, "target", draw, 2)


def judge(frame: pd.DataFrame) -> Verdict:
    """95 % of held-out convolutions have a predicted speedup within 5 %."""
    shares = values(frame, "within_5_share").set_index(["target", "split", "fit"])["value"]
    parts = [
        f"{target} within 5 % on {split} {shares[target, split, 'network']:.0%} "
        f"(constant {shares[target, split, 'constant']:.0%})"
        for target in TARGETS
        for split in SPLITS
    ]
    worth = shares["time", SPLITS[1], "network"] - shares["time", SPLITS[1], "network without position"]
    text = f"{'; '.join(parts)}; position adds {100 * worth:+.1f} points on held-out shapes"
    return Verdict(text, bool(shares["speedup", SPLITS[1], "network"] >= CLAIM))


EXPERIMENT = Experiment(
    "speedup-network",
    "Goldfarb 2024, section 5.4.2",
    "A multilayer perceptron predicts the speedup of a convolution within 5 % in 95 % of cases.",
    run,
    figure,
    judge,
    compiles=False,
    measures=False,
)
