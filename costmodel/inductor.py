"""Inductor's compilation of one graph, as torch.compile makes it, without Dynamo's tracing and guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def compile_module(module: fx.GraphModule, arguments: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """A function that computes what a module does, for tensors of the shapes and strides of these.

    It comes from Inductor's cache on disk where that holds it. `torch._inductor.compile` passes that cache by for
    tensors that do not come from Dynamo: their fake tensors know no environment for symbolic shapes. Here they have
    one, and every size in it is fixed.
    """
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in arguments]
    compiled: Any = compile_fx(module, fakes)  # of its several kinds of results, a function
    return compiled  # type: ignore[no-any-return]
