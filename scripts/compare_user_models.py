"""Models as users bring them: predicted beside measured, as CSV and as tables of docs/accuracy.md.

python scripts/compare_user_models.py --predict --jobs 2            predict every measured case and write the CSV
python scripts/compare_user_models.py --write docs/accuracy.md      the tables of the CSV, into the document

Measurements are those of scripts/measure_user_models.py. Predictions are those without `--host`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markdown_tables import replace_section
from user_model_tables import case_table, summary_table

from collectors.whole_models.built_model import build
from costmodel.errors import CostmodelError
from costmodel.report import Report

RECORDS, OUTPUT = Path("docs/data/user_models_h200.jsonl"), Path("docs/data/user_models_h200.csv")
LIBRARY = "library"
"""Half of the models of torchvision and timm, which the profile knows: neither tuned nor reported on."""
HALVES = ("tuning", "reporting")
"""Halves of the user models: what is chosen by the first is judged by the second."""
MODES = ("default", "reduce-overhead")
Case = tuple[str, int]
"""Model and batch size."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true", help="predict anew; otherwise read the output file")
    parser.add_argument("--records", type=Path, default=RECORDS, help="measurements of user models")
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="predictions beside measurements, as CSV")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables between their marks in this file")
    return parser.parse_args()


AWKWARD = ("python_in_forward", "data_dependent", "stateful", "extensions")
"""Files of models that torch.compile does not make one graph of, or that change state: one family."""


def half_of(model: str) -> str:
    """Half of a model, by a hash of its family: the files of awkward models, else the first word of its name."""
    if ".py:" not in model:
        return LIBRARY
    file, _, name = Path(model).name.partition(".py:")
    family = "awkward" if file in AWKWARD else name.partition("_")[0]
    return HALVES[int(hashlib.sha256(family.encode()).hexdigest(), 16) % 2]


def read_records(path: Path) -> dict[Case, dict[str, Mapping[str, Any]]]:
    """Records of the cases that were measured, by mode."""
    found: dict[Case, dict[str, Mapping[str, Any]]] = {}
    for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if record.get("status") == "ok":
            found.setdefault((record["model"], record["batch_size"]), {})[record["mode"]] = record
    return found


def quiet_median_us(rounds: Sequence[Sequence[float]]) -> float:
    """Median of the quietest round: other programs only add time."""
    return min(float(np.median(samples)) for samples in rounds)


def compare(case: Case, records: Mapping[str, Mapping[str, Any]], hardware: str) -> list[dict[str, Any]]:
    """A row a measured mode of a case."""
    import costmodel

    model, batch_size = case
    launch_us = float(np.mean(next(iter(records.values()))["probe_us"]))
    about = {"model": short(model), "batch_size": batch_size, "half": half_of(model), "launch_us": launch_us}
    about |= {"graphs": max(one["graphs"] for one in records.values()), "one_graph": is_one_graph(records.values())}
    try:
        built = build({"model": model, "batch_size": batch_size, "precision": "float32", "layout": "nchw"}, "cpu")
        inputs = built.arguments or dict(built.keywords)
        report = costmodel.predict(built.module, inputs, hardware=hardware)
    except CostmodelError as error:
        return [about | {"mode": mode, **measured(records[mode]), "error": str(error)} for mode in records]
    right = is_right(report, {mode: measured(record) for mode, record in records.items()})
    about |= {"verdict": report.verdict, "leaning": report.leaning or "", "right": right, "partial": report.partial}
    about |= {"extrapolated": report.extrapolated_share, "error": ""}
    return [about | {"mode": mode, **measured(record), **predicted(report, mode)} for mode, record in records.items()]


def short(model: str) -> str:
    """Name of a model: `detection:yolo_like` for its file's."""
    return Path(model).name.replace(".py:", ":") if ".py:" in model else model


def is_one_graph(records: Collection[Mapping[str, Any]]) -> bool:
    """Whether torch.compile made one graph of a case in every mode, and one CUDA graph where the mode has any."""
    return all(one["graphs"] == 1 and not one["breaks"] and not one["cudagraph_skips"] for one in records)


def measured(record: Mapping[str, Any]) -> dict[str, float]:
    """Measured latencies and speedup."""
    eager_us, compiled_us = (quiet_median_us(record[f"{way}_us"]) for way in ("eager", "compiled"))
    return {"measured_eager_us": eager_us, "measured_us": compiled_us, "measured_speedup": eager_us / compiled_us}


def predicted(report: Report, mode: str) -> dict[str, float | None]:
    """Predicted latencies and speedup with their intervals, and host and device times; empty if the mode is absent."""
    found, eager = report.modes.get(mode), report.modes["eager"]
    if found is None:
        return {}
    values: dict[str, float | None] = {}
    for name, one in (("eager", eager), ("mode", found)):
        values |= {f"{name}_us": one.latency_ms * 1e3, f"{name}_low_us": one.low_ms * 1e3}
        values |= {f"{name}_high_us": one.high_ms * 1e3}
        values |= {f"{name}_host_us": one.host_ms * 1e3, f"{name}_device_us": one.device_ms * 1e3}
    return values | {"speedup": found.speedup, "speedup_low": found.speedup_low, "speedup_high": found.speedup_high}


def is_right(report: Report, seen: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Whether the measurements bear a verdict out; None for `uncertain`.

    `compile` is right if the recommended mode is faster than eager execution, `leave` if no mode is.
    """
    faster = {mode: bool(values["measured_speedup"] > 1.0) for mode, values in seen.items()}
    if report.verdict == "compile":
        return faster.get(report.best_mode, any(faster.values()))
    return not any(faster.values()) if report.verdict == "leave" else None


def predict_all(records: Path, hardware: str, jobs: int) -> pd.DataFrame:
    """Rows of every measured case, `jobs` at once."""
    from joblib import Parallel, delayed

    cases = read_records(records)
    found = Parallel(n_jobs=jobs)(delayed(compare)(case, modes, hardware) for case, modes in cases.items())
    return pd.DataFrame([row for rows in found for row in rows])


def marks(section: str) -> tuple[str, str]:
    """Marks around a table in the document."""
    return f"<!-- {section}: made by scripts/compare_user_models.py -->", f"<!-- end of {section} -->"


def main() -> None:
    """Predict, or read earlier predictions, and print or write their tables."""
    args = arguments()
    if args.predict:
        predict_all(args.records, args.hardware, args.jobs).to_csv(args.output, index=False, float_format="%.5g")
    frame = pd.read_csv(args.output, keep_default_na=True)
    texts = {"user models": summary_table(frame), "user models one by one": case_table(frame)}
    if not args.write:
        print("\n\n".join(texts.values()))
        return
    for section, text in texts.items():
        args.write.write_text(replace_section(args.write, text, *marks(section)), encoding="utf-8")


if __name__ == "__main__":
    main()
