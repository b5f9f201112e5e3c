"""Tables of transferred profiles: figures derived by hand."""

from __future__ import annotations

import pandas as pd
from transfer_tables import curve_table, held_out_table, kernel_table, model_table


def score(group: str, way: str, error: float) -> dict:
    return {"group": group, "way": way, "kernels": 1_200, "mean_error": error}


def test_a_row_a_group_of_kernels_without_those_that_the_base_has_from_the_same_device():
    ways = {"predictor": 0.05, "base": 0.1, "base scaled": 0.08, "without neighbours": 0.9}
    scores = [score(group, way, error) for group in ("conv", "rare_conv") for way, error in ways.items()]
    *_, row = kernel_table(scores).splitlines()
    assert row == "| conv | 1,200 | 5.0 % | 10.0 % | 8.0 % |"
    assert "rare_conv" not in kernel_table(scores)


def test_a_row_a_kind_of_kernels_with_a_column_a_time():
    common = {"group": "conv", "tested": 198, "base alone": 0.04}
    curve = pd.DataFrame(
        [
            common | {"kernels": "known", "minutes": 2, "learnt": 844, "base scaled": 0.07, "transferred": 0.035},
            common | {"kernels": "known", "minutes": 8, "learnt": 4014, "base scaled": 0.06, "transferred": 0.03},
        ]
    )
    head, _, row = curve_table(curve).splitlines()
    assert head.endswith("| 2 minutes | 8 minutes |")
    assert row == "| conv | known | 4,014 | 198 | 4.0 % | 6.0 % | 3.5 % | 3.0 % |"


def test_from_nothing_is_a_column_if_it_was_trained():
    point = {"group": "conv", "kernels": "known", "minutes": 2, "learnt": 844, "tested": 198}
    errors = {"base alone": 0.04, "base scaled": 0.06, "from nothing": 0.4, "transferred": 0.03}
    points = pd.DataFrame([point | errors, point | errors | {"group": "rare_conv"}])
    head, _, row = curve_table(points).splitlines()
    assert "| base scaled | from nothing | 2 minutes |" in head
    assert row.endswith("| 6.0 % | 40.0 % | 3.0 % |")


def test_a_row_a_mode_and_batch_size_of_families_held_out():
    errors = {"mode": "default", "cases": 8.0, "mean_error": 0.05, "median_error": 0.04, "constant_mean_error": 0.1}
    sets = ("float32, batch 1 and 32", "float32, batch 32", "timeline alone: float32, batch 32")
    _, _, *rows = held_out_table([errors | {"cases_of": name} for name in sets]).splitlines()
    assert rows == ["| `default` | 32 | 8 | 5.0 % | 4.0 % | 10.0 % |"]


def test_a_row_a_mode_with_errors_of_models_that_are_one_graph():
    case = {"batch_size": 8, "mode": "default", "one_graph": True, "measured_us": 10.0, "measured_speedup": 2.0}
    judged = pd.DataFrame(
        [
            case | {"host": host, "predicted_speedup": speedup, "low_us": low, "high_us": 12.0}
            for host, speedup, low in (
                ("uncalibrated", 2.0, 8.0),
                ("uncalibrated", 2.2, 8.0),
                ("uncalibrated", 3.2, 11.0),
                ("calibrated", 2.0, 8.0),
                ("calibrated", 2.0, 8.0),
                ("calibrated", 2.0, 11.0),
            )
        ]
        + [case | {"host": "calibrated", "one_graph": False, "predicted_speedup": 9.0, "low_us": 9.0, "high_us": 9.5}]
    )
    *_, row = model_table(judged).splitlines()
    assert row == "| `default` | above 1 | 3 | 23.3 %, 10.0 % | 0.0 %, 0.0 % | 67 % | 67 % |"
