"""Tables of features and targets of measured kernels, one for each group."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from costmodel.features import GROUPS, Roofline, featurize, group_of
from costmodel.kernels.eager_dispatch import count_views
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.group_model import UNMEASURED, none_measured
from costmodel.predictor.network import Array
from costmodel.predictor.recall import Hashes, key_hash
from costmodel.training.dataset import TRUSTED, WORKSPACE

LEAST_ROWS = 30
"""Fewest measured kernels for a group's model; kernels of other groups are out of range."""
HOST = "host_us_p25"
"""Column of a kernel's host time: a low quantile, as disturbances mostly add time."""
VIEW_US = 2.0
"""Host time subtracted from an isolated call for each view that leads to its operands.

An isolated view takes 4.4 us. Eager models count views separately; compiled ones do not, so part of the time stays."""
LEAST_HOST_US = 0.5
"""Least host time of a launch after that subtraction."""


@dataclass(frozen=True, slots=True)
class Table:
    """Training rows of one group.

    Attributes:
        names: feature names.
        raw: features before scaling, (rows, features).
        bound_us: roofline bounds, (rows,).
        time_us: measured times, (rows,).
        shape: shape groups, (rows,).
        workspace: bytes allocated beside results as shares of traffic, (rows,); UNMEASURED where not measured, empty if
            never.
        host_us: host times of the launches, (rows,); likewise.
        traffic: bytes that each kernel moves at least, (rows,); empty where workspaces are not needed.
        hashes: hashes of the kernels' keys, (rows,); empty for a table whose kernels are not to be recalled.
    """

    names: tuple[str, ...]
    raw: Array
    bound_us: npt.NDArray[np.float64]
    time_us: npt.NDArray[np.float64]
    shape: npt.NDArray[np.int64]
    workspace: Array = field(default_factory=none_measured)
    host_us: Array = field(default_factory=none_measured)
    traffic: Array = field(default_factory=none_measured)
    hashes: Hashes = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def target(self) -> Array:
        """Logarithm of time over bound."""
        return np.log(self.time_us / self.bound_us).astype(np.float32)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Table:
        """A table of some of the rows."""
        others = self.workspace, self.host_us, self.traffic, self.hashes
        extra: tuple[Any, ...] = tuple(some[rows] if len(some) else some for some in others)
        return Table(self.names, self.raw[rows], self.bound_us[rows], self.time_us[rows], self.shape[rows], *extra)

    @property
    def workspace_bytes(self) -> Array | None:
        """Bytes allocated beside results, (rows,), negative where not measured; None if never."""
        return self.workspace * self.traffic if len(self.workspace) else None


def trusted(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that may be trained on: measured without fault, and of a single kernel.

    A unit has several kernels, unless cuDNN runs it as one.
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
    """Tables of the groups with at least `least` rows."""
    rows: dict[str, list[tuple[Any, ...]]] = {group: [] for group in GROUPS}
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
        group = group_of(kernel)
        if group not in rows:  # an operator without a cost rule
            continue
        place = 0.5 if position is None or math.isnan(position) else float(position)
        features = featurize(kernel, roofline, multiprocessors, place)
        traffic = kernel.traffic_bytes
        share = UNMEASURED if math.isnan(workspace) else float(workspace) / traffic
        issue_us = UNMEASURED if math.isnan(host) or kernel.backend == "triton" else issue_alone_us(kernel, float(host))
        known = share, issue_us, traffic, key_hash(kernel.key)
        rows[group].append((features, roofline.bound_us(kernel), float(time), shape_group(text), *known))
    tables = {}
    for group, entries in rows.items():
        if len(entries) < least:
            continue
        names = tuple(entries[0][0])
        measured: list[Array] = [np.array([entry[i] for entry in entries], dtype=np.float32) for i in (4, 5)]
        workspaces, hosts = (some if (some != UNMEASURED).any() else none_measured() for some in measured)
        tables[group] = Table(
            names,
            np.array([[entry[0][name] for name in names] for entry in entries], dtype=np.float32),
            np.array([entry[1] for entry in entries]),
            np.array([entry[2] for entry in entries]),
            np.array([entry[3] for entry in entries], dtype=np.int64),
            workspaces,
            hosts,
            np.array([entry[6] for entry in entries], dtype=np.float32),
            np.array([entry[7] for entry in entries], dtype=np.int64),
        )
    return tables


def issue_alone_us(kernel: Kernel, host_us: float) -> float:
    """Host time to launch a kernel without the views that lead to its operands, microseconds."""
    return max(LEAST_HOST_US, host_us - VIEW_US * count_views(kernel.graph))


def shape_group(graph_text: str) -> int:
    """Hash of a graph without batch size, precision and layout: graphs of one group count as the same shape."""
    bare = re.sub(r"(float|bfloat)\d+\[(\d+),?", "[", graph_text)
    bare = re.sub(r" (nhwc|strided)|=\[[\d, ]+\]|input |param ", "", bare)
    return int(hashlib.sha256(bare.encode()).hexdigest()[:12], 16)


def drop(table: Table, names: Collection[str]) -> Table:
    """Table without some features."""
    keep = [index for index, name in enumerate(table.names) if name not in names]
    return replace(table, names=tuple(table.names[i] for i in keep), raw=table.raw[:, keep])
