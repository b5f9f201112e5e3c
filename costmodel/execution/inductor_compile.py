"""Inductor's compilation of one graph, as torch.compile makes it, without Dynamo's tracing and guards."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def share_cache() -> None:
    """From here on, what any process of this machine has compiled is found in Inductor's cache on disk.

    A key of that cache is a hash of pickled metadata, memory formats among them. Pickle names these by the first
    module that happens to hold torch under its own name. In a process that multiprocessing has spawned that may be the
    main module, and what it has compiled is then found by no process of another kind.
    """
    copyreg.pickle(torch.memory_format, _reduce_memory_format)


def _reduce_memory_format(memory_format: torch.memory_format) -> tuple[Callable[[str], Any], tuple[str]]:
    return _memory_format, (str(memory_format).removeprefix("torch."),)


def _memory_format(name: str) -> Any:
    return getattr(torch, name)


def compile_module(
    module: fx.GraphModule, arguments: Sequence[torch.Tensor], templates: bool = False
) -> Callable[..., Any]:
    """A function that computes what a module does, for tensors of the shapes and strides of these.

    With `templates`, Inductor times Triton templates beside the library's kernels of products and convolutions.

    It comes from Inductor's cache on disk where that holds it. `torch._inductor.compile` passes that cache by for
    tensors that do not come from Dynamo: their fake tensors know no environment for symbolic shapes. Here they have
    one, and every size in it is fixed.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    share_cache()
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in arguments]
    with config.patch(max_autotune_gemm=templates or config.max_autotune_gemm):
        compiled: Any = compile_fx(module, fakes)  # of its several kinds of results, a function
    return compiled  # type: ignore[no-any-return]
