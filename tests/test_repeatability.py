"""How far processes differ, by hand; docs/accuracy.md's table is that of the file."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from costmodel.measured import Measured, read_measured
from costmodel.scores import replace_section
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("repeatability")


def measured(model: str, eager_us: float, compiled_us: float, machine: int = 0) -> Measured:
    medians = {"eager_us/default": eager_us, "default_us": compiled_us}
    return Measured(model, 1, "float32", "nchw", medians, {"environment": machine})


def test_by_hand(script: ModuleType):
    again = [measured("a", 100.0, 50.0), measured("a", 100.0, 40.0), measured("b", 90.0, 30.0), measured("c", 1.0, 1.0)]
    again += [measured("c", 2.0, 2.0)]
    rows = [("a", 1.8, 2.7), ("b", 3.0, 3.0), ("c", None, 5.0)]
    validation = pd.DataFrame(rows, columns=["model", "measured_speedup/default", "speedup/default"])
    validation = validation.assign(batch_size=1, precision="float32", layout="nchw")
    found = script.compare(again, validation, "default")
    assert found == pytest.approx(  # only a was measured in several processes, and before: 2 and 2.5, the median 2.25
        {
            "cases": 1,
            "processes": 2,
            "two processes": 0.22314,
            "two processes, median": 0.22314,
            "measured once before": 0.2,
            "predicted": 0.2,
        },
        rel=1e-4,
    )


def test_machines_are_not_compared_with_one_another(script: ModuleType):
    again = [measured("a", 100.0, 50.0), measured("a", 100.0, 40.0, machine=1), measured("a", 100.0, 20.0, machine=1)]
    validation = pd.DataFrame([("a", 2.0, 2.0)], columns=["model", "measured_speedup/default", "speedup/default"])
    validation = validation.assign(batch_size=1, precision="float32", layout="nchw")
    found = script.compare(again, validation, "default")
    assert found["two processes"] == pytest.approx(0.69315, rel=1e-4)  # ln(5 / 2.5): the pair of machine 1
    assert found["predicted"] == pytest.approx(0.2)  # 2 for the median of 2, 2.5 and 5


def test_the_page_has_the_table_of_the_file(script: ModuleType):
    again, _ = read_measured(ROOT / "docs" / "again_h200.jsonl", slow=True)
    text = script.table(again, pd.read_csv(ROOT / "trained_models" / "nvidia-h200" / "validation.csv"))
    page = ROOT / "docs" / "accuracy.md"
    assert replace_section(page, text, script.BEGIN, script.END) == page.read_text(encoding="utf-8")


def test_processes_by_hand(script: ModuleType):
    def process(eager_us: float, number: int, speed: float = 1.0) -> Measured:
        return Measured("a", 1, "float32", "nchw", {"eager_us": eager_us}, {"process": number}, speed)

    cases = [process(100.0, 1), process(200.0, 2, 0.5), process(110.0, 3), measured("a", 1.0, 1.0)]
    # as measured ln 2, ln 1.1 and ln (2 / 1.1); at equal speed ln 1, ln 1.1 and ln 1.1
    assert script.process_table(cases).splitlines()[2:] == [
        "| as measured | 1 | 3 | 46.2% | 59.8% |",
        "| over a reference pass | 1 | 3 | 6.4% | 9.5% |",
    ]


def test_the_page_has_the_table_of_processes(script: ModuleType):
    cases, _ = read_measured(ROOT / "trained_models" / "nvidia-h200" / "models.jsonl", slow=True)
    page = ROOT / "docs" / "accuracy.md"
    text = script.process_table(cases)
    assert replace_section(page, text, script.ALONE_BEGIN, script.ALONE_END) == page.read_text(encoding="utf-8")
