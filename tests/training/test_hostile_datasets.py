"""Datasets of other types or with impossible times are refused in one line."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from costmodel.errors import DatasetError
from costmodel.training.dataset import read_frame, units_frame, write_frame

ROW = {
    "key": "k",
    "graph": "graph",
    "runner": "aten",
    "status": "ok",
    "device_us": [1, 2, 3, 4, 5],
    "unit": "",
    "way": "",
}


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("device_us_p50", pa.array([-1.0]), "its column device_us_p50 holds -1 to -1, not 0 to 1e+15"),
        ("device_us_p50", pa.array([math.inf]), "its column device_us_p50 holds inf to inf"),
        ("device_us_p50", pa.array([0.0]), "a row of status ok has no positive device_us_p50"),
        ("device_us_p50", pa.array([math.nan]), "a row of status ok has no positive device_us_p50"),
        ("device_us_p50", pa.array([None], pa.float32()), "a row of status ok has no positive device_us_p50"),
        ("device_us_p50", pa.array(["fast"]), "its column device_us_p50 is string, not numbers"),
        ("device_us_p50", pa.array([[1.0]]), "its column device_us_p50 is list"),
        ("device_us_p50", pa.array([True]), "its column device_us_p50 is bool, not numbers"),
        ("host_us_p10", pa.array([-1e-3]), "its column host_us_p10 holds -0.001 to -0.001"),
        ("position", pa.array([1.5]), "its column position holds 1.5 to 1.5, not 0 to 1"),
        ("copies", pa.array([-4]), "its column copies holds -4 to -4"),
        ("graph", pa.array([b"\xff"]), "its column graph is binary, not text"),
        ("status", pa.array([1]), "its column status is int64, not text"),
        ("runner", pa.array(["aten"]).dictionary_encode(), "its column runner is dictionary"),
    ],
)
def test_a_dataset_of_other_types_or_with_impossible_times_is_refused(
    tmp_path: Path, column: str, values: pa.Array, said: str
):
    path = tmp_path / "units.parquet"
    write_frame(units_frame([ROW]), path, {})
    assert len(read_frame(path)[0]) == 1
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(column), column, values), path)
    with pytest.raises(DatasetError, match=re.escape(f"{path}: not a dataset: {said}")):
        read_frame(path)
