"""Speedup of whole convolution units: the quotient of predicted times, a network that learns it directly, a constant.

The units are those of the dataset that were measured in every way. The predictor learns from single kernels; here it
is trained anew without those that cuDNN made of these units, so that it has seen nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from costmodel.baselines import LARGE_US
from costmodel.compile import compiled_kernels
from costmodel.dataset import kernel_of
from costmodel.features import OPTIONAL
from costmodel.ir import parse
from costmodel.kernels import eager_kernels
from costmodel.measured import FOLDS
from costmodel.predictor import Predictor
from costmodel.train import Settings, drop, fit_group, tabulate, train_network, trusted

Values = npt.NDArray[np.float64]


def complete_units(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a unit that was measured both eager and compiled: times in microseconds and the graphs' texts by way."""
    units = frame[(frame["unit"] != "") & (frame["status"] == "ok")]
    times = units.pivot(index="unit", columns="way", values="device_us_p50")
    graphs = units.pivot(index="unit", columns="way", values="graph").add_suffix("_graph")
    return times.join(graphs).dropna(subset=["eager", "inductor"])


def unseeing(frame: pd.DataFrame, predictor: Predictor, settings: Settings) -> Predictor:
    """The predictor with convolutions learnt from kernels that belong to no unit."""
    kept = trusted(frame[frame["unit"] == ""])
    kernels = [kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True)]
    tables = tabulate(kernels, kept, predictor.roofline, predictor.multiprocessors)
    return replace(predictor, groups={**predictor.groups, "conv": fit_group(drop(tables["conv"], OPTIONAL), settings)})


def quotients(units: pd.DataFrame, predictor: Predictor) -> Values:
    """Predicted eager over predicted compiled time of each unit, as sums of their kernels."""
    result = []
    for eager_text, compiled_text in zip(units["eager_graph"], units["inductor_graph"], strict=True):
        eager, compiled = eager_kernels(parse(eager_text)), compiled_kernels(parse(compiled_text))
        sums = [sum(e.us for e in predictor.predict(way, [0.5] * len(way))) for way in (eager, compiled)]
        result.append(sums[0] / sums[1])
    return np.array(result)


def parameters(units: pd.DataFrame) -> Values:
    """The study's inputs: batch, channels, size, kernel, stride, padding, dilation, groups, precision, what follows."""
    rows = []
    for name in units.index:
        *sizes, dtype, norm, residual, activation = str(name).removeprefix("conv-").split("-")
        batch, inner, outer, size, kernel, stride, padding, dilation, groups = map(int, sizes)
        logs = np.log2([batch, inner, outer, size, groups]).tolist()
        flags = [float(dtype == "float32"), float(norm), float(residual), float(activation), float(groups == inner)]
        rows.append([*logs, kernel, stride, padding, dilation, *flags])
    return np.array(rows)


def direct(x: Values, speedup: Values, settings: Settings) -> Values:
    """Out-of-fold speedups of a network that learns their logarithm from the parameters alone."""
    prediction = np.zeros(len(speedup))
    folds = np.arange(len(speedup)) % FOLDS
    for fold in range(FOLDS):
        train, test = folds != fold, folds == fold
        mean, scale = x[train].mean(0), np.where(x[train].std(0) > 0, x[train].std(0), 1.0)
        scaled = ((x - mean) / scale).astype(np.float32)
        y = np.log(speedup[train]).astype(np.float32)
        networks = [train_network(scaled[train], y, settings, seed) for seed in range(settings.ensemble)]
        prediction[test] = np.mean([network.forward(scaled[test]) for network in networks], axis=0)
    return np.asarray(np.exp(prediction))


def compare(frame: pd.DataFrame, predictor: Predictor, settings: Settings) -> list[dict[str, Any]]:
    """Scores of each way of predicting a unit's speedup, on units that take at least 5 us in eager."""
    units = complete_units(frame)
    measured = (units["eager"] / units["inductor"]).to_numpy()
    ways: Mapping[str, Values] = {
        "constant": np.full(len(measured), np.exp(np.log(measured).mean())),
        "direct network": direct(parameters(units), measured, settings),
        "quotient of times": quotients(units, predictor),
    }
    large = (units["eager"] >= LARGE_US).to_numpy()
    rows = []
    for way, predicted in ways.items():
        error = np.abs(predicted / measured - 1)[large]
        rows.append(
            {
                "way": way,
                "units": int(large.sum()),
                "mean_error": float(error.mean()),
                "median_error": float(np.median(error)),
                "within_5": float((error <= 0.05).mean()),
                "within_10": float((error <= 0.10).mean()),
            }
        )
    return rows
