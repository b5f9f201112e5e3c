"""Predictions of two checkouts, compared to the last digit of their JSON.

python scripts/compare_predictions.py ../before .               60 models, batch 1 and 32, three precisions
python scripts/compare_predictions.py ../before --write before.json
python scripts/compare_predictions.py before.json . --only resnet

A side is the directory of a checkout or a file made by --write. Each checkout predicts in processes of its own through
public functions, so that modules may be renamed in between. Answers are cached one file a case under a hash of the
checkout's sources and profiles: an interrupted run resumes, and a changed checkout is predicted again.

Exit status: 0 equal; 1 different; 2 a side is neither a checkout nor a file. Keys that only B has are not a difference.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from tqdm import tqdm

TORCHVISION = """alexnet vgg11_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 googlenet inception_v3
squeezenet1_1 mobilenet_v2 mobilenet_v3_small mnasnet0_5 shufflenet_v2_x1_0 efficientnet_b0 regnet_y_400mf convnext_tiny
vit_b_16 swin_t fcn_resnet50"""
TIMM = """mobilevit_s rexnet_100 ghostnet_100 hardcorenas_a fbnetc_100 tinynet_a lcnet_100 mixnet_s seresnet50
res2net50_26w_4s botnet26t_256 halonet26t dla34 ese_vovnet19b_dw darknet53 nfnet_l0 deit_tiny_patch16_224
vit_small_patch16_224 beit_base_patch16_224 cait_xxs24_224 mixer_s32_224 gmlp_s16_224 resmlp_12_224 efficientformer_l1
convnextv2_atto coat_lite_tiny pit_ti_224 poolformer_s12 levit_128 xcit_nano_12_p16_224"""
USER = """unet.py:build encoder.py:build data_dependent.py:build printing.py:build in_place.py:build depthwise.py:build
two_images.py:batch_{batch} recurrent.py:batch_{batch} attention.py:batch_{batch} video.py:batch_{batch}"""
MODELS = (*TORCHVISION.split(), *(f"timm:{name}" for name in TIMM.split()), *USER.split())
"""Specs of models; a model with inputs of its own has a callable for each batch size."""
PLANNED = (
    *("alexnet", "resnet18", "squeezenet1_1", "mobilenet_v2", "googlenet", "vit_b_16"),
    *("timm:mobilevit_s", "timm:seresnet50", "timm:mixer_s32_224", "timm:lcnet_100"),
    *("unet.py:build", "attention.py:batch_{batch}"),
)
"""Models whose plan, memory, reasons and prediction for a CPU are compared too."""
BATCHES, PRECISIONS = (1, 32), ("float32", "float16", "bfloat16")
GPU, CPU = {"hardware": "nvidia-h200"}, {"hardware": "intel-xeon-16-threads"}
QUESTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "predict": ("predict", GPU),
    "plan": ("plan", GPU),
    "memory": ("analyze_memory", GPU),
    "explain": ("predict", {**GPU, "explain": True, "host": "0.8"}),
    "cpu": ("predict", CPU),
}
"""Question -> public function and its arguments besides the model."""
HERE = Path(__file__).resolve().parent
COMPARED_MODELS = HERE / "compared_models"
SHOWN = 4
"""Number of differences printed for a case."""
LIBRARIES = ("torch", "torchvision", "timm", "numpy")


@dataclass(frozen=True, slots=True)
class PredictionCase:
    """Question about a model: a key of QUESTIONS, one of MODELS, batch size and precision."""

    question: str
    model: str
    batch_size: int
    precision: str

    @property
    def name(self) -> str:
        """Name in JSON and messages."""
        return f"{self.question} {self.model} batch {self.batch_size} {self.precision}"

    def asked(self) -> dict[str, Any]:
        """Input of scripts/predict_cases.py."""
        function, about = QUESTIONS[self.question]
        return {
            "question": function,
            "spec": self.model.format(batch=self.batch_size),
            "batch_size": None if "{batch}" in self.model else self.batch_size,
            "precision": self.precision,
            "about": {"model_name": self.model, **about},
        }


def all_cases(only: str = "") -> list[PredictionCase]:
    """All cases whose name contains a text."""
    cases = [
        PredictionCase("predict", model, batch, kind) for model in MODELS for batch in BATCHES for kind in PRECISIONS
    ]
    for model in PLANNED:
        cases += [PredictionCase(question, model, 1, "float32") for question in ("plan", "memory", "explain", "cpu")]
        cases += [PredictionCase(question, model, 32, "float16") for question in ("plan", "memory")]
    return [case for case in cases if only in case.name]


class Worker:
    """Process that predicts with a checkout; restarted after a case that ended it."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.process: subprocess.Popen[str] | None = None

    def ask(self, case: PredictionCase, path: Path) -> None:
        """Write the answer to a case into a file; no file is left if the process dies."""
        process = self.process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(case.asked() | {"path": str(path)}) + "\n")
            process.stdin.flush()
        if not process.stdout.readline():
            self.close()

    def close(self) -> None:
        """End the process after its last answer."""
        if self.process is not None:
            self.process.communicate()
        self.process = None

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(HERE / "predict_cases.py"), str(self.checkout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=COMPARED_MODELS,  # the same relative paths in every checkout
            env=os.environ | {"PYTHONPATH": str(self.checkout), "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # an interrupt stops this process; the child ends with its input
        )


def fingerprint(checkout: Path) -> str:
    """Hash of everything a checkout's predictions depend on: sources, profiles, user files, libraries."""
    digest = hashlib.sha256()
    asked = ((HERE, "predict_cases.py"), (HERE, "compared_models/*.py"))
    for root, pattern in ((checkout, "costmodel/**/*.py"), (checkout, "trained_models/*/card.json"), *asked):
        for path in sorted(root.glob(pattern)):
            digest.update(str(path.relative_to(root)).encode() + hashlib.sha256(path.read_bytes()).digest())
    installed = {(one.name, one.version) for one in distributions() if one.name in LIBRARIES}
    digest.update(repr(sorted(installed)).encode())
    return digest.hexdigest()[:16]


def predictions(checkout: Path, cases: Sequence[PredictionCase], cache: Path, jobs: int) -> dict[str, Any]:
    """Answers of a checkout by case; those missing in the cache are made by `jobs` processes."""
    checkout = checkout.resolve()
    directory = cache.resolve() / fingerprint(checkout)
    directory.mkdir(parents=True, exist_ok=True)
    paths = {case: directory / f"{hashlib.sha256(case.name.encode()).hexdigest()[:16]}.json" for case in cases}
    missing: queue.SimpleQueue[PredictionCase] = queue.SimpleQueue()
    for case in (case for case, path in paths.items() if not path.exists()):
        missing.put(case)
    with tqdm(total=len(cases), initial=len(cases) - missing.qsize(), desc=checkout.name, unit="case") as bar:
        drain = partial(_drain, checkout, missing, paths, bar)
        threads = [threading.Thread(target=drain, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {case.name: _read_answer(path) for case, path in paths.items()}


def _drain(
    checkout: Path, missing: queue.SimpleQueue[PredictionCase], paths: Mapping[PredictionCase, Path], bar: Any
) -> None:
    worker = Worker(checkout)
    with contextlib.suppress(queue.Empty):
        while True:
            case = missing.get_nowait()
            worker.ask(case, paths[case])
            bar.update()
    worker.close()


def _read_answer(path: Path) -> Any:
    """Answer in a file; a process that died left none, and the next run asks again."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"error": "its process died"}


def differences(a: Any, b: Any, numbers_only: bool = False, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Places where two answers differ, with both values; keys that only `b` has are not a difference."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key, value in a.items():
            yield from differences(value, b.get(key), numbers_only, f"{where} {key}" if where else key)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, pair in enumerate(zip(a, b, strict=True)):
            yield from differences(*pair, numbers_only, f"{where}[{index}]")
    elif (type(a) is not type(b) or a != b) and not (numbers_only and _is_text(a) and _is_text(b)):
        yield where, a, b


def _is_text(value: Any) -> bool:
    """Whether a value is text or a list of texts."""
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def added_keys(a: Any, b: Any) -> set[str]:
    """Keys of objects that only `b` has."""
    if isinstance(a, dict) and isinstance(b, dict):
        return (b.keys() - a.keys()).union(*(added_keys(a[key], b[key]) for key in a.keys() & b.keys()))
    pairs = zip(a, b, strict=False) if isinstance(a, list) and isinstance(b, list) else ()
    return set().union(*(added_keys(*pair) for pair in pairs))


def describe(place: tuple[str, Any, Any]) -> str:
    """Text of one difference, in percent for numbers."""
    where, a, b = place
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and a:
        return f"{where} {a:.6g} -> {b:.6g} ({100 * (b / a - 1):+.3g} %)"
    return f"{where} {json.dumps(a)[:60]} -> {json.dumps(b)[:60]}"


def changes(a: Mapping[str, Any], b: Mapping[str, Any], figure: str) -> dict[str, list[float]]:
    """Changes of a figure by mode, in percent, of the reports in which it changed."""
    moved: dict[str, list[float]] = {}
    for name in a.keys() & b.keys():
        modes, others = a[name].get("modes"), b[name].get("modes")
        if not (name.startswith("predict ") and isinstance(modes, dict) and isinstance(others, dict)):
            continue
        for mode in modes.keys() & others.keys():
            before, after = modes[mode].get(figure), others[mode].get(figure)
            if before and after and before != after:
                moved.setdefault(mode, []).append(100 * (after / before - 1))
    return moved


def compare(a: Mapping[str, Any], b: Mapping[str, Any], numbers_only: bool) -> int:
    """Print the differences and a summary; return the number of cases that differ."""
    differing = 0
    names = sorted(a.keys() | b.keys())
    for name in names:
        if found := list(differences(a.get(name), b.get(name), numbers_only)):
            differing += 1
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            print(f"{name}: {'; '.join(map(describe, found[:SHOWN]))}{more}")
    _print_changes(a, b)
    if added := set().union(*(added_keys(a[name], b[name]) for name in a.keys() & b.keys())):
        print(f"only B has the keys {', '.join(sorted(added))}")
    errors = sum("error" in found for found in b.values())
    print(f"{len(names) - differing} of {len(names)} cases equal, {differing} differ; {errors} are errors in B")
    return differing


def _print_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Print a line for each figure and mode that changed."""
    for figure in ("latency_ms", "speedup"):
        for mode, moved in sorted(changes(a, b, figure).items()):
            size = statistics.mean(map(abs, moved))
            means = f"mean {statistics.mean(moved):+.3g} %, mean size {size:.3g} %"
            print(f"{mode} {figure}: {len(moved)} reports moved, {means}, at most {max(map(abs, moved)):.3g} %")


def read_side(side: Path, cases: Sequence[PredictionCase], cache: Path, jobs: int) -> dict[str, Any]:
    """Answers by case of a checkout or file.

    Raises:
        SystemExit: the path is neither; status 2.
    """
    if (side / "costmodel" / "__init__.py").is_file():
        return predictions(side, cases, cache, jobs)
    names = {case.name for case in cases}
    try:
        found: dict[str, Any] = json.loads(side.read_text(encoding="utf-8"))
        return {name: value for name, value in found.items() if name in names}
    except (OSError, ValueError, AttributeError) as error:
        print(f"{side}: neither a checkout of costmodel nor a file made by --write: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two sides; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=Path, metavar="A", help="checkout or file")
    parser.add_argument("b", type=Path, metavar="B", nargs="?", help="the other side; optional with --write")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the answers of the last side")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    parser.add_argument("--numbers-only", action="store_true", help="ignore warnings and other texts")
    parser.add_argument("--jobs", type=int, default=1, help="processes a checkout")
    parser.add_argument("--cache", type=Path, default=Path(".predictions"), help="directory of cached answers")
    args = parser.parse_args(arguments)
    if args.b is None and args.write is None:
        parser.error("give two sides, or one and --write")
    cases = all_cases(args.only)
    sides = [read_side(side, cases, args.cache, args.jobs) for side in (args.a, args.b) if side is not None]
    if args.write:
        args.write.write_text(json.dumps(sides[-1], indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return int(compare(*sides, args.numbers_only) > 0) if len(sides) == 2 else 0


if __name__ == "__main__":
    raise SystemExit(main())
