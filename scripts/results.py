"""README's table of results: one row a claim, with its condition, its figure, the baseline and the number of cases.

python scripts/results.py --write README.md
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import pandas as pd
from accuracy_tables import CALIBRATED, MODES, UNCALIBRATED, of_setting
from expert_tables import gains, read_rows, times_of
from markdown_tables import markdown_table, percent, replace_section
from memory_rows import Row
from plan_tables import gain, latest
from user_model_tables import sets

from costmodel.calibration.scores import merge_processes, score
from costmodel.profiles.profile import load_profile

DATA = Path(__file__).parent.parent / "docs" / "data"
BEGIN, END = "<!-- results: made by scripts/results.py -->", "<!-- end of results -->"
HOSTS = {"uncalibrated": UNCALIBRATED, "calibrated": CALIBRATED}
HEAD = ("on an NVIDIA H200", "result", "baseline", "cases")


def table(profile: Path, data: Path = DATA) -> str:
    """Table of results.

    Args:
        profile: directory with `validation.csv`.
        data: directory of the other measurements.
    """
    validation = pd.read_csv(profile / "validation.csv")
    held_out, later = _held_out(validation), _measured_later(data)
    as_users_get = [_hosts(data), *_user_models(data), *held_out["uncalibrated"], *later["uncalibrated"]]
    rows = [*as_users_get, *held_out["calibrated"], *later["calibrated"], *_plans(data)]
    return markdown_table(HEAD, [*rows, *_compile_times(data), *_costs(data)])


def _hosts(data: Path) -> list[str]:
    """Intervals without `--host`: the least and largest share by quantity, mode and batch size."""
    found = pd.read_csv(data / "hosts_h200.csv")
    found = found[found["batch_size"].isin((1, 32))]
    shares = found.groupby(["quantity", "mode", "batch_size"])["inside"].mean()
    condition = "90 % intervals of latency and speedup, uncalibrated host unseen in training, batch 1 and 32"
    result = f"hold {percent(shares.min(), 0)} to {percent(shares.max(), 0)}"
    cases = found[found["quantity"] == "latency"]["cases"].sum()
    return [condition, result, "-", f"{cases} latencies on {found['machine'].nunique()} machines"]


def _user_models(data: Path) -> list[list[str]]:
    """Verdicts on models as users write them, those not looked at before; the baseline is always to compile."""
    frame = pd.read_csv(data / "user_models_h200.csv")
    rows = []
    names = {"reporting half, one graph": "the half unseen in development", "all user models, one graph": "all of them"}
    for name, words in names.items():
        chosen = sets(frame)[name]
        cases = chosen.drop_duplicates(["model", "batch_size"])
        decided = cases[cases["verdict"].isin(["compile", "leave"])]
        gains = chosen.groupby(["model", "batch_size"])["measured_speedup"].max() > 1.0
        right = percent(decided["right"].astype(bool).mean(), 0)
        condition = f"verdict on models as users write them ({words}), one graph, uncalibrated host, float32"
        result = f"{percent(len(decided) / len(cases), 0)} decided, {right} of them right"
        rows.append([condition, result, f"always `compile`: {percent(gains.mean(), 0)} right", str(len(cases))])
    return rows


def _held_out(validation: pd.DataFrame) -> dict[str, list[list[str]]]:
    """Held-out families, by host."""
    chosen = of_setting(validation, "float32", (1, 32))
    rows: dict[str, list[list[str]]] = {}
    for host, column in HOSTS.items():
        for mode in MODES:
            condition = f"speedup of `{mode}`, held-out families, {host} host, float32, batch 1 and 32"
            rows.setdefault(host, []).append([condition, *_errors(score(chosen, mode, column), "measurements")])
    for mode in MODES:
        condition = f"the same of `{mode}`, calibrated host, median over the measurements of a case"
        found = score(merge_processes(chosen, mode, CALIBRATED), mode, CALIBRATED)
        rows["calibrated"].append([condition, *_errors(found)])
    return rows


def _measured_later(data: Path) -> dict[str, list[list[str]]]:
    """Models measured after the profile was made, by host."""
    frame = pd.read_csv(data / "unseen_h200.csv")
    rows: dict[str, list[list[str]]] = {}
    for host, column in HOSTS.items():
        for mode in MODES:
            condition = (
                f"speedup of `{mode}`, {frame['model'].nunique()} models measured later, {host} host, batch 1 to 128"
            )
            rows.setdefault(host, []).append([condition, *_errors(score(frame, mode, column))])
    return rows


def _errors(found: dict[str, float], unit: str = "") -> list[str]:
    result = f"{percent(found['mean_error'])} mean error, {percent(found['within_10'], 0)} within 10 %"
    return [result, percent(found["constant_mean_error"]), f"{found['cases']:.0f} {unit}".strip()]


def _plans(data: Path) -> list[list[str]]:
    """Gains of plans; the baseline is the fastest mode of torch.compile, measured."""
    rows = []
    for name, kind in (("compared", "models used in development"), ("others", "other models")):
        lines = (data / f"{name}_h200.jsonl").read_text(encoding="utf-8").splitlines()
        records = latest([record for record in map(json.loads, lines) if gain(record)])
        found = [value for value in map(gain, records) if value]
        result = f"{statistics.geometric_mean(found):.2f} times as fast (geometric mean), at least {min(found):.2f}"
        models = len({record["case"][0] for record in records})
        precisions = " and ".join(sorted({record["case"][2] for record in records}, reverse=True))
        condition = f"latency of plans, {models} {kind}, {precisions}, batch 1 and 32, measured"
        rows.append([condition, result, "fastest of eager, `default`, `reduce-overhead`", str(len(found))])
    return [*rows, _beside_expert(data)]


def _beside_expert(data: Path) -> list[str]:
    """Gain of plans over the fastest setting of an expert, measured in the same process."""
    found = gains(times_of(read_rows(data / "expert_h200.csv")), "plan").values()
    result = f"{statistics.geometric_mean(found):.2f} times as fast (geometric mean), at least {min(found):.2f}"
    baseline = "fastest of an expert's settings, freezing with CUDA graphs among them"
    return [
        "latency of plans, the models of the two rows above, measured again beside an expert's settings",
        result,
        baseline,
        str(len(found)),
    ]


def _compile_times(data: Path) -> list[list[str]]:
    """Compile time on held-out families, cold and warm, both modes; the baseline is a constant."""
    frame = pd.read_csv(data / "compile_times_h200.csv")
    rows = []
    for cache, chosen in frame.groupby("cache"):
        errors = [(chosen[f"{way}_s"] / chosen["measured_s"] - 1).abs().median() for way in ("predicted", "constant")]
        condition = f"compile time with a {cache} cache, `default` and `reduce-overhead`, held-out families, batch 1"
        models = f"{len(chosen)} of {chosen['model'].nunique()} models"
        rows.append([condition, f"{percent(errors[0])} median error", percent(errors[1]), models])
    return rows


def _costs(data: Path) -> list[list[str]]:
    memory = [Row(**row) for row in json.loads((data / "memory_h200.json").read_text(encoding="utf-8"))["rows"]]
    worst = [percent(max(abs(row.error) for row in memory if row.kind == kind)) for kind in ("inference", "training")]
    cost = json.loads((data / "speed.json").read_text(encoding="utf-8"))
    sweep = json.loads((data / "sweep_h200.json").read_text(encoding="utf-8"))
    cold = cost["predict densenet121"]
    return [
        [
            "peak memory of inference and training, float32, batch 8, eager",
            f"largest errors {' and '.join(worst)}",
            "-",
            str(len(memory)),
        ],
        [
            "a cold `costmodel predict densenet121`, on a CPU",
            f"{cold['ratio']:.2f} times the CPU time, {cold['peak_ratio']:.2f} times the peak memory",
            "importing torch and torchvision",
            f"{cost['runs']} runs",
        ],
        [
            "a sweep of `costmodel collect`",
            f"{sweep['ratio']:.1f} times the units a minute",
            "a loop with torch.compile and `do_bench`",
            f"{sweep['sample']['units']:,} units",
        ],
    ]


def main() -> None:
    """Print the table, or write it into a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between its marks in this document")
    args = parser.parse_args()
    profile = load_profile("nvidia-h200")
    text = table(profile.path)
    if args.write:
        args.write.write_text(replace_section(args.write, text, BEGIN, END), encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
