"""Time of predicting, planning and training, each as a ratio to something of torch's own in the same run.

python scripts/speed.py -o docs/data/speed.json

Seconds are CPU time of the process, so that other programs on the machine count little. The unit of kernels is one call
of torch.export on ResNet-50, and that of plans is the import of torch and torchvision.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

IMPORT = "from costmodel.zoo import load_torchvision; import torch; load_torchvision()"
EXPORT = """
import time, torch
from costmodel.zoo import load_torchvision
model, image = load_torchvision().models.resnet50().eval(), torch.zeros(1, 3, 224, 224)
start = time.process_time()
torch.export.export(model, (image,))
print(time.process_time() - start)
"""
KERNELS = """
import sys, time
from pathlib import Path
from costmodel.profiles.profile import load_profile
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.tables import trusted
rows = trusted(read_frame(Path(sys.argv[1]))[0]).sample(7000, random_state=0)
kernels = [kernel_of(graph, runner) for graph, runner in zip(rows["graph"], rows["runner"])]
if sys.argv[2] == "new":
    from dataclasses import replace
    from costmodel.predictor.recall import Recall
predictor = load_profile("nvidia-h200").predictor
if sys.argv[2] == "new":
    groups = {name: replace(group, recall=Recall.nothing()) for name, group in predictor.groups.items()}
    predictor = replace(predictor, groups=groups)
start = time.process_time()
predictor.predict(kernels, [0.5] * len(kernels))
print(time.process_time() - start)
"""
PLAN = """
import sys, time, torch
from costmodel.zoo import load_torchvision
load_torchvision()
start = time.process_time()
import costmodel
from costmodel.zoo import load
one = load(sys.argv[1])
costmodel.plan(one.module, one.inputs, hardware="nvidia-h200")
print(time.process_time() - start)
"""
PLANNED = ("resnet50", "densenet121", "inception_v3")


def printed(code: str, *arguments: str) -> float:
    """Number that a program prints in its last line."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds of a process."""
    with tempfile.TemporaryFile() as nothing:
        child = subprocess.Popen(command, stdout=nothing, stderr=nothing)
        _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"failed: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def median(measure: Callable[[], float], runs: int) -> float:
    """Median of several measurements."""
    return statistics.median(measure() for _ in range(runs))


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=Path, default=Path("trained_models/nvidia-h100/units.parquet"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    imported = median(lambda: cpu_seconds([sys.executable, "-c", IMPORT]), args.runs)
    exported = median(lambda: printed(EXPORT), args.runs)
    train = [sys.executable, "-m", "costmodel", "train", "--hardware", "tried", "--base", "nvidia-h200", "-q"]
    found: dict[str, object] = {"import_s": imported, "export_resnet50_s": exported}
    for name, seconds, unit in (
        *(
            (
                f"7000 kernels, {how}",
                median(lambda how=how: printed(KERNELS, str(args.units), how), args.runs),
                exported,
            )
            for how in ("measured", "new")
        ),
        *(
            (f"plan {model}", median(lambda model=model: printed(PLAN, model), args.runs), imported)
            for model in PLANNED
        ),
        ("train with a base", trained(train, args.units), imported),
    ):
        found[name] = {"cpu_s": round(seconds, 2), "ratio": round(seconds / unit, 2)}
    text = json.dumps(found, indent=1) + "\n"
    print(text, end="")
    if args.output:
        args.output.write_text(text)


def trained(command: list[str], units: Path) -> float:
    """CPU seconds of training on a dataset in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "units.parquet").write_bytes(units.read_bytes())
        return cpu_seconds([*command, "--directory", directory, "--jobs", "1"])


if __name__ == "__main__":
    main()
