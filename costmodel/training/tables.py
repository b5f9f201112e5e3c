"""Measured kernels as tables of features and targets, one for each group of kernels."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from costmodel.features import GROUPS, Roofline, featurize, group_of
from costmodel.kernels.eager_dispatch import count_views
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes
from costmodel.predictor.group_model import UNMEASURED, none_measured
from costmodel.predictor.network import Array
from costmodel.training.dataset import TRUSTED, WORKSPACE

LEAST_ROWS = 30
"""A group with fewer measured kernels gets no model of its own; its kernels are out of range."""
HOST = "host_us_p25"
"""The column of a kernel's time on the host: the quantile that is learnt from, as most of what disturbs it adds."""
VIEW_US = 2.0
"""Taken off the host time of an isolated call for each view that leads to its operands, as eager models' views are
counted apart. There a view takes 4.4; the rest stands for what it takes compiled, where nothing else counts it."""
LEAST_HOST_US = 0.5
"""No call takes the host less, whatever is taken off."""


@dataclass(frozen=True, slots=True)
class Table:
    """Training rows of one group: features by name, bound and measured time in microseconds, shape group.

    `workspace` is what a kernel allocated beside its results, as a share of what it reads and writes; UNMEASURED where
    nobody looked, empty if nowhere. `host_us` is what the host took to issue it, likewise.
    """

    names: tuple[str, ...]
    raw: Array
    bound_us: npt.NDArray[np.float64]
    time_us: npt.NDArray[np.float64]
    shape: npt.NDArray[np.int64]
    workspace: Array = field(default_factory=none_measured)
    host_us: Array = field(default_factory=none_measured)

    @property
    def target(self) -> Array:
        """Logarithm of time over bound."""
        return np.log(self.time_us / self.bound_us).astype(np.float32)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Table:
        """Some of the rows."""
        extra = (some[rows] if len(some) else some for some in (self.workspace, self.host_us))
        return Table(self.names, self.raw[rows], self.bound_us[rows], self.time_us[rows], self.shape[rows], *extra)


def trusted(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that may be trained on: measured without fault, each of one kernel.

    Units are made of several kernels, except where cuDNN runs a whole one as its own.
    """
    clean = (frame["status"] == TRUSTED) & frame["device_us_p50"].notna() & (frame["device_us_p50"] > 0)
    single = (frame["unit"] == "") | (frame["way"] == "cudnn")
    return frame[clean & single].drop_duplicates("key").reset_index(drop=True)


def tabulate(
    kernels: Sequence[Kernel],
    frame: pd.DataFrame,
    roofline: Roofline,
    multiprocessors: int,
    least: int = LEAST_ROWS,
) -> dict[str, Table]:
    """Rows of every group that has enough of them: `least`."""
    rows: dict[str, list[tuple[dict[str, float], float, float, int, float, float]]] = {group: [] for group in GROUPS}
    unmeasured = pd.Series(np.nan, index=frame.index)
    for kernel, time, position, text, workspace, host in zip(
        kernels,
        frame["device_us_p50"],
        frame["position"],
        frame["graph"],
        frame.get(WORKSPACE, unmeasured),
        frame.get(HOST, unmeasured),
        strict=True,
    ):
        place = 0.5 if position is None or math.isnan(position) else float(position)
        features = featurize(kernel, roofline, multiprocessors, place)
        share = UNMEASURED if math.isnan(workspace) else float(workspace) / traffic_bytes(kernel.graph)
        issue_us = UNMEASURED if math.isnan(host) or kernel.backend == "triton" else issue_alone_us(kernel, float(host))
        entry = (features, roofline.bound_us(kernel), float(time), shape_group(text), share, issue_us)
        rows[group_of(kernel)].append(entry)
    tables = {}
    for group, entries in rows.items():
        if len(entries) < least:
            continue
        names = tuple(entries[0][0])
        workspaces, hosts = (np.array([entry[i] for entry in entries], dtype=np.float32) for i in (4, 5))
        tables[group] = Table(
            names,
            np.array([[entry[0][name] for name in names] for entry in entries], dtype=np.float32),
            np.array([entry[1] for entry in entries]),
            np.array([entry[2] for entry in entries]),
            np.array([entry[3] for entry in entries], dtype=np.int64),
            *(some if (some != UNMEASURED).any() else none_measured() for some in (workspaces, hosts)),
        )
    return tables


def issue_alone_us(kernel: Kernel, host_us: float) -> float:
    """What the host takes to issue a kernel without the views that lead to its operands, microseconds."""
    return max(LEAST_HOST_US, host_us - VIEW_US * count_views(kernel.graph))


def shape_group(graph_text: str) -> int:
    """A number for the graph without batch size, precision and layout: what counts as the same shape."""
    bare = re.sub(r"(float|bfloat)\d+\[(\d+),?", "[", graph_text)
    bare = re.sub(r" (nhwc|strided)|=\[[\d, ]+\]|input |param ", "", bare)
    return int(hashlib.sha256(bare.encode()).hexdigest()[:12], 16)


def drop(table: Table, names: Collection[str]) -> Table:
    """The table without some features."""
    keep = [index for index, name in enumerate(table.names) if name not in names]
    return replace(table, names=tuple(table.names[i] for i in keep), raw=table.raw[:, keep])
