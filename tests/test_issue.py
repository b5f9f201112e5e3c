"""Host times for a dataset without: filled in where they are missing, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.issue import COLUMNS, fill, main, slowness
from costmodel.dataset import read_frame, units_frame, write_frame

GRAPH = "graph _ {{\n  input %a0: float32[{0}]\n  %0 = {1} : float32[{0}]\n  return %0\n}}"


def row(key: str, size: int, call: str = "relu(self=%a0)", **more: object) -> dict[str, object]:
    text = GRAPH.format(size, call)
    return {"key": key, "graph": text, "runner": "aten", "status": "ok", "device_us": [1] * 5, "host_us": None, **more}


def dataset(tmp_path: Path) -> Path:
    rows = [
        row("lacks", 8),
        row("knows", 16, host_us=[9] * 5),
        row("compiled", 8, runner="inductor"),
        row("noisy", 32, status="noisy"),
        row("fails", 64, "view(self=%a0, size=[65])"),
    ]
    path = tmp_path / "units.parquet"
    write_frame(units_frame(rows), path, {"cases": len(rows)})
    return path


def test_what_lacks_a_host_time_gets_one(tmp_path: Path):
    path = dataset(tmp_path)
    assert fill(path, path, "cpu", 60.0) == (2, 3)
    frame, about = read_frame(path)
    times = frame.set_index("key")[COLUMNS]
    assert (times.loc["lacks"] > 0).all()
    assert times.loc["lacks"].is_monotonic_increasing
    assert times.loc["knows"].tolist() == [9] * 5
    assert times.loc[["compiled", "noisy", "fails"]].isna().all(axis=None)
    assert about == {"cases": 5}
    assert fill(path, path, "cpu", 60.0) == (2, 3)  # nothing is left that can be measured


def test_recurrent_kernels_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "units.parquet"
    names = ("lstm.input(input=%a0)", "gru.input(input=%a0)", "relu(self=%a0)")
    write_frame(units_frame([row(call, 8, call) for call in names]), path, {})
    monkeypatch.setattr("collectors.issue.issue_quantiles", lambda _text, _device: [1.0] * 5)
    assert fill(path, path, "cpu", 60.0) == (1, 1)
    assert read_frame(path)[0].set_index("key")[COLUMNS[0]].notna().to_dict() == {
        name: name.startswith("relu") for name in names
    }


def test_a_slower_host_is_told_by_kernels_that_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    known = [row(f"knows {size}", size, host_us=[10] * 5) for size in range(100, 125)]
    path = tmp_path / "units.parquet"
    write_frame(units_frame([row("lacks", 8), *known]), path, {})
    monkeypatch.setattr("collectors.issue.issue_quantiles", lambda _text, _device: [15.0, 18.0, 20.0, 22.0, 30.0])
    assert fill(path, path, "cpu", 60.0) == (26, 26)
    times = read_frame(path)[0].set_index("key")[COLUMNS]
    assert times.loc["lacks"].tolist() == [7.5, 9.0, 10.0, 11.0, 15.0]  # the host is twice as slow as it was
    assert (times.drop("lacks") == 10).all(axis=None)


def test_a_few_kernels_do_not_tell_how_slow_a_host_is():
    before, now = ({str(number): us for number in range(count)} for us, count in ((10.0, 30), (25.0, 20)))
    assert slowness(before, now) == 2.5
    now.popitem()
    assert slowness(before, now) == 1.0


def test_without_time_nothing_is_lost(tmp_path: Path):
    path = dataset(tmp_path)
    assert fill(path, path, "cpu", 0.0) == (1, 3)
    assert read_frame(path)[0].set_index("key").loc["knows", COLUMNS].tolist() == [9] * 5


def test_a_file_that_is_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "bad.parquet").write_text("no")
    monkeypatch.setattr("sys.argv", ["issue", str(tmp_path / "bad.parquet"), "-o", str(tmp_path / "out.parquet")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "bad.parquet" in capsys.readouterr().err
