"""Host times of two ways of measuring, brought to one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collectors.align import Line, align_hosts, main
from collectors.merge import merge_units
from costmodel.dataset import QUANTILES, read_frame, units_frame, write_frame
from costmodel.errors import DatasetError
from costmodel.hardware import shipped_directory
from costmodel.scores import replace_section
from tests.scripts import load_script

KINDS = ("relu", "sigmoid", "exp", "abs", "neg", "sqrt", "tanh")
COUNT = 6
FIRST = len(KINDS) * COUNT
HERE = {"device": "NVIDIA H200"}
ROOT = Path(__file__).parent.parent


def rows(start: int, host_us_of):
    """COUNT kernels of each kind, by a size from `start` on, and the host time of the kind's number."""
    for number, kind in enumerate(KINDS):
        for size in range(start, start + COUNT):
            graph = (
                f"graph _ {{\n  input %a: float32[{size}]\n  %0 = {kind}(self=%a) : float32[{size}]\n  return %0\n}}"
            )
            host_us = [host_us_of(number) * (1 + 0.1 * place) for place in range(5)]
            yield {"key": f"{kind}{size}", "unit": "", "graph": graph, "runner": "aten", "status": "ok"} | {
                "device_us": [2.0] * 5,
                "host_us": host_us,
            }


@pytest.fixture
def measured():
    """A dataset and some of it measured again: now = 1 + 2 x early and now = -3 + 1.5 x late."""
    early, late = list(rows(1, lambda number: 4.0 + number)), list(rows(100, lambda number: 10.0 + number))
    frame = units_frame([*early, *late])
    again = frame.copy()
    again["host_us_p25"] = [*(1 + 2 * frame["host_us_p25"][:FIRST]), *(-3 + 1.5 * frame["host_us_p25"][FIRST:])]
    return frame, again


def test_the_first_rows_become_what_the_others_would_have_told(measured):
    frame, again = measured
    aligned, line = align_hosts(frame, again, FIRST)
    assert (line.offset, line.slope) == (pytest.approx(4 / 1.5, rel=1e-5), pytest.approx(2 / 1.5, rel=1e-5))
    for quantile in QUANTILES:
        name = f"host_us_{quantile}"
        assert np.allclose(aligned[name][:FIRST], (4 + 2 * frame[name][:FIRST]) / 1.5, rtol=1e-5)
        assert (aligned[name][FIRST:] == frame[name][FIRST:]).all()
    assert (aligned["device_us_p50"] == 2.0).all()
    assert list(aligned) == list(frame)


def test_it_is_done_once_and_merging_does_not_forget_it(measured, tmp_path, monkeypatch, capsys):
    units, again = tmp_path / "units.parquet", tmp_path / "again.parquet"
    for frame, path in zip(measured, (units, again), strict=True):
        write_frame(frame, path, {"environment": HERE})
    monkeypatch.setattr("sys.argv", ["align", str(units), str(again), "--rows", str(FIRST), "-o", str(units)])
    main()
    assert capsys.readouterr().out == "42 rows: +2.67 us, times 1.333\n"
    merge_units([units, again], units)
    assert read_frame(units)[1]["aligned"]["rows"] == FIRST
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "its host times are aligned already" in capsys.readouterr().err


def test_the_table_tells_what_was_told_before(measured):
    # aligned 8 where 10 is measured again, and before 2 x 8 - 10 = 6; the others 5 where 4 is
    frame, again = measured
    frame["host_us_p25"] = [8.0] * FIRST + [5.0] * FIRST
    again["host_us_p25"] = [10.0] * FIRST + [4.0] * FIRST
    lines = load_script("host_alignment").table(frame, again, FIRST, Line(5.0, 0.5)).splitlines()
    assert lines[2:] == ["| the first 42 | 42 | 40.0 % | 20.0 % |", "| the others | 42 | -25.0 % | -25.0 % |"]


def test_the_documents_table_is_that_of_the_files():
    script = load_script("host_alignment")
    frame, about = read_frame(shipped_directory() / "nvidia-h200" / "units.parquet")
    aligned = about["aligned"]
    again = read_frame(ROOT / "docs" / "host_times_again_h200.parquet")[0]
    text = script.table(frame, again, aligned["rows"], Line(aligned["offset"], aligned["slope"]))
    page = ROOT / "docs" / "collecting.md"
    assert page.read_text(encoding="utf-8") == replace_section(page, text, script.BEGIN, script.END)


def test_a_part_of_which_little_was_measured_again_tells_no_line():
    frame = units_frame(rows(1, lambda number: 4.0 + number))
    with pytest.raises(
        DatasetError, match="0 kinds of kernels were measured again; 5 are needed on either side of row 42"
    ):
        align_hosts(frame, frame, FIRST)


def test_a_line_back_along_itself_leads_nowhere():
    line = Line(3.0, 1.25)
    assert line.then_back(line) == Line(0.0, 1.0)
