"""Table of plans beside an expert's settings: ratios and means by hand, files gathered and replaced."""

from __future__ import annotations

from pathlib import Path

import expert_tables as script
import pytest


def row(model: str, setting: str, ms: str, batch: str = "1", note: str = "", plans: str = "") -> dict[str, str]:
    return dict.fromkeys(script.COLUMNS, "") | {
        "model": model,
        "batch_size": batch,
        "precision": "float32",
        "setting": setting,
        "median_ms": ms,
        "note": note,
        "plans": plans,
    }


ROWS = [
    row("a", "eager", "8"),
    row("a", "freezing, tuned", "4"),
    row("a", "default", "", note="TimeoutError: not built within the limit"),
    row("a", "plan", "2"),
    row("a", "backend", "8"),
    row("b", "freezing, tuned", "1", plans="earlier"),
    row("b", "plan", "2", plans="earlier"),
    row("c", "plan", "2"),  # nothing to compare with
    row("e", "default", "9"),  # no CUDA graph but the plan's
    row("e", "plan", "2"),
    row("d", "eager", "2", note="TimeoutError"),  # no plan
]


def test_the_text_by_hand():
    """4 / 2 = 2 and 1 / 2 = 0.5, whose geometric mean is 1; the backend 4 / 8."""
    text = script.markdown(ROWS, "NVIDIA H200")
    assert "2 cases on an NVIDIA H200: plans 1.00 times as fast" in text
    assert "least 0.50, b in float32 at batch 1" in text
    assert "the backend 0.50 times (1 cases)" in text
    assert "*freezing, tuned* 2." in text
    assert "Not built within the limit, or failed: *default* 1." in text
    assert "In 1 cases, marked *, the plan is that of an earlier version; without them the mean is\n2.00." in text
    lines = text.splitlines()
    assert lines[-3:] == [
        "| a | 2.00 (0.50) | - | - | - |",
        "| b | 0.50* | - | - | - |",
        "| *geometric mean* | 1.00 | - | - | - |",
    ]


def test_files_of_cases_are_gathered_and_later_ones_count(tmp_path: Path):
    case = tmp_path / "timm-resnet-d-32-float16.csv"
    case.write_text("setting,median_ms,note\neager,2.0,\nplan,1.0,\n")
    (tmp_path / "failed-1-float32.csv").write_text("setting,median_ms,note\neager,,too late\n")
    found = script.read_directory(tmp_path, script.EARLIER)
    assert [(one["model"], one["batch_size"], one["precision"], one["setting"]) for one in found] == [
        ("timm:resnet-d", "32", "float16", "eager"),
        ("timm:resnet-d", "32", "float16", "plan"),
    ]
    case.write_text('setting,median_ms,note\n"freezing, tuned",3.0,\nplan,1.0,\n')
    both = script.add(found, script.read_directory(tmp_path))
    assert [(one["median_ms"], one["plans"]) for one in both] == [("3.0", ""), ("1.0", "")]
    table = tmp_path / "all.table"
    script.write_rows(table, both)
    assert script.times_of(script.read_rows(table)) == {
        ("timm:resnet-d", "32", "float16"): {"freezing, tuned": 3.0, "plan": 1.0}
    }


def test_the_command_adds_and_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    directory = tmp_path / "expert"
    directory.mkdir()
    (directory / "a-1-float32.csv").write_text('setting,median_ms,note\n"freezing, tuned",3.0,\nplan,1.0,\n')
    (directory / "environment.json").write_text('{"device": "NVIDIA H200"}')
    table = str(tmp_path / "all.csv")
    for more in (["--add", str(directory)], []):
        monkeypatch.setattr("sys.argv", ["x", table, *more])
        script.main()
    assert "| a | 3.00 | - | - | - |" in capsys.readouterr().out


def test_guards_are_shown_where_all_three_ways_were_measured():
    rows = [*ROWS, row("a", "backend, unguarded", "3.14159"), row("b", "backend, unguarded", "1")]
    assert script.guards_markdown(rows).splitlines()[2:] == ["| a | 1 | float32 | 2.00 | 3.14 | 8.00 |"]
    assert "unguarded" not in script.markdown(rows, "NVIDIA H200")
