"""Recall of measured kernels by hashes of their keys."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.predictor.network import Array, Rows

Hashes = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]
Logs = npt.NDArray[np.int16]
"""Logarithms as multiples of LOG_STEP, NOTHING where there is none."""
LOG_STEP = 2.0**-11
"""Resolution of recalled logarithms: a recalled time is at most 0.025 % off, a tenth of the noise of measuring it."""
NOTHING = np.iinfo(np.int16).min
"""Stands for the logarithm of a quantity that was not measured."""
BLOCK_BYTES = 512
"""Unit of the sizes that torch's allocators hand out, CUDA's and the CPU's profiles' alike."""


def key_hash(key: tuple[str, str]) -> int:
    """Hash of a kernel's key: 64 bits, so that two of a million kernels share one with a probability of 3e-8."""
    digest = hashlib.blake2b("\n".join(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def logs_of(values: Sequence[float] | Array | Times) -> Logs:
    """Quantised logarithms; NOTHING for values that are not positive."""
    found = np.asarray(values, dtype=np.float64)
    steps = np.round(np.log(np.where(found > 0, found, 1.0)) / LOG_STEP)
    return np.where(found > 0, np.clip(steps, NOTHING + 1, -NOTHING - 1), NOTHING).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Recall:
    """Measured kernels in ascending order of the hashes of their keys.

    Attributes:
        hashes: hash of each kernel's key, (rows,).
        us: device time, (rows,).
        host_us: host time to launch it, (rows,); empty if never measured.
        blocks: workspace in blocks of BLOCK_BYTES, plus one, so that none has the logarithm 0; likewise.
    """

    hashes: Hashes
    us: Logs
    host_us: Logs
    blocks: Logs

    @staticmethod
    def nothing() -> Recall:
        """Recall of no kernel."""
        none = np.zeros(0, dtype=np.int16)
        return Recall(np.zeros(0, dtype=np.int64), none, none, none)

    @staticmethod
    def of(hashes: Hashes, us: Times, host_us: Array | None = None, workspace_bytes: Array | None = None) -> Recall:
        """Recall of measured kernels; of several with one hash, of the first.

        Args:
            hashes: hash of each kernel's key, (rows,).
            us: device time of each.
            host_us: host time of each, not positive where unknown; None for none.
            workspace_bytes: workspace of each, negative where unknown; None for none.
        """
        ordered, first = np.unique(hashes, return_index=True)
        blocks: Array | None = None
        if workspace_bytes is not None:
            blocks = np.where(workspace_bytes < 0, 0, np.round(workspace_bytes / BLOCK_BYTES) + 1).astype(np.float32)
        return Recall(ordered, logs_of(us[first]), *(_known(some, first) for some in (host_us, blocks)))

    def find(self, keys: Sequence[tuple[str, str]]) -> Rows:
        """Row of each key, -1 where its kernel was not measured."""
        if not len(self.hashes):
            return np.full(len(keys), -1, dtype=np.intp)
        asked = np.array([key_hash(key) for key in keys], dtype=np.int64)
        place = np.minimum(np.searchsorted(self.hashes, asked), len(self.hashes) - 1)
        return np.where(self.hashes[place] == asked, place, -1)

    def us_at(self, row: int) -> float:
        """Device time of a row."""
        return math.exp(float(self.us[row]) * LOG_STEP)

    def host_us_at(self, row: int) -> float | None:
        """Host time of a row; None where it was not measured."""
        return (
            None
            if not len(self.host_us) or self.host_us[row] == NOTHING
            else math.exp(float(self.host_us[row]) * LOG_STEP)
        )

    def workspace_bytes_at(self, row: int) -> int | None:
        """Workspace of a row; None where it was not measured."""
        if not len(self.blocks) or self.blocks[row] == NOTHING:
            return None
        return BLOCK_BYTES * max(0, round(math.exp(float(self.blocks[row]) * LOG_STEP)) - 1)

    def with_more(self, others: Recall) -> Recall:
        """Both; a kernel of both as the others have it."""
        hashes, first = np.unique(np.concatenate([others.hashes, self.hashes]), return_index=True)
        counts = len(others.hashes), len(self.hashes)
        pairs = ((others.us, self.us), (others.host_us, self.host_us), (others.blocks, self.blocks))
        return Recall(hashes, *(_both(pair, counts)[first] if any(map(len, pair)) else pair[0] for pair in pairs))


def _known(values: Array | None, rows: npt.NDArray[np.intp]) -> Logs:
    """Logarithms of some rows; empty if none of them is known."""
    found = np.zeros(0, dtype=np.int16) if values is None or not len(values) else logs_of(values[rows])
    return found if (found != NOTHING).any() else found[:0]


def _both(pair: tuple[Logs, Logs], counts: tuple[int, int]) -> Logs:
    """Logarithms of two recalls one after another, NOTHING for one without."""
    parts = (one if len(one) else np.full(count, NOTHING, np.int16) for one, count in zip(pair, counts, strict=True))
    return np.concatenate(list(parts))
