"""Table of refreshed profiles: figures derived by hand."""

from __future__ import annotations

import pandas as pd
from refreshed import refresh_table, release, rows_of


def card(changed: dict[str, list[str]], kernels: int = 30) -> dict:
    errors = {"predictor": 0.2, "base": 0.4, "base scaled": 0.25, "without neighbours": 0.9}
    scores = [{"group": "conv", "way": way, "kernels": kernels, "mean_error": e} for way, e in errors.items()]
    return {"environment": {"torch": "2.14.1+cpu"}, "base": {"changed": changed}, "scores": {"kernels": scores}}


def test_a_row_a_pair_of_releases():
    newer, same = rows_of(card({"torch": ["2.13.0+cpu", "2.14.1+cpu"]})), rows_of(card({"driver": ["1", "2"]}))
    _, _, *rows = refresh_table(pd.concat([newer, same])).splitlines()
    assert rows == [
        "| 2.14.1, 2.13.0 before | conv | 30 | 40.0 % | 25.0 % | 20.0 % |",
        "| 2.14.1, as before | conv | 30 | 40.0 % | 25.0 % | 20.0 % |",
    ]


def test_small_groups_are_left_out():
    assert len(refresh_table(rows_of(card({}, kernels=24))).splitlines()) == 2


def test_a_build_is_no_release():
    assert release("2.13.0+cpu") == release("2.13.0") == "2.13.0"
