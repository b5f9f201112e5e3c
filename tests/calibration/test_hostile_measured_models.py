"""Measured models with hostile values: refused in one line, or every time is possible."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from costmodel.calibration.models_file import read_measured
from costmodel.errors import DatasetError
from tests.support.hostile_json import SETTINGS, mutated, refused_or

MEASURED = {
    "model": "alexnet",
    "batch_size": 1,
    "precision": "float32",
    "layout": "nchw",
    "environment": 0,
    "session": "a",
    "probe_us": 6.0,
    "default_host_us": [5.0] * 5,
    "default_error": 1e-6,
    "disturbed": [],
    "latency_us": {"eager/default": [[20.0] * 5] * 2, "default": [[10.0] * 5] * 2},
}


@SETTINGS
@given(text=mutated(MEASURED))
def test_a_measured_model_with_a_hostile_value_is_refused_or_has_possible_times(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = tmp_path_factory.getbasetemp() / "models.jsonl"
    path.write_text('{"schema": 1}\n' + text)
    found = refused_or(lambda: read_measured(path), DatasetError)
    for case in () if found is None else found[0]:
        assert all(0 < us < math.inf for us in case.medians.values())
        assert 0 < case.host_speed < math.inf
