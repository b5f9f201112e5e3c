"""Cross-fitting: networks and trees by fold, their out-of-fold predictions, and the final predictor.

Every network is trained once. The networks and trees of a fold predict the rows and models that the fold tests. The
final predictor consists of the first network of each fold, trees grown on all rows, and all measured kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed

from costmodel.features import Roofline
from costmodel.predictor.group_model import GroupModel, none_measured
from costmodel.predictor.network import Array, scaled
from costmodel.predictor.predictor import Predictor
from costmodel.training.folds import Folds
from costmodel.training.kernel_models import TrainingSettings, assemble, moments, train_networks
from costmodel.training.tables import Table


@dataclass(frozen=True, slots=True)
class CrossFit:
    """Results of cross-fitting.

    Attributes:
        predictor: final predictor.
        by_fold: predictor of each fold, which has seen nothing that the fold tests.
        out_of_fold: out-of-fold predictions of the target by group, (rows,).
        networks_alone: out-of-fold predictions by the networks alone.
    """

    predictor: Predictor
    by_fold: Mapping[int, Predictor]
    out_of_fold: Mapping[str, Array]
    networks_alone: Mapping[str, Array]


def cross_fit(
    tables: Mapping[str, Table],
    folds: Mapping[str, Folds],
    roofline: Roofline,
    multiprocessors: int,
    settings: TrainingSettings,
    jobs: int,
) -> CrossFit:
    """Train the networks and grow the trees of every group and fold, `jobs` at once.

    Features are scaled by the moments of all rows, which contain no times.

    Args:
        tables: training rows by group.
        folds: folds of each table.
        roofline: ceilings of the device.
        multiprocessors: multiprocessors of the device.
        settings: training settings.
        jobs: processes.
    """
    scales = {group: moments(table) for group, table in tables.items()}
    tasks = [(group, fold) for group, of in folds.items() for fold, learns in enumerate(of.learns) if learns.any()]
    tasks.sort(key=lambda task: -len(tables[task[0]].time_us))  # longest first, to balance the processes
    done = Parallel(n_jobs=jobs)(
        delayed(_fit_fold)(tables[group], folds[group], fold, *scales[group], settings) for group, fold in tasks
    )
    by_fold: dict[int, dict[str, GroupModel]] = {}
    out_of_fold, alone = (
        {group: np.zeros(len(table.time_us), dtype=np.float32) for group, table in tables.items()} for _ in range(2)
    )
    for (group, fold), (model, *found) in sorted(zip(tasks, done, strict=True), key=lambda item: item[0]):
        by_fold.setdefault(fold, {})[group] = model
        for kept, prediction in zip((out_of_fold, alone), found, strict=True):
            kept[group][folds[group].tests == fold] = prediction
    pooled = {}
    for group, table in tables.items():
        networks = tuple(by_fold[fold][group].networks[0] for fold in sorted(by_fold) if group in by_fold[fold])
        pooled[group] = assemble(table, *scales[group], networks, settings, out_of_fold[group])
    predictors = {fold: Predictor(groups, roofline, multiprocessors) for fold, groups in by_fold.items()}
    return CrossFit(Predictor(pooled, roofline, multiprocessors), predictors, out_of_fold, alone)


def _fit_fold(
    table: Table, folds: Folds, fold: int, mean: Array, scale: Array, settings: TrainingSettings
) -> tuple[GroupModel, Array, Array]:
    """Model of one group and fold, and predictions of the tested rows by it and by its networks alone."""
    learnt = table.take(folds.learns[fold])
    model = assemble(learnt, mean, scale, train_networks(learnt, mean, scale, settings), settings)
    tested = scaled(table.raw[folds.tests == fold], mean, scale)
    if not len(tested):
        return model, none_measured(), none_measured()
    return model, model.log_ratio(tested)[0], replace(model, trees=None).expected(tested)
