"""The table of single layers: sums and errors by hand, and that docs/accuracy.md has the file's."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    return load_script("layers")


def test_only_layers_that_are_predicted_and_measured_count(script):
    columns = ["model", "batch_size", "of", "name", "predicted_us", "measured_us"]
    rows = [
        ("a", 8, "layers", "x", 1000.0, 2000.0),  # half
        ("a", 8, "layers", "y", 6600.0, 6000.0),  # a tenth more
        ("a", 8, "layers", "z", 500.0, None),
        ("a", 8, "layers", "w", None, 500.0),
        ("a", 8, "regions", "x", 100.0, None),
    ]
    # of 8 ms 1 and 0.6 are wrong: 20 %; the median is between 50 and 10 %
    assert script.table(pd.DataFrame(rows, columns=columns)).splitlines()[2:] == [
        "| a | 8 | eager layers | 4 | 2 | 7.60 ms | 8.00 ms | 20.0% | 30.0% |",
        "| a | 8 | regions of the plan | 1 | 0 | - | - | - | - |",
    ]


def test_what_the_file_has_is_not_measured_again(script, tmp_path, monkeypatch):
    measured = []

    def measure(model, batch_size, device):
        measured.append((model, batch_size, device))
        about = {"model": model, "batch_size": batch_size, "of": "layers", "name": "x"}
        return pd.DataFrame([{**about, "predicted_us": 1.004, "measured_us": 1.0}])

    monkeypatch.setattr(script, "measure", measure)
    monkeypatch.setattr("sys.argv", ["layer_accuracy.py", "--device", "cpu", "-o", str(tmp_path / "layers.csv")])
    monkeypatch.setattr(script, "CASES", (("a", 8),))
    script.main()
    monkeypatch.setattr(script, "CASES", (("a", 8), ("b", 1)))
    script.main()
    assert measured == [("a", 8, "cpu"), ("b", 1, "cpu")]
    lines = (tmp_path / "layers.csv").read_text().splitlines()
    assert lines[1:] == ["a,8,layers,x,1.0,1.0", "b,1,layers,x,1.0,1.0"]


def test_the_page_has_the_table_of_the_file(script):
    rows = pd.read_csv(ROOT / "docs" / "data" / "layers_h200.csv")
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert f"{script.BEGIN}\n{script.table(rows)}\n{script.END}" in page
