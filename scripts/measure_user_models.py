"""Measure models as users bring them, in processes of their own: latencies and compile times of torch.compile's modes.

python scripts/measure_user_models.py --latency-only -o latency.jsonl --budget 9m
python scripts/measure_user_models.py --compile-times -o compile.jsonl --budget 9m
python scripts/measure_user_models.py --compile-times --device cuda:0 --device cuda:1 -o compile.jsonl
python scripts/measure_user_models.py --latency-only --quick -o here.jsonl           on a CPU, a few small models

The collector is `collectors.whole_models.collect`. Cases in the file are not measured again, except failures with
--retry. MODEL is FILE.py:CALLABLE, a torchvision model or timm:NAME.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from pathlib import Path

from user_models import MODELS

from collectors.whole_models.collect import WholeModelSettings, collect, print_line
from collectors.whole_models.own_processes import OwnProcessSettings, interleaved
from collectors.whole_models.records import Record
from collectors.whole_models.timing import RoundSettings
from collectors.workloads.model_cases import WholeModelCase

LIBRARY = """
resnet18 mobilenet_v2 timm:convnext_atto timm:deit_tiny_patch16_224 efficientnet_b0 squeezenet1_1 timm:resnet26d
googlenet timm:mobilevit_xs shufflenet_v2_x1_0 regnet_y_400mf timm:mixer_s32_224 mnasnet1_0 timm:ghostnet_100 vgg11
timm:levit_128s resnet50 densenet121 timm:edgenext_xx_small vit_b_16 timm:poolformer_s12 alexnet swin_t timm:repvgg_a0
mobilenet_v3_large timm:lcnet_050 convnext_tiny timm:pit_ti_224 timm:dla34 timm:resnest14d timm:coat_lite_tiny
timm:gmixer_24_224
""".split()  # noqa: SIM905 - lists this long read better as text
"""Models of torchvision and timm, small ones first."""
COMPILED = """
segmentation:unet transformers:register_vit detection:siamese video:crnn python_in_forward:prints restoration:espcn
classifiers:senet classifiers:shuffle_mobile transformers:mixer generation:dcgan_generator detection:yolo_like
data_dependent:reads_scale generation:vae video:c3d classifiers:group_norm_resnet detection:face_mesh
transformers:window_net generation:diffusion_unet
""".split()  # noqa: SIM905 - lists this long read better as text
"""User models whose compile times are measured, beside LIBRARY."""
USER_MODELS = Path(__file__).parent / "user_models"
QUICK = (
    "generation:autoencoder",
    "python_in_forward:prints",
    "stateful:normalises_in_place",
    "data_dependent:early_exit",
)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="instead of the lists of this script")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--latency-only", action="store_true", help="compile in parallel, then measure latencies")
    what.add_argument(
        "--compile-times", action="store_true", help="cold and warm compile times, one at a time on each device"
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "-b", "--batch-size", type=int, action="append", help="default: 1, and a larger one for latency"
    )
    parser.add_argument("--mode", action="append", help="default: default and reduce-overhead")
    parser.add_argument("--device", action="append", help="default: cuda; several measure side by side")
    parser.add_argument("--budget", type=_seconds, default=_seconds("9m"), help="such as 9m or 540s")
    parser.add_argument("--processes", type=int, default=14, help="that prepare at once for each device")
    parser.add_argument(
        "--held", type=int, default=0, help="processes in a block; default: 28, or 24 a device for compile times"
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
    """Spec of a model: `detection:yolo_like` becomes FILE.py:CALLABLE."""
    source, _, builder = name.partition(":")
    if source in MODELS:
        return f"{os.path.relpath(USER_MODELS / source)}.py:{builder}"
    return str(Path(name).resolve()) if ".py:" in name else name


def groups(args: argparse.Namespace) -> list[list[tuple[str, int]]]:
    """Models, each with its larger batch size, in groups of a kind."""
    user = {f"{file}:{name}": batch for file, names in MODELS.items() for name, batch in names.items()}
    if args.models or args.quick:
        return [[(spec(name), user.get(name, 32)) for name in args.models or QUICK]]
    if args.compile_times:
        found = [[(name, 1) for name in COMPILED], [(name, 1) for name in LIBRARY]]
    else:
        kinds = [[(f"{file}:{name}", batch) for name, batch in names.items()] for file, names in MODELS.items()]
        found = [*kinds, [(name, 32) for name in LIBRARY]]
    chosen = {"user": found[:-1], "library": found[-1:]}.get(args.only, found)
    return [[(spec(name), batch) for name, batch in group] for group in chosen]


def all_cases(args: argparse.Namespace) -> list[WholeModelCase]:
    """Cases in an order that keeps a run that is cut balanced."""

    def case(model: str, batch_size: int) -> WholeModelCase:
        return {"model": model, "batch_size": batch_size, "precision": "float32", "layout": "nchw"}

    sizes = args.batch_size or ([1] if args.quick or args.compile_times else [1, 0])
    return interleaved(
        [[case(name, size or larger) for name, larger in group] for group in groups(args) for size in sizes]
    )


def settings(args: argparse.Namespace) -> WholeModelSettings:
    """Settings of the collector."""
    devices = ("cpu",) if args.quick else tuple(args.device or ("cuda",))
    own = OwnProcessSettings(
        processes=2 if args.quick else args.processes * len(devices),
        held=args.held or (4 if args.quick else 24 if args.compile_times else 28),
        ready_s=args.ready,
        measure_s=args.measure or (110.0 if args.compile_times else 25.0),
        rounds=RoundSettings(2, 0.03 if args.quick else 0.1, samples=True, kernels=True),
    )
    return WholeModelSettings(
        devices=devices,
        seconds=args.budget,
        modes=tuple(args.mode or ("default", "reduce-overhead")),
        compile_times=args.compile_times,
        retry=args.retry,
        own=own,
    )


def main() -> None:
    """Measure the cases that the file does not hold yet, and print how they ended."""
    args = arguments()
    begin = time.monotonic()
    ends: Counter[str] = Counter()

    def report(record: Record) -> None:
        ends[record.get("status", "ok")] += 1
        print_line(record)

    collect(all_cases(args), args.output, settings(args), report)
    print(f"{time.monotonic() - begin:.0f} s; records: {dict(ends)}")


if __name__ == "__main__":
    main()
