"""Whole-model cases: model, batch size, precision and layout as a dict, and its key.

python -m collectors.workloads.model_cases cases.json                       autocast, and float32 matmuls in TF32
python -m collectors.workloads.model_cases cases.json --cudnn-benchmark     cudnn.benchmark on, and off
python -m collectors.workloads.model_cases cases.json --training            training steps
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WholeModelCase = dict[str, Any]
"""`model` (a spec of costmodel.zoo), `batch_size`, `precision`, `layout`; where they are no defaults, `img_size`, `amp`
(`float16` or `bfloat16`: each call runs under autocast), `matmul_precision` (`high` or `medium`), `cudnn_benchmark`
(true: cuDNN times its algorithms), and `pass` (`training`: each call is a training step) with `optimizer`."""
AMP_MODELS = (
    "resnet50", "vit_b_16", "efficientnet_b0", "convnext_tiny", "mobilenet_v3_large", "swin_t", "densenet121",
    "regnet_y_800mf", "resnet18", "vgg16", "mobilenet_v2", "resnext50_32x4d", "inception_v3", "efficientnet_v2_s",
    "maxvit_t", "shufflenet_v2_x1_0", "timm:deit_tiny_patch16_224", "timm:mixer_s32_224", "timm:seresnet50",
    "timm:convnextv2_atto", "timm:poolformer_s12",
)  # fmt: skip
"""Models of the cases of `in_other_precisions`, the most used first."""
AMP_BATCHES = (32, 1)
BENCHMARK_BATCHES = (32,)
BENCHMARK_MODELS = (
    "timm:hrnet_w18_small", "timm:ghostnetv2_100", "timm:mobilenetv3_small_100", "efficientnet_b0", "resnet50",
    "densenet121", "resnext50_32x4d", "inception_v3",
)  # fmt: skip
"""Models whose convolutions are timed by cuDNN: those that fit no tensor core, depth-wise, grouped, and plain ones."""
TRAINING_MODELS = (
    "resnet50", "vit_b_16", "efficientnet_b0", "convnext_tiny", "mobilenet_v3_large", "swin_t", "densenet121",
    "regnet_y_800mf", "resnet18", "vgg16", "mobilenet_v2", "resnext50_32x4d", "inception_v3", "efficientnet_v2_s",
    "shufflenet_v2_x1_0", "mnasnet1_0", "squeezenet1_1", "googlenet", "timm:deit_tiny_patch16_224",
    "timm:mixer_s32_224", "timm:seresnet50", "timm:convnextv2_atto", "timm:poolformer_s12", "timm:ghostnet_100",
    "timm:dla60", "timm:cspdarknet53", "timm:pit_xs_224", "timm:mobilevitv2_050",
)  # fmt: skip
"""Models whose training steps are measured."""
TRAINING_VARIANTS: tuple[WholeModelCase, ...] = (
    {"batch_size": 32}, {"batch_size": 32, "amp": "float16"}, {"batch_size": 8, "amp": "float16"}, {"batch_size": 8},
)  # fmt: skip
"""Batch sizes and autocast of the training steps."""
TRAINING, INFERENCE = "training", "inference"
"""Passes of a case, under `pass`; without that field, inference."""
OTHER_PRECISIONS: tuple[WholeModelCase, ...] = ({"amp": "float16"}, {"matmul_precision": "high"}, {"amp": "bfloat16"})
"""Fields of the cases of `in_other_precisions`."""


def case_key(case: WholeModelCase) -> str:
    """One line that identifies a case: `resnet50@32 float16 nchw`, `vit_b_16@32 float32 nchw amp=float16`."""
    size = f" {case['img_size']}px" if case.get("img_size") else ""
    amp = f" amp={case['amp']}" if case.get("amp") else ""
    matmuls = f" matmuls={case['matmul_precision']}" if case.get("matmul_precision", "highest") != "highest" else ""
    step = f" training {case['optimizer']}" if case.get("pass", INFERENCE) == TRAINING else ""
    benchmark = " cudnn.benchmark" if case.get("cudnn_benchmark") else ""
    one = f"{case['model']}@{case['batch_size']} {case['precision']} {case['layout']}"
    return f"{one}{size}{amp}{matmuls}{benchmark}{step}"


def training_cases(models: Sequence[str] = TRAINING_MODELS) -> list[WholeModelCase]:
    """Training steps of SGD with momentum, in every variant; each turn has each model once."""
    same = {"precision": "float32", "layout": "nchw", "pass": TRAINING, "optimizer": "momentum"}
    count = len(TRAINING_VARIANTS)
    return [
        {"model": model, **same, **TRAINING_VARIANTS[(index + turn) % count]}
        for turn in range(count)
        for index, model in enumerate(models)
    ]


def with_cudnn_benchmark(
    models: Sequence[str] = BENCHMARK_MODELS, batches: Sequence[int] = BENCHMARK_BATCHES
) -> list[WholeModelCase]:
    """Models under autocast with cuDNN's own choice of algorithms, each followed by itself with `cudnn.benchmark`.

    Each is to be measured in a process of its own (`--times`): torch keeps the algorithm of a convolution's first call.
    """
    plain = {"precision": "float32", "layout": "nchw", "amp": "float16"}
    return [
        {"model": model, "batch_size": batch, **plain, **fields}
        for batch in batches
        for model in models
        for fields in ({}, {"cudnn_benchmark": True})
    ]


def in_other_precisions(
    models: Sequence[str] = AMP_MODELS, batches: Sequence[int] = AMP_BATCHES
) -> list[WholeModelCase]:
    """Float32 models under autocast and with matmuls in TF32, beside the same models without either.

    All cases of a model follow one another, so that a run that is cut has whole comparisons.
    """
    plain = {"precision": "float32", "layout": "nchw"}
    return [
        {"model": model, "batch_size": batch, **plain, **fields}
        for batch in batches
        for model in models
        for fields in ({}, *OTHER_PRECISIONS)
    ]


def main() -> None:
    """Write cases to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="file to write, JSON")
    parser.add_argument("--models", nargs="+", help="default: those of the kind of cases")
    parser.add_argument("--batches", nargs="+", type=int, help="of inference")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--training", action="store_true", help="training steps instead")
    kinds.add_argument("--cudnn-benchmark", action="store_true", help="torch.backends.cudnn.benchmark instead")
    args = parser.parse_args()
    if args.training:
        found = training_cases(args.models or TRAINING_MODELS)
    elif args.cudnn_benchmark:
        found = with_cudnn_benchmark(args.models or BENCHMARK_MODELS, args.batches or BENCHMARK_BATCHES)
    else:
        found = in_other_precisions(args.models or AMP_MODELS, args.batches or AMP_BATCHES)
    args.cases.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
