"""README's table of results is that of the files, and its figures are what the files say, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from markdown_tables import replace_section

from costmodel.profiles.profile import load_profile
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("results")


def test_readme_shows_what_the_files_say(script: ModuleType):
    readme = ROOT / "README.md"
    text = script.table(load_profile("nvidia-h200").card)
    assert replace_section(readme, text, script.BEGIN, script.END) == readme.read_text(encoding="utf-8")


def test_figures_by_hand(script: ModuleType, tmp_path: Path):
    error = {"mean_error": 0.05, "within_10": 0.876, "constant_mean_error": 0.25}
    models = [{"mode": mode, "cases_of": "float32, batch 1 and 32", "cases": 7.0, **error} for mode in script.MODES]
    card = {"scores": {"models": models, "coverage": {"default": 0.9, "reduce-overhead": 0.854}}}
    header = "model,family," + ",".join(f"{kind}_speedup/{mode}" for mode in script.MODES for kind in KINDS)
    (tmp_path / "unseen_h200.csv").write_text(f"{header}\na,a,1.1,1,3,2\nb,b,2,2,,\n")
    modes = {"eager": {"measured_ms": 4.0}, "default": {"measured_ms": 2.0}, "plan": {"measured_ms": 1.0}}
    records = [{"case": ["a", 1, "float32"], "modes": modes}]
    records.append({"case": ["b", 1, "float32"], "modes": {**modes, "plan": {"measured_ms": 0.25}}})
    for name in ("compared", "others"):
        (tmp_path / f"{name}_h200.jsonl").write_text("\n".join(map(json.dumps, records)))
    rows = [memory_row("inference", 90), memory_row("inference", 103), memory_row("training", 108)]
    (tmp_path / "memory_h200.json").write_text(json.dumps({"rows": rows}))
    cost = {"runs": 3, "seconds": {"ratio": 1.25}, "peak_mib": {"ratio": 1.126}}
    (tmp_path / "predict_cost.json").write_text(json.dumps(cost))
    (tmp_path / "sweep_h200.json").write_text(json.dumps({"ratio": 5.55, "sample": {"units": 4000}}))
    figures = [line.split(" | ")[1:] for line in script.table(card, tmp_path).splitlines()[2:]]
    assert figures[:4] == [
        ["5.0 % mean error, 88 % within 10 %; a constant: 25.0 %", "7 |"],
        ["5.0 % mean error, 88 % within 10 %; a constant: 25.0 %", "7 |"],
        ["5.0 % mean error, 50 % within 10 %; a constant: 75.0 %", "2 |"],  # each other's: 2 for 1, 1 for 2
        ["50.0 % mean error, 0 % within 10 %; a constant: 50.0 %", "1 |"],  # no other family: 1 for 2
    ]
    assert figures[4:] == [
        ["90 % and 85 %", "7 |"],
        ["4.00 times as fast (geometric mean), at least 2.00", "2 |"],  # 2 / 1 and 2 / 0.25
        ["4.00 times as fast (geometric mean), at least 2.00", "2 |"],
        ["within 10.0 % and within 8.0 %", "3 |"],
        ["1.25 times the time and 1.13 times the memory of importing torch and torchvision", "3 runs |"],
        ["5.5 times the units a minute of a loop with torch.compile and `do_bench`", "4,000 units |"],
    ]


KINDS = ("probed", "measured")


def memory_row(kind: str, predicted: int) -> dict[str, object]:
    sizes = {"unseen_bytes": predicted, "measured_bytes": 100, "state_bytes": 1, "allowance_bytes": 0}
    return {"model": "a", "kind": kind, "predicted_bytes": predicted, **sizes}
