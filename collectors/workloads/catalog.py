"""Workloads of `costmodel collect`: the cases of each for a device, in full and in a quick form."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from collectors.processes.process_pool import ONE_THREAD, default_processes, in_parallel
from collectors.workloads import (
    backward,
    concat_blocks,
    convolution_space,
    matmuls,
    mixing_blocks,
    model_like_convolutions,
    other_precisions,
    single_operators,
)
from collectors.workloads.cases import UnitCase, distinct, read_cases, size_bytes, write_cases, write_whole
from collectors.workloads.from_models import harvest
from collectors.workloads.model_cases import (
    AMP_BATCHES,
    AMP_MODELS,
    TRAINING_MODELS,
    WholeModelCase,
    in_other_precisions,
    training_cases,
)
from costmodel.errors import DatasetError, RequestError
from costmodel.ir import HALF_PRECISION, operators, parse
from costmodel.records import read_json

DEFAULT = ("conv", "matmul", "layer")
SEED = 11
CONV_UNITS = 1500
MODEL_LIKE_CONVOLUTIONS = 8000
SINGLE_OPERATORS = 3000
MATMUL_CASES = 500
CONCAT_BLOCKS = 60
MIXING_PAIRS = 60
TORCHVISION = (
    "alexnet", "vgg16", "vgg11_bn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121",
    "googlenet", "inception_v3", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0",
    "shufflenet_v2_x1_0", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_800mf", "regnet_x_1_6gf", "convnext_tiny",
    "vit_b_16", "swin_t", "maxvit_t",
)  # fmt: skip
TIMM = (
    "seresnet50", "skresnet18", "dla60", "hrnet_w18_small", "ghostnet_100", "mixnet_s", "tf_efficientnet_lite0",
    "repvgg_a2", "resmlp_12_224", "deit_tiny_patch16_224", "mixer_s32_224", "poolformer_s12", "pit_xs_224", "levit_128",
    "cspdarknet53", "xception41", "inception_v4", "convnextv2_atto", "mobilevitv2_050", "coatnet_nano_rw_224",
)  # fmt: skip
GPU_BATCHES, CPU_BATCHES = (1, 32), (1, 8)
CPU_WORK, CPU_BYTES = 1 << 30, 256 << 20
"""Largest multiply-accumulates per thread and bytes of a unit on a CPU: about 50 ms."""
QUICK_MODELS = ("resnet18", "mobilenet_v3_small")
QUICK_CASES = 6
QUICK_WORK, QUICK_BYTES = 1 << 22, 4 << 20
"""Largest multiply-accumulates and bytes of a quick unit."""

Spec = tuple[str, int, str, bool, int | None, str]
"""Model, batch size, precision, channels last, image size, device."""
AmpSpec = tuple[str, int, str, str]
"""Model, batch size, precision of autocast, device."""


def unit_cases(workloads: Iterable[str], device: str, quick: bool, end: float) -> list[UnitCase]:
    """Cases of workloads, shuffled so that a sweep that is cut short has some of each; cases of a unit stay together.

    Args:
        workloads: names in UNIT_WORKLOADS.
        device: device that will measure them.
        quick: take few and tiny cases.
        end: monotonic seconds; capturing models stops there.
    """
    cases = [case for name in workloads for case in MAKERS[name](device, quick, end)]
    if device == "cpu":
        cases = [case for case in cases if fits_cpu(case)]
    units: dict[tuple[str, str], list[UnitCase]] = {}
    for case in distinct(cases):
        units.setdefault((case.unit, "" if case.unit else case.key), []).append(case)
    order = list(units.values())
    random.Random(SEED).shuffle(order)  # noqa: S311 - repeatable on purpose
    return [case for unit in order for case in unit]


def _conv(device: str, quick: bool, _end: float) -> list[UnitCase]:
    units: Sequence[convolution_space.ConvUnit] = convolution_space.sample(CONV_UNITS, SEED)
    if quick:
        units = [unit for unit in units if unit.work <= QUICK_WORK and 4 * unit.elements <= QUICK_BYTES][
            : QUICK_CASES // 3
        ]
    if device.startswith("cuda"):
        cases = [case for unit in units for case in convolution_space.unit_cases(unit)]
        if quick:
            return cases
        alone = [case for unit in units for case in convolution_space.kernel_cases(unit)]
        return cases + alone + model_like_convolutions.sample(MODEL_LIKE_CONVOLUTIONS, SEED)
    on_cpu = [replace(unit, dtype="float32", batch=min(unit.batch, max(CPU_BATCHES))) for unit in units]
    graphs = [convolution_space.unit_graph(unit, "nchw", "nchw") for unit in on_cpu]
    return [replace(case, position=None) for graph in graphs for case in harvest(graph, "conv", device)]


def fits_cpu(case: UnitCase) -> bool:
    """Whether a CPU with torch's number of threads measures a case in about 50 ms, in a precision it computes in."""
    import torch

    graph = parse(case.graph)
    half = any(value.type.dtype in HALF_PRECISION for value in graph.values)
    work = sum(operators.flops(graph, op) for op in graph.ops) / 2
    return not half and work <= CPU_WORK * torch.get_num_threads() and size_bytes(graph) <= CPU_BYTES


def _matmul(_device: str, quick: bool, _end: float) -> list[UnitCase]:
    cases = list(matmuls.sample(MATMUL_CASES, SEED))
    if not quick:
        return cases
    return [case for case in cases if size_bytes(parse(case.graph)) <= QUICK_BYTES][:QUICK_CASES]


def _other_precision(precision: str, _device: str, quick: bool, _end: float) -> list[UnitCase]:
    """Measured kernels in another precision, a key of `other_precisions.PRECISIONS`."""
    if not quick:
        return other_precisions.sample(precision, other_precisions.CASES, SEED)
    small = (case for case in other_precisions.synthetic(precision) if size_bytes(parse(case.graph)) <= QUICK_BYTES)
    return list(itertools.islice(small, QUICK_CASES))


def _casts(device: str, quick: bool, end: float) -> list[UnitCase]:
    """Kernels that models run only under autocast; none on a CPU."""
    if not device.startswith("cuda"):
        return []
    models = QUICK_MODELS[:1] if quick else _models()
    batches = (1,) if quick else AMP_BATCHES
    specs: list[AmpSpec] = [
        (model, batch, amp, device) for amp in HALF_PRECISION for batch in batches for model in models
    ]
    random.Random(SEED).shuffle(specs)  # noqa: S311 - repeatable on purpose
    cases: list[UnitCase] = []
    for _, outcome in in_parallel(capture_casts, specs, min(len(specs), default_processes()), end, ONE_THREAD):
        if not isinstance(outcome, BaseException):  # a model that cannot be captured here gives no cases
            cases += outcome
    uses = Counter(case.key for case in cases)
    found = sorted((replace(case, uses=uses[case.key]) for case in distinct(cases)), key=lambda case: case.key)
    return found[:QUICK_CASES] if quick else found


def capture_casts(spec: AmpSpec) -> list[UnitCase]:
    """Kernels of one model that it runs only under autocast, captured on the meta device.

    They mix precisions, or read other memory orders: attention modules have a path of their own under autocast.
    """
    from costmodel.capture.trace import capture
    from costmodel.zoo import load

    model, batch, amp, device = spec
    loaded = load(model, batch_size=batch)
    graph = capture(loaded.module, loaded.inputs, model, amp=amp)
    without = {
        case.key
        for precision in ("float32", amp)
        for case in capture_cases((model, batch, precision, False, None, device))
    }
    found = harvest(graph, f"{model}@{batch} amp={amp}", device)
    return [case for case in found if case.key not in without]


def _layer(device: str, quick: bool, end: float) -> list[UnitCase]:
    specs = _quick_specs(device) if quick else _specs(device)
    cases: list[UnitCase] = []
    for _, outcome in in_parallel(capture_cases, specs, min(len(specs), default_processes()), end, ONE_THREAD):
        if not isinstance(outcome, BaseException):  # a model that cannot be captured here gives no cases
            cases += outcome
    uses = Counter(case.key for case in cases)
    if not quick:
        cases += concat_blocks.sample(CONCAT_BLOCKS, SEED, device)
        if device.startswith("cuda"):
            cases += [
                *mixing_blocks.sample(MIXING_PAIRS, SEED, device),
                *single_operators.sample(SINGLE_OPERATORS, SEED),
            ]
    cases = [replace(case, uses=max(1, uses[case.key])) for case in distinct(cases)]
    cases = sorted(cases, key=lambda case: case.key)  # an order that does not depend on the processes' speed
    if not quick:
        return cases
    kinds = ([case for case in cases if case.runner == runner] for runner in ("aten", "inductor"))
    return [case for kind, most in zip(kinds, (QUICK_CASES, 2), strict=True) for case in kind[:most]]


def _specs(device: str) -> list[Spec]:
    """Every model at batch 1 and 32 in float32, and at one more batch size and precision, drawn at random.

    On a CPU, every model at CPU_BATCHES in float32.
    """
    rng = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    specs: list[Spec] = []
    for model in _models():
        batch, precision = rng.choice((8, 16, 64, 128)), rng.choice(("float32", "float16", "float16", "bfloat16"))
        several = [(1, "float32", False), (32, "float32", False), (batch, precision, rng.random() < 0.2)]
        if device == "cpu":
            several = [(size, "float32", False) for size in CPU_BATCHES]
        specs += [(model, *one, None, device) for one in several]
    rng.shuffle(specs)
    return specs


def _models() -> list[str]:
    """Models that layers are taken from, with those of timm if it is installed."""
    has_timm = importlib.util.find_spec("timm") is not None
    return [*TORCHVISION, *(f"timm:{name}" for name in TIMM if has_timm)]


def _quick_specs(device: str) -> list[Spec]:
    return [(model, 1, "float32", False, 64, device) for model in QUICK_MODELS[:1]]


def capture_cases(spec: Spec) -> list[UnitCase]:
    """Cases of one model, captured on the meta device."""
    from costmodel.capture.trace import capture
    from costmodel.zoo import load

    model, batch, precision, channels_last, size, device = spec
    loaded = load(model, batch_size=batch, precision=precision, channels_last=channels_last, img_size=size)
    source = f"{model}@{batch} {precision}{' nhwc' if channels_last else ''}"
    return list(harvest(capture(loaded.module, loaded.inputs, model), source, device))


def _backward(device: str, quick: bool, end: float) -> list[UnitCase]:
    """Kernels that only training steps run; on a CPU, where other libraries run them, none but the quick ones."""
    if quick:
        found = list(backward.harvested([backward.StepSpec(QUICK_MODELS[0], 1, None, True, "sgd", 64)], end))
        return backward.sample(found, 4 * QUICK_CASES)
    if not device.startswith("cuda"):
        return []
    return backward.sample(
        list(backward.harvested(backward.specs(training_models(), TORCHVISION), end)), backward.CASES
    )


def training_models() -> list[str]:
    """Models whose training steps give kernels, with those of timm if it is installed."""
    return _models()


MAKERS: Mapping[str, Callable[[str, bool, float], list[UnitCase]]] = {
    "conv": _conv,
    "matmul": _matmul,
    "layer": _layer,
    **{name: partial(_other_precision, name) for name in other_precisions.PRECISIONS},
    "casts": _casts,
    "backward": _backward,
}
"""Workload of units -> function of the device, whether few cases are wanted, and when capturing ends."""
UNIT_WORKLOADS = tuple(MAKERS)
WORKLOADS = (*UNIT_WORKLOADS, "models", "amp", "training", "host")


def amp_cases(device: str, quick: bool) -> list[WholeModelCase]:
    """Whole models under autocast and with matmuls in TF32; on a CPU in bfloat16 alone."""
    if quick:
        cases = [{**case, "img_size": 64} for case in in_other_precisions(QUICK_MODELS[:1], (1,))]
    else:
        has_timm = importlib.util.find_spec("timm") is not None
        cases = in_other_precisions([name for name in AMP_MODELS if has_timm or not name.startswith("timm:")])
    on_gpu = device.startswith("cuda")
    return [case for case in cases if on_gpu or not ({"float16", "high"} & set(case.values()))]


def step_cases(device: str, quick: bool) -> list[WholeModelCase]:
    """Training steps of whole models; on a CPU in float32 at a small batch."""
    if quick:
        return [{**training_cases(QUICK_MODELS[:1])[0], "batch_size": 2, "img_size": 64}]
    has_timm = importlib.util.find_spec("timm") is not None
    cases = training_cases([name for name in TRAINING_MODELS if has_timm or not name.startswith("timm:")])
    return [case for case in cases if device.startswith("cuda") or (case["batch_size"] == 8 and "amp" not in case)]


def model_cases(device: str, quick: bool) -> list[WholeModelCase]:
    """Whole models to measure, at two batch sizes each, or a tiny one for a quick run.

    Each model comes first at one batch size, every other at the larger one, so that a run that is cut has both.
    """
    same = {"precision": "float32", "layout": "nchw"}
    if quick:
        return [{"model": QUICK_MODELS[0], "batch_size": 1, "img_size": 64, **same}]
    batches = GPU_BATCHES if device.startswith("cuda") else CPU_BATCHES
    turns = (batches, batches[::-1])
    return [
        {"model": model, "batch_size": turns[index % 2][turn], **same}
        for turn in range(len(batches))
        for index, model in enumerate(_models())
    ]


def remembered(path: Path, request: Mapping[str, object]) -> list[UnitCase] | None:
    """Cases that an earlier run stored for the same request; None if there are none."""
    try:
        if read_json(path.with_suffix(".json")) != request:
            return None
        return list(read_cases(path))
    except (OSError, ValueError, DatasetError):
        return None  # damaged or missing: they are made anew


def remember(path: Path, request: Mapping[str, object], cases: Sequence[UnitCase]) -> None:
    """Store the cases of a request, so that resuming need not make them anew."""
    write_cases(path, cases)
    write_whole(path.with_suffix(".json"), json.dumps(request))


def check(names: Iterable[str]) -> tuple[str, ...]:
    """Check names of workloads and remove repetitions; without names, those of DEFAULT.

    Raises:
        RequestError: there is no such workload.
    """
    chosen = tuple(dict.fromkeys(names)) or DEFAULT
    for name in chosen:
        if name not in WORKLOADS:
            raise RequestError(f"unknown workload {name!r}; choose of {', '.join(WORKLOADS)}")
    return chosen
