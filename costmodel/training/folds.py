"""Folds of training rows: the rows that each set of networks may learn from, so that one training serves every score.

The networks of a fold see no shape that it tests, no kernel of a model that it tests, and no row of that model's
family. So the fold's rows and models are held out. The networks of all folds together are the final predictor's, as in
cross-conformal prediction (Vovk, "Cross-conformal predictors", 2015).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.training.families import FOLDS, fold_of

Rows = npt.NDArray[np.bool_]
NO_FAMILIES = ("conv", "matmul", "vision")
"""Workloads that come from no model; their rows are assigned to folds by shape."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Key of a training row's kernel, and family of the model that it comes from."""

    key: tuple[str, str]
    family: str


@dataclass(frozen=True, slots=True)
class Folds:
    """Fold that tests each row, (rows,), and rows that each fold may learn from, (folds, rows)."""

    tests: npt.NDArray[np.int64]
    learns: npt.NDArray[np.bool_]

    def __iter__(self) -> Iterator[tuple[Rows, Rows]]:
        """Rows to learn from and rows to test of each fold that has both."""
        for fold, learns in enumerate(self.learns):
            tested = self.tests == fold
            if tested.any() and learns.any():
                yield learns, tested


def by_shape(shape: npt.NDArray[np.int64], count: int = FOLDS) -> Folds:
    """Folds that share no shape.

    Args:
        shape: shape group of each row, (rows,).
        count: number of folds.
    """
    tests = shape % count
    return Folds(tests, tests != np.arange(count)[:, None])


def by_family(
    shape: npt.NDArray[np.int64],
    origins: Sequence[Origin],
    banned: Mapping[int, Collection[tuple[str, str]]],
) -> Folds:
    """Folds that share no shape and hold out models with their families.

    A shape is tested in the fold of the first family that it comes from; a shape without a family in any.

    Args:
        shape: shape group of each row, (rows,).
        origins: origin of each row.
        banned: keys of the kernels of the models that each fold tests.
    """
    named = np.array([-1 if one.family in NO_FAMILIES else fold_of(one.family) for one in origins])
    first: dict[int, int] = {}
    for group, fold in zip(shape.tolist(), named.tolist(), strict=True):
        if fold >= 0:
            first.setdefault(group, fold)
    tests = np.array([first.get(group, group % FOLDS) for group in shape.tolist()])
    learns = np.ones((FOLDS, len(shape)), dtype=bool)
    for fold in range(FOLDS):
        keys = banned.get(fold, ())
        learns[fold] = (tests != fold) & (named != fold) & np.array([one.key not in keys for one in origins])
    return Folds(tests, learns)
