"""Whole-model cases: model, batch size, precision and layout as a dict, and its key.

Cases of 20 models under autocast and with float32 matmuls in TF32 are written by

    python -m collectors.workloads.model_cases cases.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WholeModelCase = dict[str, Any]
"""`model` (a spec of costmodel.zoo), `batch_size`, `precision`, `layout`; where they are no defaults, `img_size`, `amp`
(`float16` or `bfloat16`: each call runs under autocast), `matmul_precision` (`high` or `medium`), and `pass`
(`training`: each call is a training step) with `optimizer`."""
AMP_MODELS = (
    "resnet50", "vit_b_16", "efficientnet_b0", "convnext_tiny", "mobilenet_v3_large", "swin_t", "densenet121",
    "regnet_y_800mf", "resnet18", "vgg16", "mobilenet_v2", "resnext50_32x4d", "inception_v3", "efficientnet_v2_s",
    "maxvit_t", "shufflenet_v2_x1_0", "timm:deit_tiny_patch16_224", "timm:mixer_s32_224", "timm:seresnet50",
    "timm:convnextv2_atto", "timm:poolformer_s12",
)  # fmt: skip
"""Models of the cases of `in_other_precisions`, the most used first."""
AMP_BATCHES = (32, 1)
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
    return f"{case['model']}@{case['batch_size']} {case['precision']} {case['layout']}{size}{amp}{matmuls}{step}"


def training_cases(models: Sequence[str] = TRAINING_MODELS) -> list[WholeModelCase]:
    """Training steps of SGD with momentum, in every variant; each turn has each model once."""
    same = {"precision": "float32", "layout": "nchw", "pass": TRAINING, "optimizer": "momentum"}
    count = len(TRAINING_VARIANTS)
    return [
        {"model": model, **same, **TRAINING_VARIANTS[(index + turn) % count]}
        for turn in range(count)
        for index, model in enumerate(models)
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
    """Write the cases of `in_other_precisions` to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="file to write, JSON")
    parser.add_argument("--models", nargs="+", default=AMP_MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=AMP_BATCHES)
    parser.add_argument("--training", action="store_true", help="training steps of TRAINING_MODELS instead")
    args = parser.parse_args()
    found = training_cases() if args.training else in_other_precisions(args.models, args.batches)
    args.cases.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
