"""Tables of docs/accuracy.md: figures derived by hand."""

from __future__ import annotations

import pandas as pd
from accuracy_tables import (
    ablation_table,
    cause_table,
    compile_table,
    cpu_table,
    kernel_table,
    known_errors,
    machine_table,
    user_table,
)

MODES = ("default", "reduce-overhead")
COLUMNS = {"eager": "eager", "default": "default", "reduce-overhead": "graph"}


def measurement(model: str, family: str, environment: int, uncalibrated: float, calibrated: float) -> dict:
    """A measured speedup of 2 in each mode, predicted with these relative errors; eager takes 200 us."""
    row = {"model": model, "family": family, "environment": environment, "batch_size": 1, "precision": "float32"}
    row |= {"layout": "nchw", "eager_us": 200 * uncalibrated, "probed_eager_us": 200 * calibrated}
    row["measured_eager_us"] = 200.0
    for mode in MODES:
        row |= {f"{COLUMNS[mode]}_us": 100.0, f"probed_{COLUMNS[mode]}_us": 100.0}
        row[f"measured_{COLUMNS[mode]}_us"] = 100.0
        row |= {f"speedup/{mode}": 2 * uncalibrated, f"probed_speedup/{mode}": 2 * calibrated}
        row[f"measured_speedup/{mode}"] = 2.0
    return row


TWO_MACHINES = [
    measurement("a", "f", 0, 1.35, 1.0),
    measurement("a", "f", 3, 1.0, 1.2),
    measurement("a", "f", 3, 1.05, 1.0),
    measurement("b", "g", 3, 1.0, 1.0),
]
SETTINGS = [("float32", 32), ("float32", 8), ("float16", 32)]
VALIDATION = pd.DataFrame(
    [*TWO_MACHINES, *({**TWO_MACHINES[3], "precision": kind, "batch_size": size} for kind, size in SETTINGS)]
)


def test_errors_of_a_user():
    first = user_table(VALIDATION).splitlines()[2]
    # uncalibrated 35, 0, 5, 0 %; calibrated 0, 20, 0, 0 %; each case once: medians of a (0 %) and b (0 %).
    # The baseline of either family is the other's 2.
    assert (
        first == "| `default` | float32, batch 1 | 10.0 %; 75 % | 5.0 %; 75 % | 0.0 %; 100 % | 0.0 % | 4 of 2 cases |"
    )
    assert len(user_table(VALIDATION).splitlines()) == 2 + 8


def test_latencies_by_machine():
    assert machine_table(VALIDATION).splitlines()[2:] == [
        "| 1 | 1 | 35.0 % (0.0 %) | 0.0 % (0.0 %) | 0.0 % (0.0 %) |",
        "| 2 | 3 | 1.7 % (6.7 %) | 0.0 % (0.0 %) | 0.0 % (0.0 %) |",  # 0, 5 and 0 %; 20, 0 and 0 %
    ]


def test_compile_times_beside_their_baselines():
    row = {"cache": "cold", "mode": "default", "cases": 40, "median_error": 0.101, "mean_error": 0.2, "coverage": 0.9}
    row |= {"constant_median_error": 0.4, "by_operators_median_error": 0.5}
    text = compile_table([row])
    assert text.splitlines()[2] == "| cold | `default` | 40 | 10.1 % | 20.0 % | 90 % | 40 % | 50 % |"


THE_OTHER = "| a parameter or buffer (standing for the layers) | 0.078 | - |"


def test_seconds_by_cause():
    costs = {"compile": {"start": 4.4e6, "parameter": 78364.0, "operator": 0.0}, "compile_warm": {"start": 9e5}}
    assert cause_table(costs).splitlines()[2:] == [
        "| the first graph | 4.4 | 0.9 |",
        "| a parameter or buffer (standing for the layers) | 0.078 | - |",
    ]


def test_families_predicted_worst():
    rows = [{**row, "precision": "float16", "batch_size": 32} for row in TWO_MACHINES]
    rows += [{**measurement("c", "h", 3, 1.0, 0.5), "precision": "float16", "batch_size": 32}]
    text = known_errors(pd.DataFrame(rows))
    assert "60 % of 5 measurements" in text  # all but 1.2 and 0.5
    assert text.endswith("(measurements): h -50 % (1).")  # f: 20/3 = 7 %, not named


def test_kernels_beside_baselines():
    ways = ("predictor", "network", "boosting", "neighbour", "roofline", "constant")
    scores = [{"group": "conv", "way": way, "kernels": 1234, "mean_error": 0.1 * n} for n, way in enumerate(ways, 1)]
    assert kernel_table(scores).splitlines()[2] == (
        "| conv | 1,234 | 10.0 % | 20.0 % | 30.0 % | 40.0 % | 50.0 % | 60.0 % |"
    )


def test_cpus():
    errors = {"cases": 7.0, "mean_error": 0.1, "within_10": 0.5, "constant_mean_error": 0.2}
    latency = [{"mode": "eager", "mean_error": 0.3}, {"mode": "default", "mean_error": 0.4}]
    scores = {"models": [{"cases_of": "all", **errors}, {"cases_of": "other"}], "latency": latency}
    card = {"name": "cpu", "units": {"trained_on": 5000}, "scores": scores}
    assert cpu_table([card]).splitlines()[2] == "| `cpu` | 5,000 | 7 | 10.0 % | 50 % | 20.0 % | 30.0 % | 40.0 % |"


def test_ablations_show_what_went_and_what_stays():
    names = [f"speedup_{mode}_{host}" for mode in ("default", "reduce_overhead") for host in ("host_unknown", "probe")]
    columns = ["model", "without", "decision", "largest_loss_of_speedup", *names]
    rows = [
        ("before", "nothing", None, None, 4, 3, 8, 5),
        ("before", "session effects: host", "removed", 0.1, 4, 3, 8, 5),
        ("before", "kept elsewhere", "kept", 0.1, 4, 3, 8, 5),
        ("before", "cold launches", "removed", 0.04, 4.04, 3, 8, 5),
        ("after", "priors", "kept for plans", 1.0, 5, 3, 8, 5),
        ("after", "one of many", "kept as a group", 0.2, 4.2, 3, 8, 5),
    ]
    assert ablation_table(pd.DataFrame(rows, columns=columns)).splitlines()[2:] == [
        "| nothing, before the removals |  |  | 4.00 % (3.00 %) | 8.00 % (5.00 %) |",
        "| cold launches | removed | 0.04 | 4.04 % (3.00 %) | 8.00 % (5.00 %) |",
        "| priors | kept | 1.00 | 5.00 % (3.00 %) | 8.00 % (5.00 %) |",
    ]
