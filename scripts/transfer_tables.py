"""Tables of a profile that was learnt as the difference to another device's: kernels, whole models, learning curve.

python scripts/transfer_tables.py --write docs/accuracy.md
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent, print_or_write

from costmodel.profiles.profile import load_profile

HARDWARE = "nvidia-h100"
DATA = Path(__file__).parent.parent / "docs" / "data"
HOSTS = ("uncalibrated", "calibrated")
WAYS = {"predictor": "transferred", "base": "base alone", "base scaled": "base scaled"}
"""Way of predicting a kernel in a card's scores -> heading."""
HELD_OUT = {"float32, batch 1": "1", "float32, batch 32": "32"}
"""Sets of cases in a card's scores -> batch size."""
IN_BASE = "rare_"
"""Prefix of the groups that the base of `nvidia-h100` has from this same H100: errors there are no scores."""


def kernel_table(scores: Sequence[Mapping[str, Any]]) -> str:
    """A row a group of kernels: mean relative errors by way, of the groups that the base measured on its own device."""
    groups = dict.fromkeys(score["group"] for score in scores if not score["group"].startswith(IN_BASE))
    errors = {(score["group"], score["way"]): score for score in scores}
    rows = [
        [
            group,
            f"{errors[group, 'predictor']['kernels']:,}",
            *(percent(errors[group, way]["mean_error"]) for way in WAYS),
        ]
        for group in groups
    ]
    return markdown_table(("group", "kernels", *WAYS.values()), rows)


def model_table(judged: pd.DataFrame) -> str:
    """A row a mode and kind of batch size: mean and median error of speedup, and share of latencies in their intervals.

    Args:
        judged: a row a case, mode and host, made by scripts/judge_device.py; models with graph breaks are left out.
    """
    whole = judged[judged["one_graph"]]
    whole = whole.assign(
        error=(whole["predicted_speedup"] / whole["measured_speedup"] - 1).abs(),
        inside=whole["measured_us"].between(whole["low_us"], whole["high_us"]),
        batch=whole["batch_size"].map(lambda size: "1" if size == 1 else "above 1"),
    )
    rows = []
    for (mode, batch), part in whole.groupby(["mode", "batch"]):
        by_host = [part[part["host"] == host] for host in HOSTS]
        errors = [f"{percent(one['error'].mean())}, {percent(one['error'].median())}" for one in by_host]
        shares = [percent(one["inside"].mean(), 0) for one in by_host]
        rows.append([f"`{mode}`", str(batch), str(len(by_host[0])), *errors, *shares])
    head = ("mode", "batch", "cases", *(f"speedup, {host}" for host in HOSTS), *(f"inside, {host}" for host in HOSTS))
    return markdown_table(head, rows)


def held_out_table(scores: Sequence[Mapping[str, Any]]) -> str:
    """A row a mode and batch size: mean errors of speedup for families held out, and of a constant."""
    rows = [
        [
            f"`{score['mode']}`",
            batch,
            f"{score['cases']:.0f}",
            percent(score["mean_error"]),
            percent(score["median_error"]),
            percent(score["constant_mean_error"]),
        ]
        for score in scores
        if (batch := HELD_OUT.get(score["cases_of"]))
    ]
    return markdown_table(("mode", "batch", "cases", "mean error", "median error", "constant"), rows)


def curve_table(curve: pd.DataFrame) -> str:
    """A row a group and kind of kernels: mean relative errors of the base, from nothing, and transferred by minutes.

    Args:
        curve: a row a group, kind and number of minutes, made by scripts/transfer_curve.py.
    """
    curve = curve[~curve["group"].str.startswith(IN_BASE)]
    times = sorted(curve["minutes"].unique())
    others = [way for way in ("base alone", "base scaled", "from nothing") if way in curve]
    columns = ["group", "kernels", "learnt", "tested", *others]
    columns += [f"{minutes:g} minutes" for minutes in times]
    rows = []
    for (group, kind), points in curve.groupby(["group", "kernels"], sort=False):
        by_time = points.set_index("minutes")
        last = by_time.loc[times[-1]]
        errors = [*last[others], *(by_time.loc[time, "transferred"] for time in times)]
        rows.append([str(group), str(kind), f"{last['learnt']:,}", f"{last['tested']:,}", *map(percent, errors)])
    return markdown_table(columns, rows)


def main() -> None:
    """Print the tables, or write them into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put each table between its marks in this document")
    args = parser.parse_args()
    scores = load_profile(HARDWARE).card["scores"]
    texts = {
        "transferred kernels": kernel_table(scores["kernels"]),
        "held-out models": held_out_table(scores["models"]),
        "transferred models": model_table(pd.read_csv(DATA / "judged_h100.csv")),
        "learning curve": curve_table(pd.read_csv(DATA / "transfer_h100.csv")),
        "five minutes": model_table(pd.read_csv(DATA / "judged_h100_5m.csv")),
    }
    print_or_write(texts, "scripts/transfer_tables.py", args.write)


if __name__ == "__main__":
    main()
