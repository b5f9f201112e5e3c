"""Tables of measurements: rows become columns, files keep what they are about, damage is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.errors import DatasetError
from costmodel.training.dataset import COLUMNS, kernel_of, read_frame, units_frame, write_frame

RELU = "graph _ {\n  input %a0: float32[8]\n  %0 = relu(self=%a0) : float32[8]\n  return %0\n}"
ROWS = [
    {"key": "k1", "graph": RELU, "runner": "aten", "status": "ok", "device_us": [1, 2, 3, 4, 5], "host_us": [9] * 5},
    {"key": "k2", "graph": RELU, "runner": "aten", "status": "oom", "error": "not a column"},
]


def test_quantiles_become_columns_and_what_was_not_measured_is_missing():
    frame = units_frame(ROWS)
    assert tuple(frame.columns) == tuple(COLUMNS)
    assert frame.loc[0, ["device_us_p10", "device_us_p50", "device_us_p90", "host_us_p25"]].tolist() == [1, 3, 5, 9]
    assert frame.loc[1, [name for name in COLUMNS if "_us_" in name]].isna().all()
    assert frame["device_us_p50"].dtype == "float32"


@pytest.mark.parametrize("values", [[1, 2], 5, ["a", 1, 1, 1, 1], {"p50": 1}, [True, 1, 1, 1, 1]])
def test_damaged_quantiles_are_refused_by_the_case(values: object):
    with pytest.raises(DatasetError, match=r"the device_us of the case .* is damaged"):
        units_frame([{**ROWS[0], "device_us": values}])


def test_a_table_without_what_every_one_has_is_refused(tmp_path: Path):
    write_frame(units_frame(ROWS).drop(columns="device_us_p50"), tmp_path / "a.parquet", {})
    with pytest.raises(DatasetError, match="not a dataset: it has no column device_us_p50"):
        read_frame(tmp_path / "a.parquet")
    write_frame(units_frame(ROWS), tmp_path / "b.parquet", [])
    with pytest.raises(DatasetError, match="not a dataset: it does not record what it was measured on"):
        read_frame(tmp_path / "b.parquet")


def test_a_file_keeps_the_table_and_what_it_is_about(tmp_path: Path):
    path = tmp_path / "units.parquet"
    frame = units_frame(ROWS)
    write_frame(frame, path, {"environment": {"device": "Ärm"}})
    again, about = read_frame(path)
    assert again.equals(frame)
    assert about == {"environment": {"device": "Ärm"}}
    assert [item.name for item in tmp_path.iterdir()] == ["units.parquet"]


@pytest.mark.parametrize("data", [None, b"", b"PAR1", b"no table" * 40])
def test_what_is_no_dataset_is_refused_in_one_line(tmp_path: Path, data: bytes | None):
    path = tmp_path / "units.parquet"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DatasetError, match="not a dataset") as caught:
        read_frame(path)
    assert "\n" not in str(caught.value)


def test_a_row_names_its_kernel():
    assert kernel_of(RELU, "aten").backend == "aten"
    assert kernel_of(RELU, "inductor").backend == "triton"
    assert str(kernel_of(RELU, "aten").graph) == RELU


def test_a_row_of_attention_is_the_kernel_that_a_model_calls():
    row = """graph _ {
  input %a0: float32[1,2,4,8]
  param %p0: float32[4,4]
  %0 = scaled_dot_product_attention(query=%a0, key=%a0, value=%a0, attn_mask=%p0) : float32[1,2,4,8] strided
  return %0
}"""
    assert str(kernel_of(row, "aten").graph) == row.replace("param %p0", "input %a1").replace("%p0", "%a1")


def test_a_damaged_graph_is_refused():
    with pytest.raises(DatasetError, match="a row's graph is damaged"):
        kernel_of("graph _ {", "aten")
