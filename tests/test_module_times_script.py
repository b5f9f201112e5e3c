"""Host times by class of module: a model counts once, hosts are of one speed, and long passes are told from short."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.scripts import load_script

script = load_script("module_times")
USUAL_US = 6.5


def rows(model: str, us: float, others_us: float, probe_us: float = USUAL_US) -> list[dict[str, object]]:
    """A model of two ReLUs and something else."""
    common = {"model": model, "process": 1, "probe_us": probe_us}
    relu = [{**common, "module": f"act{index}", "class": "ReLU", "own_us": us} for index in range(2)]
    return [*relu, {**common, "module": "", "class": "Whole", "own_us": others_us}]


def test_hosts_of_other_speeds_and_lengths_of_passes():
    models = [("a", 1.0, 10.0, 1), ("b", 2.0, 100.0, 1), ("c", 6.0, 1000.0, 2)]  # the last on a host half as fast
    frame = pd.DataFrame([row for name, us, rest, slow in models for row in rows(name, us, rest, slow * USUAL_US)])
    found = script.by_class(frame, USUAL_US).set_index("class").loc["ReLU"]
    assert (found["models"], found["calls"]) == (3, 6)
    assert found["host_us"] == pytest.approx(2.0)
    assert found["short_us"] == pytest.approx(1.0)
    assert found["long_us"] == pytest.approx(3.0)


def test_a_class_that_few_models_call_is_not_shown():
    frame = pd.DataFrame([row for index in range(10) for row in rows(f"m{index}", 2.0, 9.0)])
    frame.loc[frame["model"] == "m0", "class"] = "Rare"
    assert "`ReLU`" not in script.table(frame, USUAL_US)
    frame["class"] = frame["class"].replace("Rare", "ReLU")
    assert "| `ReLU` | 10 |" in script.table(frame, USUAL_US)


def test_rows_are_made_of_the_records_that_tell_of_modules(tmp_path: Path):
    told = {"model": "a", "process": 2, "probe_us": 7.0, "modules_us": {"": ["Net", 3.0], "act": ["ReLU", 1.5]}}
    (tmp_path / "models.jsonl").write_text(f'{json.dumps(told)}\n{{"model": "b"}}\n')
    found = script.gather(tmp_path / "models.jsonl").to_numpy().tolist()
    assert found == [["a", 2, 7.0, "", "Net", 3.0], ["a", 2, 7.0, "act", "ReLU", 1.5]]
