"""What features are worth: the predictor's error on left-out shape groups with some features taken away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from costmodel.baselines import cross_validate, network_fit, score_group, without
from costmodel.dataset import kernel_of
from costmodel.folds import by_shape
from costmodel.predictor import Predictor
from costmodel.train import Settings, tabulate, trusted

ABLATIONS: Mapping[str, tuple[str, ...]] = {
    "nothing": (),
    "position": ("position",),
    "roofline": ("log_bound_us", "log_traffic", "log_flops", "log_intensity", "compute_bound", "log_written"),
    "tiling": (
        "log_waves_64",
        "wave_loss_64",
        "log_waves_128",
        "wave_loss_128",
        "n_odd",
        "k_odd",
        "n_by_32",
        "k_by_32",
    ),
}
"""What is taken away -> the features' names; the target stays time over the roofline bound."""
GROUPS = ("conv", "triton", "gemm")


def ablate(frame: pd.DataFrame, predictor: Predictor, settings: Settings) -> list[dict[str, Any]]:
    """One row a group and ablation: errors on shape groups left out."""
    kept = trusted(frame)
    kernels = [kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True)]
    tables = tabulate(kernels, kept, predictor.roofline, predictor.multiprocessors)
    rows = []
    for group in GROUPS:
        for removed, names in ABLATIONS.items():
            if removed == "tiling" and group == "triton":
                continue
            table = tables[group]
            prediction = cross_validate(table, by_shape(table.shape), without(names, network_fit(settings)))
            score = score_group(table, prediction)
            chosen = {key: score[key] for key in ("mean_error", "median_error", "within_5")}
            rows.append({"group": group, "without": removed, **chosen})
    return rows
