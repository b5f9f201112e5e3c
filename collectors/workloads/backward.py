"""Kernels that only a training step runs, from training steps of models and from random layers.

Eager steps give the backward passes of operators, norms in training and optimizers; compiled steps give fused kernels
of forward and backward graphs. The cases are also written by

    python -m collectors.workloads.backward_file cases.jsonl --cases 4000
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collectors.processes.process_pool import ONE_THREAD, default_processes, in_parallel
from collectors.workloads import model_like_convolutions
from collectors.workloads.cases import Runner, UnitCase, distinct
from collectors.workloads.from_models import worth_measuring
from costmodel.features import TRAINING_GROUPS, group_of
from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value, parse
from costmodel.kernels.kernel import Kernel

if TYPE_CHECKING:
    import torch
    from torch import nn

SEED = 11
CASES = 4000
"""Cases of a sample: about ten minutes on one GPU."""
SHARES = {
    "conv_backward": 0.3,
    "aten_backward": 0.2,
    "random": 0.15,
    "triton": 0.3,
    "attention_backward": 0.03,
    "foreach": 0.02,
}
"""Shares of a sample: groups of eager kernels, gradients of random convolutions, fused kernels."""
BATCHES = (1, 2, 4, 8, 16, 32, 32, 64)
PRECISIONS = (None, None, "float16", "float16", "bfloat16")
"""Autocast of a step: none in two of five."""
COMPILED_SPECS = ((32, "float16"), (8, None))
"""Batch size and autocast of the steps whose compiled graphs are taken."""
HEADS = (3, 4, 6, 8, 12, 12, 16)
TOKENS = (49, 64, 144, 196, 197, 197, 256, 257, 577, 785, 1024)
"""Heads and tokens of random attention."""
EAGER_SPECS = 2
"""Eager steps of each model."""
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A training step to take kernels from.

    Attributes:
        model: spec of the model.
        batch: images.
        amp: autocast; None for none.
        compiles: whether its compiled graphs count too, which take some seconds.
        optimizer: optimizer of the step.
        img_size: height and width of the images; None for the model's own.
    """

    model: str
    batch: int
    amp: str | None
    compiles: bool
    optimizer: str
    img_size: int | None = None


def specs(models: Sequence[str], compiled: Sequence[str], seed: int = SEED) -> list[StepSpec]:
    """Steps of models at random batch sizes and precisions, and compiled steps of some of them."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    eager = [
        StepSpec(model, rng.choice(BATCHES), rng.choice(PRECISIONS), False, rng.choice(OPTIMIZERS))
        for model in models
        for _ in range(EAGER_SPECS)
    ]
    fused = [
        StepSpec(model, batch, amp, True, rng.choice(OPTIMIZERS)) for batch, amp in COMPILED_SPECS for model in compiled
    ]
    found = [*fused, *eager]
    rng.shuffle(found)  # so that a run that is cut has some of each
    return found


def capture_cases(spec: StepSpec) -> list[UnitCase]:
    """Kernels of one step that only training runs."""
    from costmodel.capture.training_step import capture_training_step
    from costmodel.inductor.training import step_kernels
    from costmodel.kernels.eager_dispatch import eager_kernels
    from costmodel.kernels.optimizers import optimizer_graph
    from costmodel.zoo import load

    loaded = load(spec.model, batch_size=spec.batch, img_size=spec.img_size)
    step = capture_training_step(loaded.module, loaded.inputs, spec.model, amp=spec.amp, compiles=spec.compiles)
    kernels = [*eager_kernels(step.eager), *eager_kernels(optimizer_graph(step.parameters, spec.optimizer))]
    if step.compiled is not None:
        both = step_kernels(step.compiled.forward, step.compiled.backward, step.compiled.saved)
        kernels += [kernel for part in both for kernel in part]
    source = f"{spec.model}@{spec.batch}{f' amp={spec.amp}' if spec.amp else ''} training"
    return [_case(kernel, source) for kernel in kernels if _is_of_training(kernel)]


def _is_of_training(kernel: Kernel) -> bool:
    wanted = kernel.backend == "triton" or group_of(kernel) in TRAINING_GROUPS
    draws = any(op.base == "bernoulli" and not op.refs() for op in kernel.graph.ops)  # by a generator of the compiler
    return wanted and not draws and worth_measuring(kernel)


def _case(kernel: Kernel, source: str) -> UnitCase:
    runner: Runner = "inductor" if kernel.backend == "triton" else "aten"
    return UnitCase(str(kernel.graph), runner, source=source)


def sample(found: Sequence[UnitCase], count: int, seed: int = SEED) -> list[UnitCase]:
    """Choose cases of each share, often called ones with twice the odds, and add gradients of random layers."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    uses = Counter(case.key for case in found)
    strata: dict[str, list[UnitCase]] = {name: [] for name in SHARES}
    for case in sorted(distinct(found), key=lambda case: case.key):
        strata[stratum(case)].append(replace(case, uses=uses[case.key]))
    strata["random"] = random_gradients(round(SHARES["random"] * count), seed)
    missing = round(SHARES["attention_backward"] * count) - len(strata["attention_backward"])
    strata["attention_backward"] += random_attentions(missing, seed) if missing > 0 else []
    chosen: list[UnitCase] = []
    for name, cases in strata.items():
        order = sorted(cases, key=lambda case: rng.random() / min(2, case.uses))
        chosen += order[: round(SHARES[name] * count)]
    rng.shuffle(chosen)
    return chosen


def stratum(case: UnitCase) -> str:
    """Share that a case counts for."""
    if case.runner == "inductor":
        return "triton"
    graph = parse(case.graph)
    return group_of(Kernel("aten", graph, tuple(op.name for op in graph.ops)))


def random_gradients(count: int, seed: int) -> list[UnitCase]:
    """Gradients by input or by weight of random convolutions with the shapes of models."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    found: list[UnitCase] = []
    for case in model_like_convolutions.sample(2 * count, seed + 1):
        graph = parse(case.graph)
        if graph.ops[-1].base == "convolution" and len(graph.ops) == 1 and len(found) < count:
            made = gradient_graph(graph, by_weight=rng.random() < 0.5)
            found.append(UnitCase(str(made), "aten", source="random gradients"))
    return found


def random_attentions(count: int, seed: int) -> list[UnitCase]:
    """Backward passes of attention with random numbers of images, heads and tokens, in float32 and float16."""
    from costmodel.capture.step_recording import record_step
    from costmodel.capture.trace import lower
    from costmodel.kernels.eager_dispatch import eager_kernels

    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    found: dict[str, UnitCase] = {}
    while len(found) < count:
        size, heads, tokens = rng.choice((32, 32, 64, 64, 64, 80)), rng.choice(HEADS), rng.choice(TOKENS)
        shape = (rng.choice(BATCHES), tokens, heads * size)
        step = record_step(_attention(heads * size, heads), (_images(shape),), amp=rng.choice((None, "float16")))
        kernels = eager_kernels(lower(step.graph, "attention"))
        made = [_case(kernel, "random attention") for kernel in kernels if group_of(kernel) == "attention_backward"]
        found |= {case.key: case for case in made}
    return list(found.values())[:count]


def _images(shape: tuple[int, ...]) -> torch.Tensor:
    import torch

    return torch.empty(shape, device="meta")


def _attention(width: int, heads: int) -> nn.Module:
    """Self-attention with a projection to queries, keys and values."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(width, 3 * width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
            return nn.functional.scaled_dot_product_attention(*parts)

    with torch.device("meta"):
        return Attention()


def gradient_graph(graph: Graph, by_weight: bool) -> Graph:
    """Graph of one gradient of the only convolution of a graph, by its weight or its input."""
    (op,) = graph.ops
    types = {value.name: value.type for value in graph.values}
    source, weight = (types[ref.name] for ref in (op.arg("input"), op.arg("weight")) if isinstance(ref, Ref))
    kept = {key: op.arg(key) for key in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")}
    args: dict[str, Arg] = {"grad_output": Ref("a0"), "input": Ref("a1"), "weight": Ref("p0"), "bias_sizes": None}
    args |= kept | {"output_mask": (not by_weight, by_weight, False)}
    values = Value("a0", op.type), Value("a1", source), Value("p0", weight, "param")
    types_made = (TensorType("uint8", (0,)), weight) if by_weight else (source,)
    call = Op("0", "convolution_backward", tuple(args.items()), types_made)
    return Graph("", values, (call,), (Ref("0", int(by_weight)),))


def harvested(chosen: Sequence[StepSpec], end: float, processes: int | None = None) -> Iterator[UnitCase]:
    """Cases of steps, captured in parallel until `end` (monotonic seconds)."""
    count = min(len(chosen), processes or default_processes())
    for _, outcome in in_parallel(capture_cases, chosen, count, end, ONE_THREAD):
        if not isinstance(outcome, BaseException):  # a model that cannot be captured here gives no cases
            yield from outcome
