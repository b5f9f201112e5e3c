"""Speedups from tidy rows: one way of running a case over another."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from study.table import values


def paired(frame: pd.DataFrame, quantity: str, cases: Sequence[str], by: str, base: str, other: str) -> pd.DataFrame:
    """Cases that have a value in two ways, with the speedup of the second over the first.

    Args:
        frame: tidy rows.
        quantity: quantity to compare.
        cases: columns that identify a case.
        by: column of the way.
        base: way to compare with.
        other: way that is compared.

    Returns:
        Columns of `cases`, `base`, `other`, and `speedup`: the base's value over the other's.
    """
    rows = values(frame, quantity)
    sides = [rows[rows[by] == way][[*cases, "value"]] for way in (base, other)]
    both = sides[0].merge(sides[1], on=list(cases), suffixes=("_base", "_other"))
    both = both.rename(columns={"value_base": "base", "value_other": "other"})
    return both.assign(speedup=both["base"] / both["other"])
