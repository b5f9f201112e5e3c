"""Accuracy of predicted training steps against measured ones, each model by a profile without its family.

python scripts/training_accuracy.py training.jsonl --units backward.parquet --fit

Records are those of `collectors.whole_models.collect` for training cases, units those of the workload `backward`. For
each measured model, kernels of its family, and kernels that it runs itself, are left out of the groups that training
steps have, and its steps out of the fit of host costs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collectors.workloads.model_cases import case_key
from costmodel.calibration.add_units import remembering
from costmodel.features import OPTIONAL, TRAINING_GROUPS, group_of
from costmodel.kernels.kernel import Kernel
from costmodel.memory.workspace import matmul_workspace_bytes
from costmodel.prediction.step_traces import TimedStep, time_step
from costmodel.prediction.training import CapturedStep, capture_step, segments_by_mode, step_peaks
from costmodel.profiles.hosts import speed_of
from costmodel.profiles.profile import Profile, load_profile
from costmodel.timeline.cost_tables import COSTS
from costmodel.timeline.step_costs import FIRST_COSTS, StepRow, at_host, fit_step_costs
from costmodel.timeline.training_queue import counts_of, timing_of
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.families import family_of
from costmodel.training.kernel_models import TrainingSettings, fit_group
from costmodel.training.tables import drop, tabulate, trusted

MODES = ("eager", "default", "reduce-overhead")
MEBIBYTE = 2.0**20


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A measured case: its record, its captured step, and the family of its model."""

    record: Mapping[str, Any]
    captured: CapturedStep
    family: str

    @property
    def latency_ms(self) -> dict[str, float]:
        """Median latency by mode; eager is the median of its rounds beside every mode."""
        rounds: dict[str, list[float]] = {}
        for name, rows in self.record["latency_us"].items():
            rounds.setdefault(name.partition("/")[0], []).extend(row[2] / 1e3 for row in rows)
        return {mode: statistics.median(some) for mode, some in rounds.items()}

    def speedup(self, mode: str) -> float:
        """Latency of the eager rounds beside a mode over the mode's."""
        rounds = self.record["latency_us"]
        eager, other = (statistics.median(row[2] for row in rounds[name]) for name in (f"eager/{mode}", mode))
        return eager / other


@dataclass(frozen=True, slots=True)
class Unit:
    """A measured kernel with the family of the model that it is from."""

    kernel: Kernel
    family: str


def measured_steps(path: Path) -> list[MeasuredStep]:
    """Measured cases with their steps."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "error" not in record:
            found.append(MeasuredStep(record, captured(record), family_of(record["model"])))
    return found


def captured(record: Mapping[str, Any]) -> CapturedStep:
    """Captured step of a case."""
    from costmodel.zoo import load

    loaded = load(record["model"], batch_size=record["batch_size"], img_size=record.get("img_size"))
    return capture_step(loaded.module, loaded.inputs, record["model"], amp=record.get("amp"))


def without(profile: Profile, units: Path, family: str, own: frozenset[Any]) -> tuple[Profile, int]:
    """The profile with models of the training groups from units of other families, and the number of these units.

    Fused kernels become measured neighbours of the group that has a model already.

    Args:
        profile: profile of the hardware.
        units: dataset of units.
        family: family whose units are left out.
        own: keys of the kernels of its measured models, which are left out too.
    """
    frame = trusted(read_frame(units)[0])
    kernels = [kernel_of(graph, runner) for graph, runner in zip(frame["graph"], frame["runner"], strict=True)]
    sources = [family_of(str(source).partition("@")[0]) for source in frame["source"]]
    kept = [
        place
        for place, (kernel, source) in enumerate(zip(kernels, sources, strict=True))
        if source != family and kernel.key not in own
    ]
    chosen, rows = [kernels[place] for place in kept], frame.iloc[kept].reset_index(drop=True)
    predictor = profile.predictor
    tables = tabulate(chosen, rows, predictor.roofline, predictor.multiprocessors)
    settings = TrainingSettings(ensemble=2, epochs=40)
    made = {
        group: fit_group(drop(table, OPTIONAL), settings) for group, table in tables.items() if group in TRAINING_GROUPS
    }
    others = {
        group: remembering(predictor.groups[group], table)
        for group, table in tables.items()
        if group in predictor.groups and group not in made
    }
    return profile.using(replace(predictor, groups={**predictor.groups, **others, **made})), len(kept)


def step_rows(step: MeasuredStep, timed: TimedStep, profile: Profile, speed: float) -> dict[str, StepRow]:
    """Measured host time of a step by mode, scaled to the profile's host, with its counts."""
    tables = {name: profile.costs(name, costs, 1.0) for name, costs in COSTS.items()}
    rows = {}
    for mode, segments in segments_by_mode(timed, tables).items():
        if (host := step.record.get(f"{mode}_host_us")) is not None:
            rows[mode] = StepRow(counts_of(segments), host[2] * speed)
    return rows


def predictions(
    timed: TimedStep, profile: Profile, speed: float, costs: Mapping[str, float]
) -> dict[str, tuple[float, float, float]]:
    """Latency, host and device time by mode, milliseconds."""
    tables = {name: profile.costs(name, needed, speed) for name, needed in COSTS.items()}
    scaled = at_host(costs, speed)
    found = {}
    for mode, segments in segments_by_mode(timed, tables, scaled).items():
        timing = timing_of(segments, tables["eager_wall" if mode == "eager" else "default_wall"])
        found[mode] = (timing.latency_us / 1e3, timing.host_us / 1e3, timing.device_us / 1e3)
    return found


def scored(steps: Sequence[MeasuredStep], hardware: str, units: Path | None, fits: bool) -> Iterator[dict[str, Any]]:
    """A row for each measured step and mode, predicted by a profile and by costs without the step's family."""
    profile = load_profile(hardware)
    timed: list[TimedStep] = []
    profiles: dict[str, Profile] = {}
    for step in steps:
        if units is None:
            profiles[step.family] = profile
        elif step.family not in profiles:
            mine = [one for one in steps if one.family == step.family]
            plain = [time_step(one.captured.step, one.record["optimizer"], profile) for one in mine]
            own = frozenset(kernel.key for one in plain for kernel in kernels_in(one))
            profiles[step.family], count = without(profile, units, step.family, own)
            print(f"{step.family}: {count} measured kernels of other families", flush=True)
        timed.append(time_step(step.captured.step, step.record["optimizer"], profiles[step.family]))
        print(f"{len(timed)} of {len(steps)}: {case_key(dict(step.record))}", flush=True)
    speeds = [speed_of(step.record["probe_us"], profile) for step in steps]
    rows = [
        step_rows(*some, profile, speed) for some, speed in zip(zip(steps, timed, strict=True), speeds, strict=True)
    ]
    for step, one, speed in zip(steps, timed, speeds, strict=True):
        others = [
            row for other, some in zip(steps, rows, strict=True) if other.family != step.family for row in some.values()
        ]
        costs = fit_step_costs(others) if fits and others else FIRST_COSTS
        found, measured = predictions(one, profile, speed, costs), step.latency_ms
        # the host probe has allocated a workspace of cuBLAS before the model is built
        held = matmul_workspace_bytes(step.captured.step.eager, profile.capability, training=False)
        peaks = step_peaks(step.captured, one, step.record["optimizer"], profile)
        for mode, (latency, host, device) in found.items():
            if mode not in measured:
                continue
            host_us, device_us = (step.record.get(f"{mode}_{kind}_us") for kind in ("host", "device"))
            yield {
                "case": case_key(dict(step.record)),
                "family": step.family,
                "mode": mode,
                "latency_ms": measured[mode],
                "predicted_ms": latency,
                "speedup": 1.0 if mode == "eager" else step.speedup(mode),
                "predicted_speedup": found["eager"][0] / latency,
                "host_ms": host_us[2] / 1e3 if host_us else None,
                "predicted_host_ms": host,
                "device_ms": device_us[2] / 1e3 if device_us else None,
                "predicted_device_ms": device,
                "peak_bytes": step.record.get("peak_bytes", {}).get(mode),
                "predicted_peak_bytes": peaks[mode] - held if mode in peaks else None,
            }


def kernels_in(step: TimedStep) -> Iterator[Kernel]:
    """Kernels of a step that its groups, or fused kernels, are trained on."""
    passes = [*step.eager.values(), step.optimizer]
    passes += [step.compiled.forward, step.compiled.backward] if step.compiled else []
    for one in passes:
        for kernel in one.trace.kernels:
            if kernel.backend == "triton" or group_of(kernel) in TRAINING_GROUPS:
                yield kernel


def error(predicted: float | None, measured: float | None) -> float | None:
    """Relative error; None where one of the two is missing."""
    return None if not predicted or not measured else predicted / measured - 1


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and median errors by mode and quantity, beside the constant that the other families have as their mean."""
    found = []
    for mode in MODES:
        mine = [row for row in rows if row["mode"] == mode]
        quantities = ("speedup", "latency_ms", "host_ms", "device_ms", "peak_bytes")
        for quantity in quantities if mode != "eager" else quantities[1:]:
            name = f"predicted_{'ms' if quantity == 'latency_ms' else quantity}"
            errors = [abs(one) for row in mine if (one := error(row[name], row[quantity])) is not None]
            if not errors:
                continue
            constants = [abs(one) for row in mine if (one := _constant(row, mine, quantity)) is not None]
            found.append(
                {
                    "mode": mode,
                    "quantity": quantity,
                    "mean_error": statistics.mean(errors),
                    "median_error": statistics.median(errors),
                    "within_10_percent": sum(one <= 0.1 for one in errors) / len(errors),
                    "constant": statistics.mean(constants) if constants and quantity == "speedup" else None,
                    "cases": len(errors),
                }
            )
    return found


def round_spread(steps: Sequence[MeasuredStep], mode: str) -> float:
    """Mean deviation of a round's latency from the median round of its step and mode: no prediction can be nearer."""
    found = []
    for step in steps:
        for name, rounds in step.record["latency_us"].items():
            if name.partition("/")[0] == mode:
                usual = statistics.median(row[2] for row in rounds)
                found += [abs(row[2] / usual - 1) for row in rounds]
    return statistics.mean(found)


def _constant(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], quantity: str) -> float | None:
    """Error of the geometric mean of the other families as the prediction."""
    others = [math.log(one[quantity]) for one in rows if one["family"] != row["family"] and one[quantity]]
    return error(math.exp(statistics.mean(others)), row[quantity]) if others else None


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--units", type=Path, help="dataset of backward kernels; default: none was measured")
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--fit", action="store_true", help="fit the host costs to steps of other families")
    parser.add_argument("-o", "--output", type=Path, help="file of all rows, JSON lines")
    args = parser.parse_args()
    steps = measured_steps(args.records)
    rows = list(scored(steps, args.hardware, args.units, args.fit))
    if args.output:
        args.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for row in rows:
        print(
            f"{row['case']} {row['mode']}: {row['latency_ms']:.2f} ms, predicted {row['predicted_ms']:.2f}; speedup "
            f"{row['speedup']:.2f}, predicted {row['predicted_speedup']:.2f}; host {row['host_ms'] or 0:.2f}, "
            f"predicted {row['predicted_host_ms']:.2f}; device {row['device_ms'] or 0:.2f}, predicted "
            f"{row['predicted_device_ms']:.2f}; peak {(row['peak_bytes'] or 0) / MEBIBYTE:.0f} MiB, predicted "
            f"{(row['predicted_peak_bytes'] or 0) / MEBIBYTE:.0f}"
        )
    for one in summary(rows):
        constant = f", constant {one['constant']:.1%}" if one["constant"] is not None else ""
        print(
            f"{one['mode']} {one['quantity']}: mean error {one['mean_error']:.1%}, median {one['median_error']:.1%}, "
            f"{one['within_10_percent']:.0%} within 10 %{constant}, {one['cases']} cases"
        )
    for mode in MODES:
        print(f"{mode} latency: rounds of a step deviate from its median by {round_spread(steps, mode):.1%}")
    if args.fit:
        profile = load_profile(args.hardware)
        all_rows = [
            row
            for step in steps
            for row in step_rows(
                step,
                time_step(step.captured.step, step.record["optimizer"], profile),
                profile,
                speed_of(step.record["probe_us"], profile),
            ).values()
        ]
        print("host costs of all steps:", json.dumps({k: round(v, 3) for k, v in fit_step_costs(all_rows).items()}))


if __name__ == "__main__":
    main()
