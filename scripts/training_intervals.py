"""Training steps as the shipped profile predicts them, beside measured ones: errors, and what intervals hold.

python scripts/training_intervals.py docs/data/training_steps_h200.jsonl -o docs/data/training_intervals_h200.csv
python scripts/training_intervals.py --only-summary -o docs/data/training_intervals_h200.csv

Host calibrated by the probe of each case, and not. The steps with `reduce-overhead` are those that the profile's host
costs of training were fitted to; the others are new to it. Use the torch that measured them: graphs differ by version.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from expert_tables import read_rows
from training_accuracy import MeasuredStep, measured_steps

from costmodel.prediction.training import predict_step
from costmodel.profiles.hosts import speed_of
from costmodel.profiles.profile import Profile, load_profile

CASE = ("model", "batch_size", "amp", "mode", "host", "fitted")
TIMES = ("latency_ms", "predicted_ms", "low_ms", "high_ms")
SPEEDUPS = ("speedup", "predicted_speedup", "speedup_low", "speedup_high")
HOSTS = ("calibrated", "unknown")
EAGER, GRAPHS = "eager", "reduce-overhead"


def predicted(step: MeasuredStep, profile: Profile) -> Iterator[dict[str, object]]:
    """Rows of a step: each compiled mode that was measured, on a calibrated host and on an unknown one."""
    record = step.record
    speed = speed_of(record["probe_us"], profile)
    fitted = GRAPHS in record["latency_us"]
    for host, chosen in zip(HOSTS, (replace(profile, host_speed=speed, host_calibrated=True), profile), strict=True):
        report = predict_step(step.captured, chosen, record["optimizer"])
        for mode, found in report.modes.items():
            if mode == EAGER or mode not in record["latency_us"]:
                continue
            case = record["model"], record["batch_size"], record.get("amp") or "", mode, host, int(fitted)
            times = step.latency_ms[mode], found.latency_ms, found.low_ms, found.high_ms
            speedups = step.speedup(mode), found.speedup, found.speedup_low, found.speedup_high
            figures = (f"{value:.5g}" for value in (*times, *speedups) if value is not None)
            yield dict(zip((*CASE, *TIMES, *SPEEDUPS), (*case, *figures), strict=True))


def summary(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Lines: mode and host, errors, the share inside the intervals, and the share of intervals on one side of 1."""
    lines = []
    for host in HOSTS:
        for mode in dict.fromkeys(row["mode"] for row in rows):
            mine = [row for row in rows if row["host"] == host and row["mode"] == mode]
            lines += _lines(f"{mode}, {host} host", mine)
            if len({row["fitted"] for row in mine}) > 1:
                lines += _lines(f"{mode}, {host} host, new steps", [row for row in mine if row["fitted"] == "0"])
    return lines


def _lines(name: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    def column(key: str) -> list[float]:
        return [float(row[key]) for row in rows]

    parts = []
    for quantity, keys in (("speedup", SPEEDUPS), ("latency", TIMES)):
        measured, mean, low, high = map(column, keys)
        errors = [abs(guess / value - 1) for guess, value in zip(mean, measured, strict=True)]
        held = [least <= value <= most for least, value, most in zip(low, measured, high, strict=True)]
        parts.append(f"{quantity} {statistics.mean(errors):.1%} off, {statistics.mean(held):.0%} in its interval")
    sides = [
        (float(row["speedup_low"]) > 1, float(row["speedup_high"]) < 1, math.log(float(row["speedup"]))) for row in rows
    ]
    decided = [gain > 0 if above else gain < 0 for above, below, gain in sides if above or below]
    parts.append(f"{len(decided) / len(rows):.0%} decided, {sum(decided)} of {len(decided)} rightly")
    return [f"{name}, {len(rows)} steps: {'; '.join(parts)}"]


def main() -> None:
    """Predict, or print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=Path, help="records of measured training steps")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--only-summary", action="store_true")
    args = parser.parse_args()
    if not args.only_summary:
        if args.records is None:
            parser.error("give the records of measured steps, or --only-summary")
        profile = load_profile(args.hardware)
        with args.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*CASE, *TIMES, *SPEEDUPS), lineterminator="\n")
            writer.writeheader()
            for step in measured_steps(args.records):
                for row in predicted(step, profile):
                    writer.writerow(row)
                print(step.record["model"], flush=True)
    print("\n".join(summary(read_rows(args.output))))


if __name__ == "__main__":
    main()
