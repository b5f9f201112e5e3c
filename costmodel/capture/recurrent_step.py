"""Recurrent layers and cells of a training step, on tensors without data, by the kernels that a GPU runs.

A layer is one call of cuDNN forward and one backward, a cell two matmuls and one kernel for its gates. On meta tensors
torch would unroll the steps of a layer, and compute the gates of a cell one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from costmodel.capture.meta_tensors import recurrent_results

NAMESPACE = "costmodel"
"""Namespace of the operators, which have the names and arguments of ATen's: `costmodel::lstm`."""
GRU_SAVED = 5
"""Values that the kernel for a GRU's gates saves for each of its results (`_thnn_fused_gru_cell` in ATen's RNN.cu)."""
_GRU_GATES = "_thnn_fused_gru_cell"


@functools.cache
def differentiable_recurrent(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Operator that stands for `aten::lstm`, or another layer, and has a gradient, `costmodel::lstm_backward`.

    Args:
        name: one of `costmodel.capture.meta_tensors.RECURRENT`.
    """
    arguments, results = str(getattr(torch.ops.aten, name).input._schema).split("(", 1)[1].split(" -> ")
    _define(name, f"({arguments} -> {results}", lambda *args: recurrent_results(args))
    _define(f"{name}_backward", f"(Tensor[] gradients, {arguments} -> Tensor[]", _gradients)
    return _with_gradient(name, functools.partial(_differentiate, name), _keep)


def differentiable_cell(name: str, *args: Any) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Step of an LSTM or a GRU as a GPU runs it: two matmuls, and a kernel for the gates.

    Args:
        name: `lstm_cell` or `gru_cell`.
        args: arguments of torch's function: input, states, weights and biases of both.
    """
    source, states, by_input, by_state, *biases = args
    gates = torch.mm(source, by_input.t()), torch.mm(_several(states)[0], by_state.t())
    if name == "gru_cell":
        return _gru_gates()(*gates, states, *biases)[0]
    if None in biases or not biases:  # torch's kernel without data needs them
        biases = [gates[0].new_empty(gates[0].shape[1]) for _ in range(2)]
    fused = torch.ops.aten._thnn_fused_lstm_cell.default(*gates, states[1], *biases)
    return fused[0], fused[1]


@functools.cache
def _gru_gates() -> Callable[..., tuple[torch.Tensor, ...]]:
    """Operator that stands for `aten::_thnn_fused_gru_cell`, which torch has for no meta tensors."""
    for name, results in ((_GRU_GATES, _gru_results), (f"{_GRU_GATES}_backward", _gru_gradients)):
        schema = str(getattr(torch.ops.aten, name).default._schema)
        _define(name, schema.removeprefix(f"aten::{name}"), results)
    return _with_gradient(_GRU_GATES, _differentiate_gru, _keep_gru)


def _define(name: str, schema: str, results: Callable[..., Any]) -> None:
    """Define an operator by its schema without the name, and a function that makes its results without data."""
    _library().define(f"{name}{schema}")
    torch.library.register_fake(f"{NAMESPACE}::{name}", results, lib=_library())


def _with_gradient(
    name: str, differentiate: Callable[..., Any], keep: Callable[..., None]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The operator, after registering its gradient."""
    torch.library.register_autograd(f"{NAMESPACE}::{name}", differentiate, setup_context=keep, lib=_library())
    return _operator(name)


def _operator(name: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    made: Callable[..., tuple[torch.Tensor, ...]] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return made


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library(NAMESPACE, "DEF")


def _several(states: Any) -> Sequence[torch.Tensor]:
    """Initial states: one of a GRU, two of an LSTM."""
    return (states,) if isinstance(states, torch.Tensor) else states


def _gradients(_given: Sequence[torch.Tensor], *args: Any) -> list[torch.Tensor]:
    """Gradients by the input, the initial states and the parameters, in this order."""
    source, states, parameters = args[:3]
    return list(map(torch.empty_like, (source, *_several(states), *parameters)))


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
    initial = states[0] if ctx.has_one_state else states
    found = _operator(f"{name}_backward")(given, source, initial, parameters, *ctx.options)
    by_states, by_parameters = found[1 : 1 + ctx.states], found[1 + ctx.states :]
    return found[0], by_states[0] if ctx.has_one_state else by_states, by_parameters, *(None for _ in ctx.options)


def _gru_results(
    _input_gates: torch.Tensor, _hidden_gates: torch.Tensor, state: torch.Tensor, *_biases: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(state), state.new_empty((state.shape[0], GRU_SAVED * state.shape[1]))


def _gru_gradients(gradient: torch.Tensor, _saved: torch.Tensor, _has_bias: bool) -> tuple[torch.Tensor, ...]:
    """Gradients by both products, the state and both biases."""
    batch, width = gradient.shape
    products = [gradient.new_empty((batch, 3 * width)) for _ in range(2)]
    return *products, torch.empty_like(gradient), *(gradient.new_empty(3 * width) for _ in range(2))


def _keep_gru(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.has_bias = len(inputs) > 3 and inputs[3] is not None
    ctx.save_for_backward(output[1])


def _differentiate_gru(ctx: Any, gradient: torch.Tensor, _of_saved: Any) -> tuple[torch.Tensor | None, ...]:
    found = _operator(f"{_GRU_GATES}_backward")(gradient, *ctx.saved_tensors, ctx.has_bias)
    return found if ctx.has_bias else (*found[:3], None, None)
