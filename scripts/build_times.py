"""Time to build a plan and its module, beside torch.compile: each in a fresh process, cold, then with a warm cache.

python scripts/build_times.py --device cuda -o build_times.csv          six models, float16, batch 32
python scripts/build_times.py --device cpu --quick -o quick.csv         one small network on small images
python scripts/build_times.py --device cuda --jobs 3 --budget 240 -o build_times.csv
python scripts/build_times.py -o docs/data/build_times_h200.csv --no-measure --write docs/backend.md

A cold process has an empty cache directory; the warm one that follows finds what it left. Seconds are those from a
loaded model that has run eagerly once to the end of the first call. Rows in the file are not measured again; beside it
stands the environment, and a file of another environment is not continued.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from markdown_tables import markdown_table, print_or_write

from collectors.processes.environment import differences, environment
from costmodel.errors import own_words

MODELS = ("resnet50", "mobilenet_v3_large", "vit_b_16", "efficientnet_b0", "convnext_tiny", "densenet121")
WAYS = {"default": ("cold",), "plan": ("cold", "warm"), "backend": ("cold", "warm")}
"""Ways to build, and their processes: torch.compile by default, `plan` and `apply`, torch.compile by the backend."""
SHOWN = tuple((way, run) for way, runs in WAYS.items() for run in runs if way != "default")
"""Ways and processes beside torch.compile's."""
CASE = ("model", "batch_size", "img_size", "precision", "device", "way", "run")
COLUMNS = (*CASE, "seconds", "latency_ms", "error", "note")
TIMED_CALLS = 20


@dataclass(frozen=True, slots=True)
class BuildCase:
    """A model to build in one way, with its settings."""

    model: str
    batch_size: int
    img_size: int | None
    precision: str
    device: str
    hardware: str | None
    way: str

    def key(self, run: str) -> tuple[str, ...]:
        """Key of a row."""
        size = "" if self.img_size is None else str(self.img_size)
        return (self.model, str(self.batch_size), size, self.precision, self.device, self.way, run)


def build(case: BuildCase) -> dict[str, Any]:
    """Build one case in this process; columns of its row from `seconds` on."""
    import torch

    from costmodel.execution.numerics import worst_error
    from costmodel.zoo import load_real

    device = torch.device(case.device)
    size = {} if case.img_size is None else {"img_size": case.img_size}
    loaded = load_real(case.model, device, batch_size=case.batch_size, precision=case.precision, **size)
    synchronize: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    with torch.no_grad():
        expected = loaded.module(*loaded.inputs)
        synchronize()
        begin = time.perf_counter()
        module, note = _built(case, loaded.module, tuple(loaded.inputs))
        found = module(*loaded.inputs)
        synchronize()
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        for _ in range(TIMED_CALLS):
            module(*loaded.inputs)
        synchronize()
        latency_ms = (time.perf_counter() - begin) / TIMED_CALLS * 1e3
    if case.way == "backend":
        from costmodel import explain_backend

        note = "; ".join(map(str, explain_backend(module).graphs))
    error = worst_error([found], [expected])
    return {"seconds": round(seconds, 3), "latency_ms": round(latency_ms, 4), "error": f"{error:.2g}", "note": note}


def _built(case: BuildCase, module: Any, inputs: tuple[Any, ...]) -> tuple[Callable[..., Any], str]:
    """Callable of a case, and a note about it."""
    import torch

    if case.way == "default":
        return torch.compile(module), ""
    if case.way == "backend":
        import costmodel.backend

        options = {} if case.hardware is None else {"hardware": case.hardware}
        return torch.compile(module, backend=costmodel.backend.NAME, options=options), ""
    from costmodel import apply, plan

    begin = time.perf_counter()
    made = plan(module, inputs, hardware=case.hardware, model_name=case.model, is_whole=True, keep=True)
    planned_s = time.perf_counter() - begin
    return apply(module, made, inputs), f"planned in {planned_s:.2f} s, {len(made.regions)} regions"


def measured(case: BuildCase, cache: Path, seconds: float) -> dict[str, Any]:
    """Build one case in a fresh process; its columns, or a note about its failure."""
    variables = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    command = [sys.executable, __file__, "--one", json.dumps(asdict(case))]
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"note": f"failed: not done within {seconds:.0f} s"}
    if done.returncode:
        return {"note": f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1][:200]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Table:
    """CSV file of results, to which rows are added as they are measured.

    Args:
        path: the file; its environment is kept beside it, in `NAME.env.json`.
        device: device of all rows.
    """

    def __init__(self, path: Path, device: str) -> None:
        self._path, self._lock = path, Lock()
        self.rows: list[dict[str, str]] = []
        here, facts = environment(device), path.with_suffix(".env.json")
        if path.exists():
            if facts.exists() and (other := differences(json.loads(facts.read_text()), here)):
                sys.exit(f"{path} was measured in another environment ({other}); give another file")
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = list(csv.DictReader(file))
        else:
            facts.write_text(json.dumps(here, indent=1) + "\n")
            path.write_text(",".join(COLUMNS) + "\n")

    def has(self, key: Sequence[str]) -> bool:
        """Whether there is a row without failure."""
        return any(_key(row) == tuple(key) and row["seconds"] for row in self.rows)

    def add(self, key: Sequence[str], found: Mapping[str, Any]) -> None:
        """Add a row."""
        row = dict(zip(CASE, key, strict=True)) | {name: str(found.get(name, "")) for name in COLUMNS[len(CASE) :]}
        with self._lock:
            self.rows.append(row)
            with self._path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, COLUMNS).writerow(row)
            print(f"{' '.join(part for part in key if part)}: {row['seconds'] or row['note']} s", flush=True)


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in CASE)


def measure_model(cases: Sequence[BuildCase], table: Table, end: float, kept: Path) -> None:
    """Measure the ways of one model, one after the other, as far as time allows.

    Args:
        cases: a case a way.
        table: gets the rows.
        end: time after which nothing is started.
        kept: directory for caches of Inductor.
    """
    for case in cases:
        cache = kept / f"{case.model}-{case.way}".replace(":", "-")
        if all(table.has(case.key(run)) for run in WAYS[case.way]):
            continue
        for run in WAYS[case.way]:
            if (left := end - time.monotonic()) <= 0:
                return
            found = measured(case, cache, max(60.0, left))
            if run == "warm" or not table.has(case.key(run)):
                table.add(case.key(run), found)


def cells_of(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Cells of a table: a model, and seconds of each way, also as a multiple of torch.compile's cold ones."""
    by_model: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        if row["seconds"]:
            by_model.setdefault(row["model"], {})[row["way"], row["run"]] = float(row["seconds"])
    lines = []
    for model, found in by_model.items():
        base = found.get(("default", "cold"))
        cells = [model, f"{base:.1f} s" if base else ""]
        for key in SHOWN:
            ratio = f" ({found[key] / base:.2f}x)" if key in found and base else ""
            cells.append(f"{found[key]:.1f} s{ratio}" if key in found else "")
        lines.append(cells)
    return lines


def summary(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Lines of the table in columns."""
    heads = ["model", "default", *(" ".join(key) for key in SHOWN)]
    widths = [-22, 9, *[18] * len(SHOWN)]
    return [
        "".join(
            cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, width in zip(cells, widths, strict=True)
        )
        for cells in (heads, *cells_of(rows))
    ]


def document_table(rows: Sequence[Mapping[str, str]]) -> str:
    """The table for a document, with the geometric means of the multiples."""
    times = {(row["model"], row["way"], row["run"]): float(row["seconds"]) for row in rows if row["seconds"]}
    means = []
    for way, run in SHOWN:
        ratios = [
            seconds / times[model, "default", "cold"]
            for (model, *key), seconds in times.items()
            if key == [way, run] and (model, "default", "cold") in times
        ]
        means.append(f"{statistics.geometric_mean(ratios):.2f}x of {len(ratios)}" if ratios else "-")
    heads = ("model", "`default`, cold", *(f"{way}, {run}" for way, run in SHOWN))
    body = [[cell or "-" for cell in cells] for cells in cells_of(rows)]
    return markdown_table(heads, [*body, ["*geometric mean*", "1", *means]])


def arguments() -> argparse.Namespace:
    """Parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("-b", "--batch-size", type=int)
    parser.add_argument("--img-size", type=int)
    parser.add_argument("--precision")
    parser.add_argument("--hardware", help="profile that plans; default: that of the GPU, or of the nearest CPU")
    parser.add_argument("--way", action="append", choices=tuple(WAYS))
    parser.add_argument("--quick", action="store_true", help="one small network on small images")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time; they then share the cores")
    parser.add_argument("--budget", type=float, default=7200.0, help="seconds in all")
    parser.add_argument("-o", "--output", type=Path, default=Path("build_times.csv"))
    parser.add_argument("--no-measure", action="store_true", help="only print the table of the file")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the table into a document; implies --no-measure"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def cases_of(args: argparse.Namespace) -> list[list[BuildCase]]:
    """Cases of each model: on a GPU batch 32 in float16, on a CPU one image in float32."""
    on_cpu = args.device == "cpu"
    hardware = args.hardware or ("amd-epyc-2-threads" if on_cpu else None)
    size = args.img_size or (64 if args.quick else None)
    batch = args.batch_size or (1 if on_cpu else 32)
    precision = args.precision or ("float32" if on_cpu else "float16")
    models = args.models or (["mobilenet_v3_small"] if args.quick else MODELS)
    ways = args.way or WAYS
    return [[BuildCase(one, batch, size, precision, args.device, hardware, way) for way in ways] for one in models]


def main() -> None:
    """Measure the cases that the file lacks, and print the table; or measure one case in this process."""
    args = arguments()
    if args.one:
        try:
            print(json.dumps(build(BuildCase(**json.loads(args.one)))))
        except Exception as error:  # noqa: BLE001 - whatever fails is a row of the table
            sys.exit(own_words(error))
        return
    if args.no_measure or args.write:
        with args.output.open(newline="", encoding="utf-8") as file:
            table_text = document_table(list(csv.DictReader(file)))
        print_or_write({"build times": table_text}, "scripts/build_times.py", args.write)
        return
    table = Table(args.output, args.device)
    end = time.monotonic() + args.budget
    with tempfile.TemporaryDirectory() as kept, ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda cases: measure_model(cases, table, end, Path(kept)), cases_of(args)))
    print("\n".join(summary(table.rows)))


if __name__ == "__main__":
    main()
