"""Training steps measured beside their predictions, for `scripts/measure_and_compare.py --training`."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from costmodel.errors import CostmodelError


def measured_steps(
    args: argparse.Namespace, records: Sequence[dict[str, Any]], begin: float
) -> Iterator[dict[str, Any]]:
    """Records of the training steps that the file lacks, each appended to it, until the budget is spent."""
    known = [record["case"] for record in records]
    for amp in args.amp or ("none", "float16"):
        for batch in args.batch_size or (8, 32):
            for model in args.models:
                case = [model, batch, amp, args.optimizer]
                if case in known:
                    continue
                if time.monotonic() > begin + args.budget:
                    return
                record = _record(case, args)
                with args.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(f"{time.monotonic() - begin:.0f} s: {step_lines([record])[0]}", flush=True)
                yield record


def _record(case: Sequence[Any], args: argparse.Namespace) -> dict[str, Any]:
    """Record of one step, measured or failed."""
    import torch

    from costmodel.measurement.step_validation import validate_step
    from costmodel.measurement.validation import USUAL, resolve_device
    from costmodel.zoo import load_real

    model, batch, amp, optimizer = case
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        loaded = load_real(model, resolve_device(args.device), batch_size=batch)
        found = validate_step(
            loaded.module,
            tuple(loaded.inputs),
            optimizer=optimizer,
            amp=None if amp == "none" else amp,
            hardware=args.hardware,
            model_name=model,
            modes=(*USUAL, *args.mode),
            seconds=args.seconds,
        )
    except (CostmodelError, RuntimeError) as error:
        return {"case": list(case), "error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"case": list(case), **found.to_dict()}


def step_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each record, and one with mean errors of latency and speedup by mode."""
    lines, errors = [], {}
    for record in records:
        name = " ".join(map(str, record["case"]))
        if "error" in record:
            lines.append(f"{name}: {record['error']}")
            continue
        parts, eager = [], record["modes"]["eager"]
        for mode, found in record["modes"].items():
            if not (found["predicted_ms"] and found["measured_ms"]):
                continue
            error = found["predicted_ms"] / found["measured_ms"] - 1
            parts.append(f"{mode} {found['measured_ms']:.2f} ms ({error:+.0%})")
            errors.setdefault(f"latency of {mode}", []).append(abs(error))
            if mode != "eager":
                gain = eager["predicted_ms"] / found["predicted_ms"] / found["speedup"] - 1
                errors.setdefault(f"speedup of {mode}", []).append(abs(gain))
        lines.append(f"{name}: {', '.join(parts)}")
    means = [f"{name}: mean error {sum(some) / len(some):.1%} of {len(some)}" for name, some in errors.items()]
    return [*lines, *means]
