"""Plans against every mode of torch.compile, measured side by side in one run, model by model: CSV and a summary.

python scripts/measure_and_compare.py -o results.jsonl            the twelve models, batch 1 and 32, float32 and float16
python scripts/measure_and_compare.py resnet50 -b 32 -o one.jsonl --mode max-autotune

Each line of the file is one validation; a model that is in the file already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from costmodel.errors import CostmodelError
from costmodel.planning import plan
from costmodel.validate import USUAL, resolve_device, validate
from costmodel.zoo import load_real

MODELS = (
    *("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1"),
    *("vgg16_bn", "resnet18", "efficientnet_b0", "convnext_tiny", "vit_b_16", "inception_v3"),
)
"""The six models of the study, and six more."""


def measured(model: str, batch_size: int, precision: str, args: argparse.Namespace) -> dict[str, Any]:
    """One case: predicted and measured in every mode and as planned."""
    device = resolve_device(args.device)
    loaded = load_real(model, device, batch_size=batch_size, precision=precision)
    made = plan(loaded.module, loaded.inputs, hardware=args.hardware, model_name=model)
    found = validate(
        loaded.module,
        loaded.inputs,
        plan=made,
        hardware=args.hardware,
        model_name=model,
        modes=(*USUAL, *args.mode),
        seconds=args.seconds,
    )
    backends = sorted({region.backend for region in made.regions})
    return {"case": [model, batch_size, precision], "moves": made.moves, "backends": backends, **found.to_dict()}


def summary(records: list[dict[str, Any]]) -> str:
    """A line a case and the geometric mean of the plan's gain over the best mode that was measured."""
    gains = []
    lines = []
    for record in records:
        modes = record["modes"]
        others = {name: mode["measured_ms"] for name, mode in modes.items() if name != "plan" and mode["measured_ms"]}
        best = min(others, key=others.__getitem__)
        planned = modes["plan"]["measured_ms"]
        if planned is None:
            lines.append(f"{record['case']}: the plan failed: {modes['plan']['note']}")
            continue
        gains.append(others[best] / planned)
        predicted = modes["plan"]["predicted_ms"]
        lines.append(
            f"{record['case']}: plan {planned:.3f} ms (predicted {predicted:.3f}), best mode {best} "
            f"{others[best]:.3f} ms, gain {gains[-1]:.3f}"
        )
    if gains:
        mean = math.exp(sum(map(math.log, gains)) / len(gains))
        lines.append(f"{len(gains)} cases: geometric mean gain {mean:.3f}, least {min(gains):.3f}")
    return "\n".join(lines)


def main() -> None:
    """Measures what is not in the file yet, then prints the summary of all that is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-b", "--batch-size", type=int, action="append")
    parser.add_argument("--precision", action="append")
    parser.add_argument("--mode", action="append", default=[], help="a mode beside default and reduce-overhead")
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--device", default="")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("-o", "--output", type=Path, default=Path("compared.jsonl"))
    args = parser.parse_args()
    lines = args.output.read_text(encoding="utf-8").splitlines() if args.output.exists() else []
    records = [json.loads(line) for line in lines]
    for precision in args.precision or ("float32", "float16"):
        for batch_size in args.batch_size or (1, 32):
            for model in args.models:
                if any(record["case"] == [model, batch_size, precision] for record in records):
                    continue
                try:
                    record = measured(model, batch_size, precision, args)
                except CostmodelError as error:
                    print(f"{model}, batch {batch_size}, {precision}: {error}", file=sys.stderr)
                    continue
                records.append(record)
                with args.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(summary([record]).splitlines()[0], flush=True)
    print(summary(records))


if __name__ == "__main__":
    main()
