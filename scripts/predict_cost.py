"""Wall time and peak memory of a cold `costmodel predict densenet121` against importing torch and torchvision.

python scripts/predict_cost.py > docs/data/predict_cost.json
python scripts/predict_cost.py --check resnet50    # cost of a check for graph breaks, in imports

Both run alternately, in processes of their own; the first pair warms the file cache and is not counted. If the compiled
extension of torchvision does not fit the torch build, its import is repaired in the same way on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

IMPORT = "import torch, torchvision"
REPAIRED = "from costmodel.zoo import load_torchvision; import torch; load_torchvision()"


def run(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of one process."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"failed: {' '.join(command)}")
    return seconds, usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)


def predicting(model: str, *options: str) -> list[str]:
    """Command line that predicts a model."""
    return [sys.executable, "-m", "costmodel", "predict", model, "--hardware", "nvidia-h200", "-q", *options]


def check_cost(model: str, baseline: list[str], runs: int) -> dict[str, object]:
    """Seconds that a check for graph breaks adds to a prediction, also relative to the import; medians."""
    sides = (predicting(model, "--capture", "dynamo"), predicting(model, "--no-check"), baseline)
    rounds = [[run(command)[0] for command in sides] for _ in range(runs + 1)][1:]
    added = [with_check - without for with_check, without, _ in rounds]
    ratios = [more / imported for more, (*_, imported) in zip(added, rounds, strict=True)]
    return {
        "model": model,
        "runs": runs,
        "check_seconds": round(statistics.median(added), 3),
        "import_seconds": round(statistics.median(imported for *_, imported in rounds), 3),
        "ratio": round(statistics.median(ratios), 3),
    }


def main() -> None:
    """Print medians of both commands and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--model", default="densenet121")
    parser.add_argument("--check", metavar="MODEL", help="only the cost of checking this model for graph breaks")
    args = parser.parse_args()
    plain = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=False).returncode == 0
    baseline = [sys.executable, "-c", IMPORT if plain else REPAIRED]
    if args.check:
        print(json.dumps(check_cost(args.check, baseline, args.runs), indent=1))
        return
    predict = predicting(args.model)
    pairs = [(run(predict), run(baseline)) for _ in range(args.runs + 1)][1:]
    figures = {}
    for index, name in enumerate(("seconds", "peak_mib")):
        ours, theirs = ([pair[side][index] for pair in pairs] for side in (0, 1))
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        figures[name] = {
            "predict": round(statistics.median(ours), 3),
            "import": round(statistics.median(theirs), 3),
            "ratio": round(statistics.median(ratios), 3),
        }
    print(json.dumps({"runs": args.runs, "baseline": baseline[-1], **figures}, indent=1))


if __name__ == "__main__":
    main()
