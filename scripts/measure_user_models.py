"""Measures models as users bring them, in fresh processes: latencies and compile times of torch.compile's modes.

python scripts/measure_user_models.py --latency-only -o latency.jsonl --budget 9m
python scripts/measure_user_models.py --compile-times -o compile.jsonl --budget 9m
python scripts/measure_user_models.py --latency-only --quick -o here.jsonl           on a CPU, a few small models

Latencies: processes compile side by side, then measure one at a time. Compile times: one process with an empty cache
and a second one with the cache that it left, alone on the machine. Records are appended as they come; what the file
holds is not measured again, except failures with --retry. MODEL is FILE.py:CALLABLE, a torchvision model or timm:NAME.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from user_models import MODELS

from collectors.whole_models.fresh_case import Job, Record
from collectors.whole_models.fresh_runs import Limits, interleaved, key, run_compile_times, run_latency

LIBRARY = """
resnet18 mobilenet_v2 timm:convnext_atto timm:deit_tiny_patch16_224 efficientnet_b0 squeezenet1_1 timm:resnet26d
googlenet timm:mobilevit_xs shufflenet_v2_x1_0 regnet_y_400mf timm:mixer_s32_224 mnasnet1_0 timm:ghostnet_100 vgg11
timm:levit_128s resnet50 densenet121 timm:edgenext_xx_small vit_b_16 timm:poolformer_s12 alexnet swin_t timm:repvgg_a0
mobilenet_v3_large timm:lcnet_050 convnext_tiny timm:pit_ti_224 timm:dla34 timm:resnest14d timm:coat_lite_tiny
timm:gmixer_24_224
""".split()  # noqa: SIM905 - lists this long read better as text
"""Models of libraries, small ones first."""
COMPILED = """
segmentation:unet transformers:register_vit detection:siamese video:crnn awkward:prints imaging:espcn
classifiers:senet classifiers:shuffle_mobile transformers:mixer imaging:dcgan_generator detection:yolo_like
awkward:reads_scale imaging:vae video:c3d classifiers:group_norm_resnet detection:face_mesh transformers:window_net
imaging:diffusion_unet
""".split()  # noqa: SIM905 - lists this long read better as text
"""User models whose compile times are measured, beside as many of LIBRARY."""
QUICK = ("imaging:autoencoder", "awkward:prints", "awkward:normalises_in_place", "awkward:early_exit")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="instead of the lists of this script")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--latency-only", action="store_true", help="compile in parallel, then measure latencies")
    what.add_argument("--compile-times", action="store_true", help="cold and warm compile times, one at a time")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "-b", "--batch-size", type=int, action="append", help="default: 1, and a larger one for latency"
    )
    parser.add_argument("--mode", action="append", help="default: default and reduce-overhead")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=_seconds, default=_seconds("9m"), help="such as 9m or 540s")
    parser.add_argument("--processes", type=int, default=14, help="that prepare at once")
    parser.add_argument(
        "--held", type=int, default=0, help="processes in a block; default: 28, or 24 for compile times"
    )
    parser.add_argument("--ready", type=float, default=170.0, help="seconds until a process must be ready")
    parser.add_argument("--measure", type=float, default=0.0, help="seconds of a turn; default: 25, or 110 to compile")
    parser.add_argument("--only", choices=("user", "library"), help="one of the two lists")
    parser.add_argument("--retry", action="store_true", help="also what failed before")
    parser.add_argument("--quick", action="store_true", help="a few models on the CPU, two processes, short series")
    return parser.parse_args()


def _seconds(text: str) -> float:
    return float(text.removesuffix("m")) * 60 if text.endswith("m") else float(text.removesuffix("s"))


def spec(name: str) -> str:
    """A model as a process finds it from the project's folder: `detection:yolo_like` becomes FILE.py:CALLABLE."""
    source, _, builder = name.partition(":")
    if source in MODELS:
        return f"scripts/user_models/{source}.py:{builder}"
    return str(Path(name).resolve()) if ".py:" in name else name


def groups(args: argparse.Namespace) -> list[list[tuple[str, int]]]:
    """Models, each with its larger batch size, in groups of a kind."""
    user = {f"{file}:{name}": batch for file, names in MODELS.items() for name, batch in names.items()}
    if args.models or args.quick:
        return [[(spec(name), user.get(name, 32)) for name in args.models or QUICK]]
    if args.compile_times:
        found = [[(name, 1) for name in COMPILED], [(name, 1) for name in LIBRARY[: len(COMPILED)]]]
    else:
        kinds = [[(f"{file}:{name}", batch) for name, batch in names.items()] for file, names in MODELS.items()]
        found = [*kinds, [(name, 32) for name in LIBRARY]]
    chosen = {"user": found[:-1], "library": found[-1:]}.get(args.only, found)
    return [[(spec(name), batch) for name, batch in group] for group in chosen]


def all_jobs(args: argparse.Namespace) -> list[Job]:
    """Every process that is asked for, in an order that keeps a run that is cut balanced."""
    modes = tuple(args.mode or ("default", "reduce-overhead"))
    seconds, rounds = (0.03, 1) if args.quick or args.compile_times else (0.1, 2)
    run = "cold" if args.compile_times else "latency"

    def job(model: str, batch_size: int, modes: tuple[str, ...]) -> Job:
        return Job(model, batch_size, modes, args.device, run, seconds, rounds)

    if args.compile_times:
        sizes = args.batch_size or [1]
        return interleaved(
            [
                [job(name, size, (mode,)) for name, _ in group for size in sizes for mode in modes]
                for group in groups(args)
            ]
        )
    sizes = args.batch_size or ([1] if args.quick else [1, 0])
    return interleaved(
        [[job(name, size or larger, modes) for name, larger in group] for group in groups(args) for size in sizes]
    )


def remaining(jobs: list[Job], known: list[Record], retry: bool) -> list[Job]:
    """The jobs, and those of their modes, that the records do not cover; a failure covers its case unless retried."""
    counted = [record for record in known if record["status"] == "ok" or not retry]
    last = {"cold": "warm"}
    done = {key(record) for record in counted}
    failed_cold = {(*key(record)[:2], "warm", record["mode"]) for record in counted if record["status"] != "ok"}
    done |= failed_cold
    left = []
    for job in jobs:
        ends = (job.model, job.batch_size, last.get(job.run, job.run))
        modes = tuple(mode for mode in job.modes if (*ends, mode) not in done and (*ends, "") not in done)
        left += [replace(job, modes=modes)] if modes else []
    return left


def summary(record: Record) -> str:
    """A line for a record."""
    name = f"{record['model'].rpartition('/')[2]}@{record['batch_size']} {record['run']} {record['mode']}"
    took = f" {sum(record['calls_s']):.2f} s" if "calls_s" in record else ""
    if record["status"] != "ok":
        return f"{name}: {record['status']}{took} {record.get('error', '')[:120]}"
    eager, compiled = (statistics.median(itertools.chain(*record[kind])) / 1e3 for kind in ("eager_us", "compiled_us"))
    extra = f", {record['graphs']} graphs" if record["graphs"] != 1 else ""
    extra += f", {record['cudagraph_skips']} skips" if record["cudagraph_skips"] else ""
    return f"{name}:{took} eager {eager:.3f} ms, compiled {compiled:.3f} ms ({eager / compiled:.2f}x){extra}"


def main() -> None:
    """Measures what the file does not hold yet, and says how it went."""
    args = arguments()
    begin = time.monotonic()
    if args.quick:
        args.device, args.processes, args.held = "cpu", 2, args.held or 4
    known = args.output.read_text(encoding="utf-8").splitlines() if args.output.exists() else []
    jobs = remaining(all_jobs(args), [json.loads(line) for line in known], args.retry)
    held = args.held or (24 if args.compile_times else 28)
    measure_s = args.measure or (110.0 if args.compile_times else 25.0)
    limits = Limits(args.ready, measure_s, args.processes, held, begin + args.budget)
    print(f"{len(jobs)} processes' work is left", flush=True)
    run = run_compile_times if args.compile_times else run_latency
    ends: Counter[str] = Counter()
    with args.output.open("a", encoding="utf-8") as out:
        for records in run(jobs, limits):
            for record in records:
                out.write(json.dumps(record) + "\n")
                ends[record["status"]] += 1
                print(f"{time.monotonic() - begin:.0f} s: {summary(record)}", flush=True)
            out.flush()
    print(f"{time.monotonic() - begin:.0f} s; records: {dict(ends)}")


if __name__ == "__main__":
    main()
