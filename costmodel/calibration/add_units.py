"""Measured units added to a trained profile without training all of it again.

Groups of rare operators and of training steps, and groups that the profile lacks, such as matmuls in TF32, are trained
anew if kernels are added to them, which takes minutes. In the other groups the added kernels become measured kernels:
they are recalled, and correct predictions near them; networks, trees and what is fitted to whole models stay.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from costmodel.calibration.evaluation import table_origins
from costmodel.calibration.make_profile import score_groups, unit_counts, write_card
from costmodel.calibration.whole_models import Say
from costmodel.errors import DatasetError
from costmodel.features import GROUPS, OPTIONAL, RARE_GROUPS, TRAINING_GROUPS, group_of
from costmodel.ir.op_table_training import TRAINING_NAMES
from costmodel.ir.operators import TABLE
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.group_model import UNMEASURED, GroupModel, none_measured
from costmodel.predictor.neighbours import in_steps
from costmodel.predictor.network import Array, scaled
from costmodel.predictor.predictor import Predictor
from costmodel.predictor.recall import Recall
from costmodel.profiles.card import CARD
from costmodel.profiles.predictor_file import load_predictor, save_predictor
from costmodel.profiles.profile import PREDICTOR
from costmodel.training.cross_fit import cross_fit
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.folds import by_family
from costmodel.training.kernel_models import TrainingSettings
from costmodel.training.tables import Table, drop, tabulate, trusted
from costmodel.training.transfer import RATIO

RETRAINED = (*RARE_GROUPS, *TRAINING_GROUPS)
"""Groups that are trained anew."""
MOST_NETWORKS = 3
"""Networks of each of these groups, of hundreds or a few thousand kernels: eight would be a quarter of the file."""
_RARE_NAMES = "|".join(
    sorted({name for name, row in TABLE.items() if row.rare} | TRAINING_NAMES | {"cudnn_batch_norm"})
)
_MAY_BE_RARE = re.compile(
    rf"= (?:{_RARE_NAMES})[.(]|transposed=True|complex64|stride=\[\d+, \d+, \d+\]"
    r"|\[\d+,1,\d\d+,\d+\]|\[\d+,1,\d+,\d\d+\]"
)
"""Text of a graph that may be of a retrained group: an operator's name, or a convolution that is unusual."""


def add_units(
    directory: Path, added: Collection[str], settings: TrainingSettings, say: Say, jobs: int = 2
) -> dict[str, Any]:
    """Add rows of a profile's `units.parquet` to its predictor, and write the predictor and the summary again.

    Args:
        directory: directory of the profile.
        added: keys of the rows that are new since the profile was trained.
        settings: training settings of the groups that are trained.
        say: receives lines about the progress.
        jobs: processes.

    Returns:
        The summary.

    Raises:
        DatasetError: none of the rows can be trained on.
        ProfileError: the profile is damaged or of another version.
    """
    frame, _ = read_frame(directory / "units.parquet")
    kept = trusted(frame)
    new = kept["key"].isin(list(added))
    if not new.any():
        raise DatasetError(f"{directory / 'units.parquet'}: none of the added units was measured without fault")
    card = json.loads((directory / CARD).read_text(encoding="utf-8"))
    predictor = load_predictor(directory / PREDICTOR, card["predictor_sha256"])
    chosen = kept[new | kept["graph"].str.contains(_MAY_BE_RARE)].reset_index(drop=True)
    kernels = [kernel_of(graph, runner) for graph, runner in zip(chosen["graph"], chosen["runner"], strict=True)]
    with_new = {group_of(kernel) for kernel, key in zip(kernels, chosen["key"], strict=True) if key in added}
    wanted = {group for group in with_new if _is_trained(group, predictor)}
    settings = replace(settings, ensemble=min(settings.ensemble, MOST_NETWORKS))
    trained, scores = _trained(predictor, chosen, kernels, wanted, settings, say, jobs)
    others = _remembering(predictor, chosen, kernels, added, say)
    changed = replace(predictor, groups={**predictor.groups, **others, **trained})
    card["predictor_sha256"] = save_predictor(changed, directory / PREDICTOR)
    card["units"] = unit_counts(frame, kept) | _by_ratio(kept)
    if trained:
        card["training"]["rare"] = {key: value for key, value in asdict(settings).items() if key != "most_cases"}
        card["scores"]["kernels"] = [row for row in card["scores"]["kernels"] if row["group"] not in trained] + scores
    write_card(directory / CARD, card)
    return card  # type: ignore[no-any-return]


def _trained(
    predictor: Predictor,
    rows: pd.DataFrame,
    kernels: list[Kernel],
    wanted: Collection[str],
    settings: TrainingSettings,
    say: Say,
    jobs: int,
) -> tuple[Mapping[str, GroupModel], list[dict[str, Any]]]:
    """Models of some groups, and their scores."""
    places = [index for index, kernel in enumerate(kernels) if group_of(kernel) in wanted]
    some, of = rows.iloc[places].reset_index(drop=True), [kernels[index] for index in places]
    everything = tabulate(of, some, predictor.roofline, predictor.multiprocessors)
    tables = {group: drop(table, OPTIONAL) for group, table in everything.items()}
    say(
        ", ".join(f"{group}: {len(table.time_us)} kernels" for group, table in tables.items())
        or "no kernels to train on"
    )
    origins = table_origins(of, some["source"].tolist())
    folds = {group: by_family(table.shape, origins[group], {}) for group, table in tables.items()}
    fit = cross_fit(tables, folds, predictor.roofline, predictor.multiprocessors, settings, jobs)
    return fit.predictor.groups, score_groups(tables, folds, fit, say, jobs)


def _is_trained(group: str, predictor: Predictor) -> bool:
    return group in RETRAINED or (group in GROUPS and group not in predictor.groups)


def _remembering(
    predictor: Predictor, rows: pd.DataFrame, kernels: list[Kernel], added: Collection[str], say: Say
) -> Mapping[str, GroupModel]:
    """Models of the other groups with the added kernels among the measured ones."""
    common = [group for group in GROUPS if group in predictor.groups and group not in RETRAINED]
    is_added = rows["key"].isin(list(added))
    places = [index for index, kernel in enumerate(kernels) if is_added[index] and group_of(kernel) in common]
    some, of = rows.iloc[places].reset_index(drop=True), [kernels[index] for index in places]
    tables = tabulate(of, some, predictor.roofline, predictor.multiprocessors, least=1)
    say(", ".join(f"{group}: {len(table.time_us)} remembered" for group, table in tables.items()))
    return {group: remembering(predictor.groups[group], table) for group, table in tables.items()}


def remembering(model: GroupModel, table: Table) -> GroupModel:
    """A model with further measured kernels, of whose host times it keeps its own predictions."""
    columns = [table.names.index(name) for name in model.names]
    x = scaled(table.raw[:, columns], model.mean, model.scale)
    recall = Recall.of(table.hashes, table.time_us, model.host_us(x), table.workspace_bytes)
    workspace = table.workspace if len(table.workspace) else np.full(len(x), UNMEASURED)
    return replace(
        model,
        recall=model.recall.with_more(recall),
        sample=np.concatenate([model.sample, in_steps(x)]),
        residual=np.concatenate([model.residual, table.target - model.expected(x)]),
        workspace=_joined(model.workspace, workspace),
    )


def _joined(known: Array, more: Array) -> Array:
    """Values of the sample with those of further kernels; none where the model has none."""
    return np.concatenate([known, more]).astype(np.float32) if len(known) else none_measured()


def _by_ratio(kept: pd.DataFrame) -> dict[str, Any]:
    """Number of rows that were transferred from another device."""
    count = Counter(kept["way"] == RATIO)[True]
    return {"by_ratio": count} if count else {}
