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
from costmodel.predictor import Array, GroupModel, Network, Predictor, scaled
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
    trained = Parallel(n_jobs=jobs)(
        delayed(train_networks)(tables[group].take(folds[group].learns[fold]), *scales[group], settings)
        for group, fold in tasks
    )
    networks: dict[str, dict[int, tuple[Network, ...]]] = {group: {} for group in tables}
    for (group, fold), found in zip(tasks, trained, strict=True):
        networks[group][fold] = found
    by_fold: dict[int, dict[str, GroupModel]] = {}
    pooled, out_of_fold = {}, {}
    for group, table in tables.items():
        scale = scales[group]
        prediction = np.zeros(len(table.time_us), dtype=np.float32)
        for fold, found in sorted(networks[group].items()):
            model = assemble(table.take(folds[group].learns[fold]), *scale, found, settings)
            by_fold.setdefault(fold, {})[group] = model
            tested = folds[group].tests == fold
            if tested.any():
                prediction[tested] = model.log_ratio(scaled(table.raw[tested], *scale))[0]
        together = tuple(found[0] for _, found in sorted(networks[group].items()))
        pooled[group] = assemble(table, *scale, together, settings, prediction)
        out_of_fold[group] = prediction
    predictors = {fold: Predictor(groups, roofline, multiprocessors) for fold, groups in by_fold.items()}
    return CrossFit(Predictor(pooled, roofline, multiprocessors), predictors, out_of_fold)
