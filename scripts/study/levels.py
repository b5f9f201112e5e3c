"""Levels at which a model can run, from eager PyTorch down to cuDNN's calls in one CUDA graph."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.execution.planned_module import apply
from costmodel.measurement.timers import capture_graph
from costmodel.planning.blocks import find_blocks
from costmodel.planning.plan import Plan, Region, fingerprint
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from study.experiment import SkippedError
from study.models import bound, compiled

Inputs = tuple[torch.Tensor, ...]
Made = Callable[[], Any]
"""Warm call that returns the outputs."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level.

    Attributes:
        make: module and inputs -> call; raises `SkippedError` where a device lacks the level.
        about: sentence on what it leaves out.
    """

    make: Callable[[nn.Module, Inputs], Made]
    about: str


def eager(module: nn.Module, inputs: Inputs) -> Made:
    """Eager PyTorch."""
    return bound(module, inputs)


def torchscript(module: nn.Module, inputs: Inputs) -> Made:
    """TorchScript, traced, frozen and optimised for inference."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and still a level of the paper
        traced = torch.jit.freeze(torch.jit.trace(module, inputs, check_trace=False))  # type: ignore[no-untyped-call]
        ready = torch.jit.optimize_for_inference(traced)
    call = bound(ready, inputs)
    for _ in range(2):  # the profiling executor optimises in the second call
        call()
    return call


def inductor(module: nn.Module, inputs: Inputs) -> Made:
    """torch.compile in its default mode."""
    return bound(compiled(module), inputs)


def cpp_runtime(module: nn.Module, inputs: Inputs) -> Made:
    """AOTInductor's package, run by its C++ loader: no Python between the kernels."""
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad(), tempfile.TemporaryDirectory() as directory:
        program = torch.export.export(module, inputs)
        path = aoti_compile_and_package(program, package_path=str(Path(directory) / "model.pt2"))
        runner = aoti_load_package(path)
    return bound(runner, inputs)


def cudnn(module: nn.Module, inputs: Inputs) -> Made:
    """Fused convolutions of cuDNN, called directly, with batch norm folded into the weights."""
    if not inputs[0].is_cuda:
        raise SkippedError("cuDNN's fused convolutions run on CUDA only")
    return bound(apply(module, cudnn_plan(module, inputs), inputs), inputs)


def cudnn_plan(module: nn.Module, inputs: Inputs) -> Plan:
    """Plan in which cuDNN runs each convolution that it can fuse, and ATen the rest."""
    graph = capture_exactly(module, inputs, type(module).__name__).graph
    rewrites = ("fold_batch_norm", "channels_last")
    blocks = find_blocks(hoist_constants(apply_rewrites(graph, rewrites)).main)
    regions = tuple(Region("cudnn" if block.fusible else "eager", block.ops, (), 0.0) for block in blocks)
    return Plan(
        graph.name, fingerprint(graph), "none", "none", rewrites, "stream", regions, {}, 0.0, torch.__version__, True
    )


def cuda_graph(module: nn.Module, inputs: Inputs) -> Made:
    """Eager kernels, captured once and replayed as one CUDA graph."""
    if not inputs[0].is_cuda:
        raise SkippedError("CUDA graphs exist on CUDA only")
    outputs: list[Any] = []

    def call() -> None:
        outputs[:] = [bound(module, inputs)()]

    graph = capture_graph(call)
    kept = outputs[0]

    def replay() -> Any:
        graph.replay()
        return kept

    return replay


LEVELS: Mapping[str, Level] = {
    "eager": Level(eager, "Python, dispatcher, ATen, library"),
    "TorchScript": Level(torchscript, "no Python between operators"),
    "Inductor": Level(inductor, "no dispatcher between kernels that it makes"),
    "C++ runtime": Level(cpp_runtime, "no Python at all: AOTInductor's loader"),
    "cuDNN": Level(cudnn, "fused convolutions by cuDNN"),
    "CUDA graph": Level(cuda_graph, "no launch from the host but one"),
}
"""Levels by name, from the most abstract down."""
