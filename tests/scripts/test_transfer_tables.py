"""Tables of transferred profiles: figures derived by hand."""

from __future__ import annotations

import pandas as pd
from transfer_tables import curve_table, kernel_table


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
