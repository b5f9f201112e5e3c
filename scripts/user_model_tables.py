"""Tables of docs/accuracy.md on models as users bring them; scripts/compare_user_models.py writes them."""

from __future__ import annotations

import pandas as pd
from markdown_tables import markdown_table, percent

SUMMARY_HEAD = ("", "models, cases", "verdict decided", "of these right", "leaning right", "speedup in", "latency in")
CASE_HEAD = ("model", "batch", "mode", "graphs", "measured", "predicted", "90 % interval", "verdict", "")
QUANTITIES = {"eager": "measured_eager_us", "mode": "measured_us", "speedup": "measured_speedup"}
"""Predicted quantity -> column of its measurement."""


def covered(frame: pd.DataFrame, quantity: str) -> pd.Series[bool]:
    """Whether each measurement lies in the predicted interval, for rows that have both.

    Args:
        frame: rows of scripts/compare_user_models.py.
        quantity: a key of QUANTITIES.
    """
    low, high = (f"{quantity}_{end}{'' if quantity == 'speedup' else '_us'}" for end in ("low", "high"))
    known = frame.dropna(subset=[low, high])
    return known[QUANTITIES[quantity]].between(known[low], known[high])


def sets(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Sets of user models: the reporting half first, those without and with graph breaks apart."""
    user = frame[frame["half"] != "library"]
    one, reporting = user["one_graph"], user["half"] == "reporting"
    return {
        "reporting half, one graph": user[reporting & one],
        "reporting half, graph breaks": user[reporting & ~one],
        "reporting half": user[reporting],
        "all user models, one graph": user[one],
        "all user models": user,
        "torchvision and timm, same machine": frame[frame["half"] == "library"],
    }


def summary_table(frame: pd.DataFrame) -> str:
    """A row a set of models: verdicts, and the share of measurements inside the intervals without `--host`."""
    return markdown_table(SUMMARY_HEAD, [[name, *_summary(rows)] for name, rows in sets(frame).items() if len(rows)])


def _summary(rows: pd.DataFrame) -> list[str]:
    cases = rows.drop_duplicates(["model", "batch_size"])
    decided = cases[cases["verdict"].isin(["compile", "leave"])]
    best = rows.groupby(["model", "batch_size"])["measured_speedup"].max() > 1.0
    lean = cases[cases["leaning"].isin(["compile", "leave"])].set_index(["model", "batch_size"])["leaning"]
    leaning = (lean == "compile") == best.reindex(lean.index)
    speedup = covered(rows, "speedup")
    latency = pd.concat([covered(rows, "mode"), covered(rows.drop_duplicates(["model", "batch_size"]), "eager")])
    return [
        f"{rows['model'].nunique()} models, {len(cases)}",
        f"{len(decided)}: {percent(len(decided) / len(cases), 0)}",
        _share(decided["right"].astype(bool)),
        _share(leaning),
        _share(speedup),
        _share(latency),
    ]


def _share(hits: pd.Series[bool]) -> str:
    return f"{percent(hits.mean(), 0)} of {len(hits)}" if len(hits) else "-"


def case_table(frame: pd.DataFrame) -> str:
    """A row a user model, batch size and mode: speedups, verdict, and whether it was right."""
    rows = []
    for row in frame[frame["half"] != "library"].sort_values(["model", "batch_size", "mode"]).to_dict("records"):
        known = not pd.isna(row["speedup"])
        interval = f"{row['speedup_low']:.2f}-{row['speedup_high']:.2f}" if known else ""
        verdict = "" if pd.isna(row["verdict"]) else str(row["verdict"])
        mark = {True: "right", False: "wrong"}.get(row["right"], "")
        about = [row["model"], str(row["batch_size"]), f"`{row['mode']}`", f"{row['graphs']:.0f}"]
        predicted = f"{row['speedup']:.2f}" if known else "-"
        rows.append([*about, f"{row['measured_speedup']:.2f}", predicted, interval, verdict, mark])
    return markdown_table(CASE_HEAD, rows)
