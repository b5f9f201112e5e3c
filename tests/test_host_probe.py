"""How far two processes are apart, by hand; docs/accuracy.md's table is that of the file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType

import pytest

from costmodel.scores import replace_section
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("host_probe")


def record(model: str, eager_us: list[float], launch_us: list[float], machine: int = 1) -> dict:
    case = {"model": model, "batch_size": 1, "precision": "float32", "layout": "nchw", "machine": machine}
    return case | {"eager_us": eager_us, "launch_us": launch_us, "pass_us": [1.0]}


def test_by_hand(script: ModuleType):
    records = [record("a", [30.0, 20.0], [5.0, 4.0]), record("a", [40.0, 60.0], [10.0, 8.0])]
    records += [record("b", [10.0], [1.0]), record("b", [10.0], [2.0]), record("c", [1.0], [1.0])]
    records += [record("c", [9.0], [1.0], machine=2)]  # no other process there
    raw = script.differences(records, "")
    assert raw == pytest.approx({"pairs": 2, "mean": math.log(2) / 2, "median": math.log(2) / 2})
    over = script.differences(records, "launch_us")  # a: 20 / 4 and 40 / 8; b: 10 and 5
    assert over == pytest.approx({"pairs": 2, "mean": math.log(2) / 2, "median": math.log(2) / 2})
    assert script.differences(records[:2], "launch_us")["mean"] == pytest.approx(0.0)


def test_a_process_that_fails_is_passed_over(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    programs = {
        "good": "print('ready', flush=True); input(); print('{\"model\": \"good\"}')",
        "unknown": "raise SystemExit(2)",
        "late": "print('ready', flush=True); input(); raise SystemExit(1)",
    }

    class Started(script.subprocess.Popen):
        def __init__(self, command: list[str], **pipes: object) -> None:
            super().__init__([command[0], "-c", programs[json.loads(command[-1])["model"]]], **pipes)

    monkeypatch.setattr(script.subprocess, "Popen", Started)
    found = list(script.measured([{"model": name} for name in ("unknown", "good", "late")], "cuda"))
    assert found == [{"model": "good"}]


def test_the_page_has_the_table_of_the_file(script: ModuleType):
    lines = (ROOT / "docs" / "host_probe_h200.jsonl").read_text(encoding="utf-8").splitlines()
    page = ROOT / "docs" / "accuracy.md"
    text = script.table([json.loads(line) for line in lines])
    assert replace_section(page, text, script.BEGIN, script.END) == page.read_text(encoding="utf-8")
