"""Plans and modes of torch.compile, measured side by side in one process, model by model, with a summary.

python scripts/measure_and_compare.py -o compared.jsonl             twelve models, batch 1 and 32, float32 and float16
python scripts/measure_and_compare.py resnet50 -b 32 -o one.jsonl --mode max-autotune --strategy published
python scripts/measure_and_compare.py -o docs/data/compared_h200.jsonl --changed      also cases planned differently now
python scripts/measure_and_compare.py -o steps.jsonl --training --optimizer momentum -b 8 -b 32    training steps
instead python scripts/measure_and_compare.py -o docs/data/compared_h200.jsonl --no-measure --write docs/plans.md
python scripts/measure_and_compare.py -o docs/data/moves_h200.jsonl --no-measure --write-moves docs/plans.md
python scripts/measure_and_compare.py -o docs/data/others_h200.jsonl --no-measure --write-others docs/plans.md

Settings that an expert would try beside the plan (channels_last, cuDNN's search, TF32, freezing, autotuned matmuls) are
measured by scripts/measure_expert_settings.py.

Parallel processes first plan and compile every case, which fills Inductor's cache; then this process measures alone.
Each line of the file is one validation; a case in the file is not measured again.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markdown_tables import replace_section
from measured_steps import measured_steps, step_lines
from plan_tables import (
    BEFORE,
    BEGIN,
    END,
    MODELS,
    MOVES_BEGIN,
    MOVES_END,
    OTHERS_BEGIN,
    OTHERS_END,
    UNFORKED,
    UNMERGED,
    UNSEARCHED,
    comparison_markdown,
    latest,
    lines,
    moves_markdown,
    others_markdown,
)

from collectors.processes.process_pool import ONE_THREAD, default_processes, in_parallel
from costmodel.errors import CostmodelError
from costmodel.planning.oracle import STRATEGIES
from costmodel.planning.plan import Plan
from costmodel.report.progress import tracked


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A model to plan and measure, with its settings."""

    model: str
    batch_size: int
    precision: str
    hardware: str
    device: str
    modes: tuple[str, ...]
    variants: tuple[str, ...]
    plans: Path
    before: Path | None = None

    @property
    def key(self) -> list[Any]:
        """Key of the case in the file of results."""
        return [self.model, self.batch_size, self.precision]

    def path(self, variant: str) -> Path:
        """File of a plan of the case."""
        return self.plans / f"{self.model}-{self.batch_size}-{self.precision}-{variant}.json".replace(":", "-")

    def plan_before(self) -> dict[str, Plan]:
        """Plan by another version, if there is one."""
        path = self.before / self.path("plan").name if self.before else None
        return {BEFORE: Plan.load(path)} if path and path.exists() else {}


def prepare(case: PlannedCase) -> dict[str, float]:
    """Plan and compile a case to fill the cache on disk; seconds of each step."""
    import torch

    from costmodel.execution.inductor_compile import share_cache
    from costmodel.execution.numerics import random_like
    from costmodel.execution.planned_module import apply
    from costmodel.measurement.validation import resolve_device
    from costmodel.planning.api import plan, theoretical_ms
    from costmodel.zoo import load_real

    device = resolve_device(case.device)
    begin = time.perf_counter()
    seconds: dict[str, float] = {}

    def passed(step: str) -> None:
        seconds[step] = round(time.perf_counter() - begin - sum(seconds.values()), 2)

    loaded = load_real(case.model, device, batch_size=case.batch_size, precision=case.precision)
    made: dict[str, Plan] = {}
    options: dict[str, Any] = {"hardware": case.hardware, "model_name": case.model}
    for variant in ("plan", *case.variants):
        if variant == UNSEARCHED:
            made[variant] = replace(made["plan"], search=False)
        elif variant == UNFORKED:
            made[variant] = plan(loaded.module, loaded.inputs, **options, fork=False)
        elif variant == UNMERGED:
            made[variant] = plan(loaded.module, loaded.inputs, **options, branch_rewrites=False)
        else:
            strategy = "exact" if variant == "plan" else variant
            made[variant] = plan(loaded.module, loaded.inputs, **options, strategy=strategy)
    if "published" in case.variants:
        bound = theoretical_ms(loaded.module, loaded.inputs, hardware=case.hardware)
        case.path("theoretical").write_text(json.dumps(bound))
    passed("plan")
    for variant, one in made.items():
        one.save(case.path(variant))
    made |= case.plan_before()
    share_cache()
    example = tuple(random_like(item, device) for item in loaded.inputs if isinstance(item, torch.Tensor))
    with torch.no_grad():
        for one in made.values():  # before the module's first call, which may change its state
            apply(loaded.module, one, example, check=False)
        passed("apply")
        for mode in ("default", *case.modes):
            torch._dynamo.reset()
            torch.compile(loaded.module, mode=mode)(*example)
            passed(mode)
    return seconds


def measured(case: PlannedCase, seconds: float) -> dict[str, Any]:
    """Record of one case: predicted and measured in every mode and as planned."""
    import torch

    from costmodel.measurement.validation import USUAL, resolve_device, validate
    from costmodel.zoo import load_real

    torch._dynamo.reset()  # Dynamo limits recompilations of the same code
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    loaded = load_real(case.model, resolve_device(case.device), batch_size=case.batch_size, precision=case.precision)
    made = Plan.load(case.path("plan"))
    found = validate(
        loaded.module,
        tuple(loaded.inputs),
        plan=made,
        others={variant: Plan.load(case.path(variant)) for variant in case.variants} | case.plan_before(),
        hardware=case.hardware,
        model_name=case.model,
        modes=(*USUAL, *case.modes),
        seconds=seconds,
    )
    bound = case.path("theoretical")
    theoretical = {"theoretical_ms": json.loads(bound.read_text())} if bound.exists() else {}
    return {"case": case.key, **theoretical, **made_of(made), **found.to_dict()}


def made_of(made: Plan) -> dict[str, Any]:
    """Description of a plan in a record."""
    backends = {name: sum(region.backend == name for region in made.regions) for name in ("cudnn", "inductor", "eager")}
    return {"rewrites": list(made.rewrites), "backends": backends, "streams": made.streams}


def is_planned_differently(record: dict[str, Any], hardware: str) -> bool:
    """Whether the record of a case describes another plan than the one made now."""
    from costmodel.planning.api import plan
    from costmodel.zoo import load

    model, batch_size, precision = record["case"]
    loaded = load(model, batch_size=batch_size, precision=precision)
    now = made_of(plan(loaded.module, loaded.inputs, hardware=hardware, model_name=model))
    return any(record.get(name) != value for name, value in now.items())


def arguments() -> argparse.Namespace:
    """Parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("-b", "--batch-size", type=int, action="append")
    parser.add_argument("--precision", action="append")
    parser.add_argument("--mode", action="append", default=[], help="a mode besides default and reduce-overhead")
    parser.add_argument(
        "--strategy",
        action="append",
        default=[],
        choices=(UNSEARCHED, UNFORKED, UNMERGED, *STRATEGIES),
        help="a further plan, by another strategy or variant",
    )
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--device", default="")
    parser.add_argument("--seconds", type=float, default=0.1, help="to measure a mode in each of seven rounds")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds in all")
    parser.add_argument("--prepare-share", type=float, default=0.4, help="share of the budget for compiling")
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--plans", type=Path, help="directory that keeps the plans; default: a temporary one")
    parser.add_argument(
        "--before", type=Path, help="--plans directory of another version, whose plans are measured too"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("compared.jsonl"))
    parser.add_argument(
        "--changed", action="store_true", help="also cases in the file that are planned differently now"
    )
    parser.add_argument("--no-measure", action="store_true", help="only print the summary of the file")
    parser.add_argument("--training", action="store_true", help="training steps, eager and compiled, without plans")
    parser.add_argument("--optimizer", default="sgd", help="of the training steps")
    parser.add_argument("--amp", action="append", choices=("none", "float16", "bfloat16"), help="of the training steps")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables between their marks there")
    parser.add_argument("--write-others", type=Path, metavar="FILE", help="put the table of further models there")
    parser.add_argument("--write-moves", type=Path, metavar="FILE", help="put the table of gains by rewrites there")
    return parser.parse_args()


def cases_of(args: argparse.Namespace, plans: Path) -> list[PlannedCase]:
    """Every case of the command line."""
    rest = (args.hardware, args.device, tuple(args.mode), tuple(args.strategy), plans, args.before)
    return [
        PlannedCase(model, batch_size, precision, *rest)
        for precision in args.precision or ("float32", "float16")
        for batch_size in args.batch_size or (1, 32)
        for model in args.models
    ]


def missing_cases(
    args: argparse.Namespace, cases: list[PlannedCase], records: list[dict[str, Any]]
) -> list[PlannedCase]:
    """Cases without a record, and with `--changed` those whose plan differs from the recorded one."""
    known = [record["case"] for record in records]
    if args.changed:
        last = latest(records)
        changed = [one["case"] for one in tracked(last, "planning case") if is_planned_differently(one, args.hardware)]
        print(f"{len(changed)} of {len(last)} cases are planned differently now: {changed}", flush=True)
        known = [key for key in known if key not in changed]
    return [case for case in cases if case.key not in known]


def prepare_all(cases: list[PlannedCase], processes: int, begin: float, seconds: float) -> None:
    """Plan and compile cases in parallel, for a limited time."""
    prepared = in_parallel(prepare, cases, processes, begin + seconds, ONE_THREAD)
    for count, (case, outcome) in enumerate(prepared, 1):
        line = f"{time.monotonic() - begin:.0f} s: prepared {count} of {len(cases)}: {case.key} {outcome!r}"
        print(line[:300], flush=True)


def record_of(case: PlannedCase, seconds: float) -> dict[str, Any]:
    """Record of a case, measured or failed."""
    try:
        return measured(case, seconds)
    except (CostmodelError, RuntimeError) as error:
        return {"case": case.key, "error": f"{type(error).__name__}: {error}".splitlines()[0]}


def measure_all(args: argparse.Namespace, cases: list[PlannedCase], begin: float) -> Iterator[dict[str, Any]]:
    """Records of the prepared cases, each appended to the file, until the budget is spent."""
    for case in cases:
        if time.monotonic() > begin + args.budget:
            return
        if not case.path("plan").exists():
            continue
        record = record_of(case, args.seconds)
        with args.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{time.monotonic() - begin:.0f} s: {lines([record])[0]}", flush=True)
        yield record
        if "CUDA error" in record.get("error", ""):
            sys.exit("CUDA failed in this process; run the same command again to continue with the next case")


def write_tables(args: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    """Put each requested table between its marks."""
    for path, text, *marks in (
        (args.write, comparison_markdown, BEGIN, END),
        (args.write_others, others_markdown, OTHERS_BEGIN, OTHERS_END),
        (args.write_moves, moves_markdown, MOVES_BEGIN, MOVES_END),
    ):
        if path:
            path.write_text(replace_section(path, text(records), *marks), encoding="utf-8")


def main() -> None:
    """Measure the cases missing in the file, then print the summary."""
    args = arguments()
    begin = time.monotonic()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))
    known = args.output.read_text(encoding="utf-8").splitlines() if args.output.exists() else []
    records = [json.loads(line) for line in known]
    if args.training:
        records += [] if args.no_measure else measured_steps(args, records, begin)
        print("\n".join(step_lines(records)))
        return
    if not args.no_measure:
        plans = args.plans or Path(tempfile.mkdtemp())
        plans.mkdir(parents=True, exist_ok=True)
        missing = missing_cases(args, cases_of(args, plans), records)
        unplanned = [case for case in missing if not case.path("plan").exists()]
        prepare_all(unplanned, args.processes, begin, args.budget * args.prepare_share)
        records += measure_all(args, missing, begin)
    print("\n".join(lines(latest(records))))
    write_tables(args, records)


if __name__ == "__main__":
    main()
