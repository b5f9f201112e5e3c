"""Recurrent layers of a training step: one call of cuDNN forward and one backward, on tensors without data.

On meta tensors torch would unroll their steps, as it never does on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from costmodel.capture.meta_tensors import recurrent_results

NAMESPACE = "costmodel"
"""Namespace of the operators, which have the names and arguments of ATen's: `costmodel::lstm`."""


@functools.cache
def differentiable_recurrent(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Operator that stands for `aten::lstm`, or another layer, and has a gradient, `costmodel::lstm_backward`.

    Args:
        name: one of `costmodel.capture.meta_tensors.RECURRENT`.
    """
    library = _library()
    arguments, results = str(getattr(torch.ops.aten, name).input._schema).split("(", 1)[1].split(" -> ")
    library.define(f"{name}({arguments} -> {results}")
    library.define(f"{name}_backward(Tensor[] gradients, {arguments} -> Tensor[]")
    backward = f"{NAMESPACE}::{name}_backward"
    torch.library.register_fake(f"{NAMESPACE}::{name}", lambda *args: recurrent_results(args), lib=library)
    torch.library.register_fake(backward, _gradients, lib=library)
    gradient_of = functools.partial(_differentiate, name)
    torch.library.register_autograd(f"{NAMESPACE}::{name}", gradient_of, setup_context=_keep, lib=library)
    operator: Callable[..., tuple[torch.Tensor, ...]] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library(NAMESPACE, "DEF")


def _gradients(_given: Sequence[torch.Tensor], *args: Any) -> list[torch.Tensor]:
    """Gradients by the input, the initial states and the parameters, in this order."""
    source, states, parameters = args[:3]
    return list(map(torch.empty_like, (source, *_several(states), *parameters)))


def _several(states: Any) -> Sequence[torch.Tensor]:
    """Initial states: one of a GRU, two of an LSTM."""
    return (states,) if isinstance(states, torch.Tensor) else states


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    del output  # a backward pass that needs data would keep it
    ctx.set_materialize_grads(False)
    source, states, parameters, *options = inputs
    ctx.has_one_state = isinstance(states, torch.Tensor)
    ctx.states, ctx.options = len(_several(states)), options
    ctx.save_for_backward(source, *_several(states), *parameters)


def _differentiate(name: str, ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
    source, *others = ctx.saved_tensors
    states, parameters = others[: ctx.states], others[ctx.states :]
    given = [gradient for gradient in gradients if gradient is not None]
    operator = getattr(getattr(torch.ops, NAMESPACE), f"{name}_backward").default
    found = operator(given, source, states[0] if ctx.has_one_state else states, parameters, *ctx.options)
    by_states, by_parameters = found[1 : 1 + ctx.states], found[1 + ctx.states :]
    return found[0], by_states[0] if ctx.has_one_state else by_states, by_parameters, *(None for _ in ctx.options)
