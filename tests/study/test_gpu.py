"""First points of every experiment on a GPU, compiled for real."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from study.catalog import EXPERIMENTS
from study.experiment import Experiment, Setup
from study.running import measured

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    # torch's own
    pytest.mark.filterwarnings("ignore:.*TensorFloat32 tensor cores for float32:UserWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning"),
]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_the_first_points_are_measured(experiment: Experiment, tmp_path: Path):
    for point in islice(experiment.run(Setup("cuda", True, tmp_path)), 2):
        rows = measured(point)
        assert rows
        assert not [row["note"] for row in rows if str(row.get("note", "")).startswith("skipped")]
