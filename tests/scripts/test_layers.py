"""Errors of single layers: figures derived by hand, and docs/accuracy.md equal to the file."""

import pandas as pd
import pytest

from tests.support.scripts import load_script


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
    # of 8 ms 1 and 0.6 are wrong: 20 %; the median is between 50 and 10 %; 7.6 for 8 ms in total
    assert script.table(pd.DataFrame(rows, columns=columns)).splitlines()[2:] == [
        "| eager layers | 1 | 2 of 4 | -5.0 % | 20.0 % | 30.0 % | 20.0 % (a) |",
        "| regions of the plan | 1 | 0 of 1 | - | - | - | - |",
    ]


def test_cases_in_the_file_are_not_measured_again(script, tmp_path, monkeypatch):
    measured = []

    def measure(model, batch_size, device):
        measured.append((model, batch_size, device))
        about = {"model": model, "batch_size": batch_size, "of": "layers", "name": "x"}
        return pd.DataFrame([{**about, "predicted_us": 1.004, "measured_us": 1.0}])

    monkeypatch.setattr(script, "measure", measure)
    monkeypatch.setattr("sys.argv", ["layers.py", "--device", "cpu", "-o", str(tmp_path / "layers.csv")])
    monkeypatch.setattr(script, "CASES", (("a", 8),))
    script.main()
    monkeypatch.setattr(script, "CASES", (("a", 8), ("b", 1)))
    script.main()
    assert measured == [("a", 8, "cpu"), ("b", 1, "cpu")]
    lines = (tmp_path / "layers.csv").read_text().splitlines()
    assert lines[1:] == ["a,8,layers,x,1.0,1.0", "b,1,layers,x,1.0,1.0"]
