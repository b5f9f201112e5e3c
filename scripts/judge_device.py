"""Whole models measured on a device beside its profile's predictions: errors by mode, batch size and host.

python scripts/judge_device.py docs/data/user_models_h100.jsonl --hardware nvidia-h100 -o docs/data/judged_h100.csv

The measurements are those of collectors.whole_models.collect. Each case is predicted for the profile's host and for the
one that measured it, as its probe calibrated it. Models that are not one graph are left out. Where cases ran under
autocast, with matmuls in TF32 or with `cudnn.benchmark`, those are apart.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import costmodel
from collectors.whole_models.built_model import build
from costmodel.calibration.measured_model import PROBES
from costmodel.errors import CostmodelError
from costmodel.profiles.profile import load_profile

MODES = ("default", "reduce-overhead")
PER_BATCH = ["arithmetic", "mode", "one", "host"]
SETTINGS = ("amp", "matmul_precision", "cudnn_benchmark")
"""Fields of a case that are options of `predict`."""


def rows_of(record: Mapping[str, Any], hardware: str) -> Iterator[dict[str, Any]]:
    """A row a mode and host of one measured case."""
    case = {name: record[name] for name in ("model", "batch_size", "precision", "layout")}
    settings = {name: record[name] for name in SETTINGS if record.get(name)}
    arithmetic = " ".join(f"{name} {value}" for name, value in settings.items()) or "plain"
    built = build(case, "cpu")
    inputs = built.arguments or dict(built.keywords)
    probe_us = load_profile(hardware).summary.host.probe_us or record["probe_us"]
    hosts = {"uncalibrated": None, "calibrated": min(1.5, probe_us / quiet_probe_us(record))}
    for name, host in hosts.items():
        report = costmodel.predict(built.module, inputs, hardware=hardware, host=host, **settings)
        whole = report.graphs is not None and report.graphs.count == 1
        for mode in MODES:
            eager_us, compiled_us = (quiet_us(record["latency_us"][way]) for way in (f"eager/{mode}", mode))
            found, eager = report.modes[mode], report.modes["eager"]
            yield {
                **{key: case[key] for key in ("model", "batch_size")},
                "arithmetic": arithmetic,
                "mode": mode,
                "host": name,
                "one_graph": whole,
                "measured_us": compiled_us,
                "predicted_us": found.latency_ms * 1e3,
                "low_us": found.low_ms * 1e3,
                "high_us": found.high_ms * 1e3,
                "measured_eager_us": eager_us,
                "predicted_eager_us": eager.latency_ms * 1e3,
                "measured_speedup": eager_us / compiled_us,
                "predicted_speedup": found.speedup,
            }


def quiet_probe_us(record: Mapping[str, Any]) -> float:
    """Host probe of the quieter round: the fastest one, where each round has its own."""
    return float(min(record.get(PROBES) or [record["probe_us"]]))


def quiet_us(rounds: list[list[float]]) -> float:
    """Median of the quieter round: other programs only add time."""
    return min(quantiles[2] for quantiles in rounds)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean relative errors and share inside the intervals, by mode, batch 1 or more, and host."""
    whole = rows[rows["one_graph"]].assign(one=rows["batch_size"] == 1)
    for name in ("us", "eager_us", "speedup"):
        whole[f"error_{name}"] = (whole[f"predicted_{name}"] / whole[f"measured_{name}"] - 1).abs()
    whole["inside"] = (whole["low_us"] <= whole["measured_us"]) & (whole["measured_us"] <= whole["high_us"])
    columns = ["error_us", "error_eager_us", "error_speedup", "inside"]
    return whole.groupby(PER_BATCH)[columns].mean().assign(cases=whole.groupby(PER_BATCH).size()).reset_index()


def main() -> None:
    """Predict every case and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--hardware", default="nvidia-h100")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    found = []
    for line in args.records.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "latency_us" not in record or args.only not in record["model"]:
            continue
        try:
            found += list(rows_of(record, args.hardware))
        except CostmodelError as error:
            print(f"{record['model']}: {error}")
    rows = pd.DataFrame(found)
    print(summary(rows).to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    print(f"{rows['model'].nunique()} models")
    if args.output:
        rows.to_csv(args.output, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
