"""Compile one graph by Inductor as torch.compile does, without Dynamo's tracing and guards."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def share_cache() -> None:
    """Make keys of Inductor's disk cache equal in all processes of this machine, from here on.

    A key hashes pickled metadata, memory formats among them. Pickle names a memory format by the first module that
    holds it. In a process spawned by multiprocessing this may be the main module, and other processes then miss
    the cache.
    """
    copyreg.pickle(torch.memory_format, _reduce_memory_format)


def _reduce_memory_format(memory_format: torch.memory_format) -> tuple[Callable[[str], Any], tuple[str]]:
    return _memory_format, (str(memory_format).removeprefix("torch."),)


def _memory_format(name: str) -> Any:
    return getattr(torch, name)


def compile_module(
    module: fx.GraphModule, arguments: Sequence[torch.Tensor], templates: bool = False
) -> Callable[..., Any]:
    """Compile a module for tensors of given shapes and strides.

    The result comes from Inductor's disk cache if possible. `torch._inductor.compile` bypasses that cache for tensors
    that do not come from Dynamo, because their fake tensors lack a shape environment. Here they have one, with every
    size fixed.

    Args:
        module: FX module of ATen calls.
        arguments: tensors of the shapes and strides to compile for.
        templates: whether Inductor times Triton templates beside library kernels for matmuls and convolutions.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    share_cache()
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in arguments]
    # A caller may capture what is compiled here, which graphs of Inductor's own would prevent.
    settings = {"max_autotune_gemm": templates or config.max_autotune_gemm, "triton.cudagraphs": False}
    with config.patch(settings):
        compiled: Any = compile_fx(module, fakes)  # typed as a union; a callable here
    return compiled  # type: ignore[no-any-return]
