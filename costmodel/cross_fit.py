"""Networks by fold, and what they give: predictions of what was left out, predictors by fold, and the predictor itself.

Every network is trained once. Those of one fold predict the rows and the whole models that the fold tests; the
first of each fold together, with every measured kernel remembered, are the predictor that ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from costmodel.features import Roofline
from costmodel.folds import Folds
from costmodel.predictor import Array, GroupModel, Predictor, scaled
from costmodel.train import Settings, Table, assemble, moments, train_networks


@dataclass(frozen=True, slots=True)
class CrossFit:
    """What cross-fitting gives.

    Attributes:
        predictor: of all networks and all rows.
        by_fold: the predictor of each fold, which has seen nothing that the fold tests.
        out_of_fold: predictions of the target by group, each row's by the networks that did not see it; (rows,).
    """

    predictor: Predictor
    by_fold: Mapping[int, Predictor]
    out_of_fold: Mapping[str, Array]


def cross_fit(
    tables: Mapping[str, Table],
    folds: Mapping[str, Folds],
    roofline: Roofline,
    multiprocessors: int,
    settings: Settings,
    jobs: int,
) -> CrossFit:
    """Trains the networks of every group and fold, `jobs` at once.

    Features are scaled alike in all folds, by all rows; that tells the networks of a fold nothing about times.

    Args:
        tables: training rows by group.
        folds: of each table.
        roofline: of the device.
        multiprocessors: of the device.
        settings: of the networks.
        jobs: processes.
    """
    scales = {group: moments(table) for group, table in tables.items()}
    tasks = [(group, fold) for group, of in folds.items() for fold, learns in enumerate(of.learns) if learns.any()]
    tasks.sort(key=lambda task: -len(tables[task[0]].time_us))  # the longest first, so that all end together
    done = Parallel(n_jobs=jobs)(
        delayed(_fit_fold)(tables[group], folds[group], fold, *scales[group], settings) for group, fold in tasks
    )
    by_fold: dict[int, dict[str, GroupModel]] = {}
    out_of_fold = {group: np.zeros(len(table.time_us), dtype=np.float32) for group, table in tables.items()}
    for (group, fold), (model, prediction) in sorted(zip(tasks, done, strict=True), key=lambda item: item[0]):
        by_fold.setdefault(fold, {})[group] = model
        out_of_fold[group][folds[group].tests == fold] = prediction
    pooled = {}
    for group, table in tables.items():
        networks = tuple(by_fold[fold][group].networks[0] for fold in sorted(by_fold) if group in by_fold[fold])
        pooled[group] = assemble(table, *scales[group], networks, settings, out_of_fold[group])
    predictors = {fold: Predictor(groups, roofline, multiprocessors) for fold, groups in by_fold.items()}
    return CrossFit(Predictor(pooled, roofline, multiprocessors), predictors, out_of_fold)


def _fit_fold(
    table: Table, folds: Folds, fold: int, mean: Array, scale: Array, settings: Settings
) -> tuple[GroupModel, Array]:
    """The predictor of one group and fold, and what it says of the rows that the fold tests."""
    learnt = table.take(folds.learns[fold])
    model = assemble(learnt, mean, scale, train_networks(learnt, mean, scale, settings), settings)
    tested = scaled(table.raw[folds.tests == fold], mean, scale)
    return model, model.log_ratio(tested)[0] if len(tested) else np.zeros(0, dtype=np.float32)
