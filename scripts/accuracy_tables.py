"""Tables of docs/accuracy.md, made of a profile's files; scripts/accuracy.py writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markdown_tables import markdown_table, percent

from costmodel.calibration.scores import merge_processes, score

MODES = ("default", "reduce-overhead")
UNCALIBRATED, CALIBRATED = "speedup", "probed_speedup"
"""Columns of `validation.csv`: predicted for the profile's host, and for the host that a probe calibrated."""
LATENCIES = {"eager": "eager", "default": "default", "reduce-overhead": "graph"}
"""Mode -> its name in the columns of `validation.csv`."""
SETTINGS = (("float32", (1,)), ("float32", (32,)), ("float32", (8, 128)), ("float16", (32,)))
"""Precision and batch sizes of the rows of the first table."""
USER_HEAD = ("mode", "cases", "uncalibrated host", "calibrated host", "each case once", "baseline", "measurements")
MACHINE_HEAD = ("machine", "measurements", "`eager`", "`default`", "`reduce-overhead`")
KERNEL_WAYS = {
    "predictor": "predictor",
    "network": "networks alone",
    "boosting": "small boosted trees",
    "neighbour": "nearest neighbour",
    "roofline": "roofline",
    "constant": "constant",
}
"""Way of predicting a kernel in a card's scores -> heading."""
CPU_HEAD = ("profile", "kernels", "cases", "mean error", "within 10 %", "baseline", "latency, `eager`", "`default`")
COMPILE_HEAD = (
    *("cache", "mode", "models", "median error", "mean error", "90 % interval covers"),
    *("baseline: constant", "baseline: seconds an operator"),
)
CAUSE_HEAD = ("cause", "seconds, cold cache", "seconds, warm cache")
CAUSES = {
    "start": "the first graph",
    "further_graph": "a further graph",
    "operator": "an operator",
    "distinct_kernel": "a distinct Triton kernel",
    "fused_operator": "an operator in a distinct Triton kernel",
    "grouped_convolution": "a distinct grouped convolution",
    "parameter": "a parameter or buffer (standing for the layers)",
}
"""Cost of compiling -> its description."""
ABLATION_HEAD = ("without", "decision", "worth", "`default`", "`reduce-overhead`")
GROUPED = "kept as a group"
"""Decision of a mechanism that the table shows by its group only."""
PART_OF = "session effects: "
"""Prefix of mechanisms that the table shows by their sum only."""
NOTABLE = 0.08
"""Mean relative error from which a family is named among the known errors."""


def of_setting(frame: pd.DataFrame, precision: str, batch_sizes: Sequence[int]) -> pd.DataFrame:
    """Rows in one precision, at some batch sizes."""
    return frame[(frame["precision"] == precision) & frame["batch_size"].isin(batch_sizes)]


def user_table(validation: pd.DataFrame) -> str:
    """Errors of predicted speedups by mode and setting, the uncalibrated host first, beside the baseline's."""
    rows = []
    for mode in MODES:
        for precision, batch_sizes in SETTINGS:
            chosen = of_setting(validation, precision, batch_sizes)
            uncalibrated, calibrated = (score(chosen, mode, column) for column in (UNCALIBRATED, CALIBRATED))
            once = score(merge_processes(chosen, mode, CALIBRATED), mode, CALIBRATED)
            setting = f"{precision}, batch {' and '.join(map(str, batch_sizes))}"
            errors = [error_cell(found) for found in (uncalibrated, calibrated, once)]
            baseline = percent(uncalibrated["constant_mean_error"])
            count = f"{uncalibrated['cases']:.0f} of {once['cases']:.0f} cases"
            rows.append([f"`{mode}`", setting, *errors, baseline, count])
    return markdown_table(USER_HEAD, rows)


def error_cell(found: Mapping[str, float]) -> str:
    """Mean error and share of cases within 10 %."""
    return f"{percent(found['mean_error'])}; {percent(found['within_10'], 0)}"


def machine_table(validation: pd.DataFrame) -> str:
    """Errors of predicted latencies at batch 1 by machine: uncalibrated, and in parentheses calibrated."""
    chosen = of_setting(validation, "float32", (1,))
    rows = []
    for number, (_, machine) in enumerate(chosen.groupby("environment"), 1):
        cells = [_latency_cell(machine, column) for column in LATENCIES.values()]
        rows.append([str(number), str(len(machine)), *cells])
    return markdown_table(MACHINE_HEAD, rows)


def _latency_cell(frame: pd.DataFrame, column: str) -> str:
    measured = frame[f"measured_{column}_us"]
    errors = [(frame[f"{way}{column}_us"] / measured - 1).abs().mean() for way in ("", "probed_")]
    return "{} ({})".format(*map(percent, errors))


def kernel_table(scores: Sequence[Mapping[str, Any]]) -> str:
    """Mean errors of predicted device times by group of kernels, beside the baselines'."""
    by_group: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in scores:
        by_group.setdefault(row["group"], {})[row["way"]] = row
    rows = [
        [group, f"{found['network']['kernels']:,}", *(percent(found[way]["mean_error"]) for way in KERNEL_WAYS)]
        for group, found in by_group.items()
    ]
    return markdown_table(("group", "kernels", *KERNEL_WAYS.values()), rows)


def cpu_table(cards: Sequence[Mapping[str, Any]]) -> str:
    """A row a CPU profile: errors of held-out families' speedups and latencies, beside the baseline's."""
    rows = []
    for card in cards:
        (row,) = [row for row in card["scores"]["models"] if row["cases_of"] == "all"]
        latency = {row["mode"]: percent(row["mean_error"]) for row in card["scores"]["latency"]}
        errors = [percent(row["mean_error"]), percent(row["within_10"], 0), percent(row["constant_mean_error"])]
        about = [f"`{card['name']}`", f"{card['units']['trained_on']:,}", f"{row['cases']:.0f}"]
        rows.append([*about, *errors, latency["eager"], latency["default"]])
    return markdown_table(CPU_HEAD, rows)


def compile_table(scores: Sequence[Mapping[str, Any]]) -> str:
    """Errors of predicted compile times by cache and mode, beside the medians of two baselines."""
    rows = []
    for row in scores:
        errors = [percent(row["median_error"]), percent(row["mean_error"]), percent(row["coverage"], 0)]
        baselines = [percent(row[f"{way}_median_error"], 0) for way in ("constant", "by_operators")]
        rows.append([row["cache"], f"`{row['mode']}`", str(row["cases"]), *errors, *baselines])
    return markdown_table(COMPILE_HEAD, rows)


def cause_table(costs: Mapping[str, Mapping[str, float]]) -> str:
    """Fitted seconds of compiling by cause, with a cold and a warm cache; what costs nothing is left out."""
    tables = costs["compile"], costs["compile_warm"]
    known = [name for name in CAUSES if any(table.get(name) for table in tables)]
    rows = [[CAUSES[name], *(_seconds(table.get(name, 0.0)) for table in tables)] for name in known]
    return markdown_table(CAUSE_HEAD, rows)


def _seconds(us: float) -> str:
    return f"{us / 1e6:.2g}" if us else "-"


def ablation_table(ablations: pd.DataFrame) -> str:
    """A row a mechanism: removed or kept, the points of mean error it saves, and errors without it.

    Errors are of an uncalibrated host, and in parentheses of a calibrated one.
    """
    nothing = ablations["without"] == "nothing"
    removed = (ablations["decision"] == "removed") & ~ablations["without"].str.startswith(PART_OF)
    kept = (ablations["model"] == "after") & ~nothing & (ablations["decision"] != GROUPED)
    rows = []
    for row in pd.concat([ablations[chosen] for chosen in (nothing, removed, kept)]).to_dict("records"):
        name = f"nothing, {row['model']} the removals" if row["without"] == "nothing" else row["without"]
        decision = "removed" if row["decision"] == "removed" else "kept"
        worth = [decision, f"{row['largest_loss_of_speedup']:.2f}"] if row["without"] != "nothing" else ["", ""]
        errors = [
            f"{row[f'speedup_{mode}_host_unknown']:.2f} % ({row[f'speedup_{mode}_probe']:.2f} %)"
            for mode in ("default", "reduce_overhead")
        ]
        rows.append([name, *worth, *errors])
    return markdown_table(ABLATION_HEAD, rows)


def known_errors(validation: pd.DataFrame) -> str:
    """A list item on `reduce-overhead` in float16, which names the families predicted worst."""
    mode = "reduce-overhead"
    chosen = of_setting(validation, "float16", (32,)).dropna(subset=[f"measured_speedup/{mode}"])
    error = chosen[f"{CALIBRATED}/{mode}"] / chosen[f"measured_speedup/{mode}"] - 1
    families = error.groupby(chosen["family"]).agg(["mean", "count"]).sort_values("mean", key=abs, ascending=False)
    notable = families[families["mean"].abs() >= NOTABLE]
    named = [f"{row.Index} {100 * row.mean:+.0f} % ({row.count})" for row in notable.itertuples()]
    within = percent((error.abs() <= 0.1).mean(), 0)
    return (
        f"- **float16, `{mode}`, batch 32**, calibrated host: {within} of {len(error)} measurements are within 10 %.\n"
        f"  Families with the largest mean errors (measurements): {', '.join(named)}."
    )
