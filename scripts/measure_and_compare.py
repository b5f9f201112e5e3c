"""Plans against every mode of torch.compile, measured side by side in one run, model by model, and a summary.

python scripts/measure_and_compare.py -o compared.jsonl           the twelve models, batch 1 and 32, float32 and float16
python scripts/measure_and_compare.py resnet50 -b 32 -o one.jsonl --mode max-autotune --strategy published
python scripts/measure_and_compare.py -o docs/data/compared_h200.jsonl --changed     what would be planned otherwise now
python scripts/measure_and_compare.py -o docs/data/compared_h200.jsonl --no-measure --write docs/plans.md
python scripts/measure_and_compare.py -o docs/data/moves_h200.jsonl --no-measure --write-moves docs/plans.md
python scripts/measure_and_compare.py -o docs/data/others_h200.jsonl --no-measure --write-others docs/plans.md

First parallel processes plan and compile every case, which fills Inductor's cache; then this process alone measures.
Each line of the file is one validation; a model that is in the file already is not measured again.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markdown_tables import replace_section
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
class Case:
    """What is planned and measured, and how."""

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
        """Identifies the case in the file of results."""
        return [self.model, self.batch_size, self.precision]

    def path(self, variant: str) -> Path:
        """Where a plan for it is kept."""
        return self.plans / f"{self.model}-{self.batch_size}-{self.precision}-{variant}.json".replace(":", "-")

    def plan_before(self) -> dict[str, Plan]:
        """The plan that another version made of it, if there is one."""
        path = self.before / self.path("plan").name if self.before else None
        return {BEFORE: Plan.load(path)} if path and path.exists() else {}


def prepare(case: Case) -> dict[str, float]:
    """Plans and compiles a case, so that the cache on disk holds all of it; seconds that each step took."""
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
        for one in made.values():  # before the module's first call, which may leave something in it
            apply(loaded.module, one, example, check=False)
        passed("apply")
        for mode in ("default", *case.modes):
            torch._dynamo.reset()
            torch.compile(loaded.module, mode=mode)(*example)
            passed(mode)
    return seconds


def measured(case: Case, seconds: float) -> dict[str, Any]:
    """One case: predicted and measured in every mode and as planned."""
    import torch

    from costmodel.measurement.validation import USUAL, resolve_device, validate
    from costmodel.zoo import load_real

    torch._dynamo.reset()  # it compiles the same code for so many models only
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
    """What a record tells of its plan."""
    backends = {name: sum(region.backend == name for region in made.regions) for name in ("cudnn", "inductor", "eager")}
    return {"rewrites": list(made.rewrites), "backends": backends, "streams": made.streams}


def is_planned_otherwise(record: dict[str, Any], hardware: str) -> bool:
    """Whether a measured case would get another plan now, as far as its record tells."""
    from costmodel.planning.api import plan
    from costmodel.zoo import load

    model, batch_size, precision = record["case"]
    loaded = load(model, batch_size=batch_size, precision=precision)
    now = made_of(plan(loaded.module, loaded.inputs, hardware=hardware, model_name=model))
    return any(record.get(name) != value for name, value in now.items())


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-b", "--batch-size", type=int, action="append")
    parser.add_argument("--precision", action="append")
    parser.add_argument("--mode", action="append", default=[], help="a mode beside default and reduce-overhead")
    parser.add_argument(
        "--strategy",
        action="append",
        default=[],
        choices=(UNSEARCHED, UNFORKED, UNMERGED, *STRATEGIES),
        help="a plan beside ours",
    )
    parser.add_argument("--hardware", default="nvidia-h200")
    parser.add_argument("--device", default="")
    parser.add_argument("--seconds", type=float, default=0.1, help="of measuring a way in each of seven rounds")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds for all")
    parser.add_argument("--prepare-share", type=float, default=0.4, help="of the budget, for compiling in parallel")
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--plans", type=Path, help="folder for the plans; a temporary one if not given")
    parser.add_argument("--before", type=Path, help="folder of --plans of another version, measured beside as `before`")
    parser.add_argument("-o", "--output", type=Path, default=Path("compared.jsonl"))
    parser.add_argument(
        "--changed", action="store_true", help="also what is in the file and would be planned otherwise"
    )
    parser.add_argument("--no-measure", action="store_true", help="only show what the file holds")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables there")
    parser.add_argument("--write-others", type=Path, metavar="FILE", help="put the table of other models there")
    parser.add_argument("--write-moves", type=Path, metavar="FILE", help="put there what the moves are worth")
    return parser.parse_args()


def main() -> None:
    """Measures what is not in the file yet, then prints the summary of all that is."""
    args = arguments()
    begin = time.monotonic()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))
    plans = args.plans or Path(tempfile.mkdtemp())
    plans.mkdir(parents=True, exist_ok=True)
    known = args.output.read_text(encoding="utf-8").splitlines() if args.output.exists() else []
    records = [json.loads(line) for line in known]
    rest = (args.hardware, args.device, tuple(args.mode), tuple(args.strategy), plans, args.before)
    cases = [
        Case(model, batch_size, precision, *rest)
        for precision in args.precision or ("float32", "float16")
        for batch_size in args.batch_size or (1, 32)
        for model in args.models
    ]
    known_keys = [record["case"] for record in records]
    if args.changed:
        cases_known = latest(records)
        planning = tracked(cases_known, "planning case")
        changed = [one["case"] for one in planning if is_planned_otherwise(one, args.hardware)]
        print(f"{len(changed)} of {len(cases_known)} cases would be planned otherwise: {changed}", flush=True)
        known_keys = [key for key in known_keys if key not in changed]
    todo = [case for case in cases if case.key not in known_keys and not args.no_measure]
    end = begin + args.budget * args.prepare_share
    unplanned = [case for case in todo if not case.path("plan").exists()]
    for count, (case, outcome) in enumerate(in_parallel(prepare, unplanned, args.processes, end, ONE_THREAD), 1):
        print(
            f"{time.monotonic() - begin:.0f} s: prepared {count} of {len(unplanned)}: {case.key} {outcome!r}"[:300],
            flush=True,
        )
    for case in todo:
        if time.monotonic() > begin + args.budget:
            break
        if not case.path("plan").exists():
            continue
        try:
            record = measured(case, args.seconds)
        except (CostmodelError, RuntimeError) as error:
            record = {"case": case.key, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        records.append(record)
        with args.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{time.monotonic() - begin:.0f} s: {lines([record])[0]}", flush=True)
        if "CUDA error" in record.get("error", ""):
            sys.exit("CUDA has failed in this process; give the same command again to go on with the next case")
    print("\n".join(lines(latest(records))))
    for path, text, *marks in (
        (args.write, comparison_markdown, BEGIN, END),
        (args.write_others, others_markdown, OTHERS_BEGIN, OTHERS_END),
        (args.write_moves, moves_markdown, MOVES_BEGIN, MOVES_END),
    ):
        if path:
            path.write_text(replace_section(path, text(records), *marks), encoding="utf-8")


if __name__ == "__main__":
    main()
