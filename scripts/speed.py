"""Time and memory of predicting, planning and training, each as a ratio to something of torch's own in the same round.

python scripts/speed.py -o docs/data/speed.json      # minutes on an idle machine

Every figure is measured once a round, beside its unit, and is the median over the rounds; one round before them warms
the file cache and is not counted. Seconds are CPU time, so that other programs on the machine count little. The unit is
the import of torch and torchvision or, for kernels, torch.export on ResNet-50. If the compiled extension of torchvision
does not fit the build of torch, its import is repaired in the same way on both sides. Planning is counted beyond that
import. Processes read and write compiled modules, as after an installation.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from dataclasses import replace
from pathlib import Path
from costmodel.predictor.recall import Recall
from costmodel.profiles.profile import load_profile
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.tables import trusted
rows = trusted(read_frame(Path(sys.argv[1]))[0]).sample(7000, random_state=0)
kernels = [kernel_of(graph, runner) for graph, runner in zip(rows["graph"], rows["runner"])]
predictor = load_profile("nvidia-h200").predictor
if sys.argv[2] == "new":
    groups = {name: replace(group, recall=Recall.nothing()) for name, group in predictor.groups.items()}
    predictor = replace(predictor, groups=groups)
start = time.process_time()
predictor.predict(kernels, [0.5] * len(kernels))
print(time.process_time() - start)
"""
COMMAND = (sys.executable, "-m", "costmodel")
PLANNED = ("resnet50", "densenet121", "inception_v3")
Round = Mapping[str, "Cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a process, or of a part of it, and the peak memory of the process."""

    cpu_s: float
    peak_mib: float


def run(*command: str, printed: bool = False) -> Cost:
    """Cost of a process; with `printed`, its CPU seconds are the number that it prints last."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as written:
        child = subprocess.Popen(command, stdout=written, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"failed: {' '.join(command)}")
        written.seek(0)
        cpu_s = float(written.read().split()[-1]) if printed else usage.ru_utime + usage.ru_stime
    return Cost(cpu_s, usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20))


def command(*words: str) -> Cost:
    """Cost of a command of costmodel for the H200's profile."""
    return run(*COMMAND, *words, "--hardware", "nvidia-h200", "-q")


def trained(units: Path) -> Cost:
    """Cost of training on a dataset with the H200's profile as base, in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "units.parquet").write_bytes(units.read_bytes())
        options = ("--hardware", "tried", "--base", "nvidia-h200", "--directory", directory, "--jobs", "1", "-q")
        return run(*COMMAND, "train", *options)


def measures(units: Path) -> Mapping[str, Callable[[], Cost]]:
    """Measurements of a round by name, in order."""

    def program(text: str, *words: str) -> Callable[[], Cost]:
        return lambda: run(sys.executable, "-W", "ignore", "-c", text, *words, printed=True)

    return {
        "import": lambda: run(sys.executable, "-c", IMPORT),
        "predict densenet121": lambda: command("predict", "densenet121"),
        **{f"plan {model}": lambda model=model: command("plan", model) for model in PLANNED},  # type: ignore[misc]
        "export": program(EXPORT),
        **{f"7000 kernels, {how}": program(KERNELS, str(units), how) for how in ("measured", "new")},
        "train with a base": lambda: trained(units),
    }


def figures(rounds: Sequence[Round]) -> dict[str, object]:
    """Medians over rounds: CPU seconds, and their ratio to the unit; memory too for a prediction."""
    imports, exports = ([one[unit] for one in rounds] for unit in ("import", "export"))
    found: dict[str, object] = {
        "runs": len(rounds),
        "import_s": median([one.cpu_s for one in imports]),
        "import_peak_mib": median([one.peak_mib for one in imports], 1),
        "export_resnet50_s": median([one.cpu_s for one in exports]),
    }
    for name in rounds[0]:
        if name not in ("import", "export"):
            costs = [one[name] for one in rounds]
            found[name] = figure(name, costs, exports if "kernels" in name else imports)
    return found


def figure(name: str, costs: Sequence[Cost], units: Sequence[Cost]) -> dict[str, object]:
    """Figures of one measurement, from its cost and that of its unit in each round."""
    pairs = list(zip(costs, units, strict=True))
    seconds = [cost.cpu_s - (unit.cpu_s if name.startswith("plan") else 0.0) for cost, unit in pairs]
    ratio = median([each / unit.cpu_s for each, unit in zip(seconds, units, strict=True)])
    found = {"cpu_s": median(seconds), "unit": "export" if "kernels" in name else "import", "ratio": ratio}
    if not name.startswith("predict"):
        return found
    peaks = [cost.peak_mib / unit.peak_mib for cost, unit in pairs]
    return found | {"peak_mib": median([cost.peak_mib for cost in costs], 1), "peak_ratio": median(peaks, 3)}


def median(values: Sequence[float], digits: int = 2) -> float:
    """Rounded median."""
    return round(statistics.median(values), digits)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=Path, default=Path("trained_models/nvidia-h100/units.parquet"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    measured = measures(args.units)
    rounds = [{name: measure() for name, measure in measured.items()} for _ in range(args.runs + 1)][1:]
    text = json.dumps(figures(rounds), indent=1) + "\n"
    print(text, end="")
    if args.output:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
