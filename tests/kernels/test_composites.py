"""Composite operators as ATen divides them on each device, against the operators that torch dispatches there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from collectors.workloads.single_operators import Apply
from costmodel.capture.trace import capture
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph
from costmodel.ir.operators import is_view
from costmodel.ir.parser import parse
from costmodel.kernels.composites import divided
from costmodel.kernels.eager_dispatch import eager_kernels

VIEWS = {"t", "unsafe_split", "unsafe_chunk", "transpose", "view", "detach"}


class Dispatched(TorchDispatchMode):
    """Names of the operators that torch dispatches, views left out, in place or not."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        self.names += [name] if func.namespace == "aten" and name not in VIEWS else []
        return func(*args, **(kwargs or {}))


def dispatched(module: nn.Module, inputs: tuple[Any, ...], device: str) -> list[str]:
    """Operators of a module on a device, which need not be there: on fake tensors torch dispatches the same."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():

        def there(tensor: torch.Tensor) -> torch.Tensor:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

        state = {name: there(tensor) for name, tensor in module.state_dict().items()}
        given = tree_map_only(torch.Tensor, there, inputs)
        with Dispatched() as seen:
            torch.func.functional_call(module, state, given)
    return seen.names


def ours(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops if not is_view(op)]


ROWS, STATE = torch.empty(2, 6), torch.empty(2, 4)
LSTM, GRU = nn.LSTMCell(6, 4), nn.GRUCell(6, 4)


class StateAfter(nn.Module):
    """Reads both states of an LSTM cell, twice over."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(6, 4)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        h, c = self.cell(x, (h, c))
        h, c = self.cell(x, (h, c))
        return h + c


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        pytest.param(LSTM, (ROWS, (STATE, STATE)), id="lstm"),
        pytest.param(GRU, (ROWS, STATE), id="gru"),
        pytest.param(nn.LSTMCell(6, 4, bias=False), (ROWS, (STATE, STATE)), id="lstm-without-bias"),
        pytest.param(nn.GRUCell(6, 4, bias=False), (ROWS, STATE), id="gru-without-bias"),
        pytest.param(StateAfter(), (ROWS, STATE, STATE), id="two-steps"),
        pytest.param(nn.RMSNorm(6), (ROWS,), id="rms-norm"),
        pytest.param(nn.RMSNorm(6, elementwise_affine=False), (ROWS,), id="rms-norm-without-weight"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_on_a_cpu_they_are_the_operators_that_torch_dispatches(
    module: nn.Module, inputs: tuple[Any, ...], dtype: torch.dtype
) -> None:
    module = module.to(dtype)
    inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(dtype), inputs)
    graph = divided(capture(module, inputs), on_cpu=True).verify()
    expected = dispatched(module, inputs, "cpu")
    module.to(torch.float32)
    assert sorted(ours(graph)) == sorted(expected)
    assert parse(str(graph)) == graph


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        pytest.param(LSTM, (ROWS, (STATE, STATE)), id="lstm"),
        pytest.param(StateAfter(), (ROWS, STATE, STATE), id="two-steps"),
    ],
)
def test_on_a_gpu_they_are_the_operators_that_torch_dispatches(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    graph = divided(capture(module, inputs), on_cpu=False).verify()
    assert sorted(ours(graph)) == sorted(dispatched(module, inputs, "cuda"))
    assert parse(str(graph)) == graph


@pytest.mark.parametrize(("shape", "rows"), [((6,), (2, 1)), ((2, 6), (1, 1))])
def test_a_norm_on_a_gpu_is_one_kernel(shape: tuple[int, ...], rows: tuple[int, ...]) -> None:
    """As layer_norm.cpp has it; a build of torch for CPUs divides it also on fake tensors."""
    (norm,) = divided(capture(nn.RMSNorm(shape), (ROWS,)), on_cpu=False).verify().ops
    assert norm.base == "_fused_rms_norm"
    assert [kind.shape for kind in norm.types] == [(2, 6), rows]


def test_a_gru_cell_on_a_gpu_is_two_matmuls_and_its_gates() -> None:
    """As RNN.cpp has it; torch has no rule for these gates on fake tensors."""
    graph = divided(capture(GRU, (ROWS, STATE)), on_cpu=False).verify()
    assert ours(graph) == ["mm", "mm", "_thnn_fused_gru_cell"]
    assert [graph.type_of(op.refs()[0]).shape for op in graph.ops if op.base == "mm"] == [(2, 6), (2, 4)]


def test_a_norm_in_channels_last_or_of_two_dtypes_has_parts() -> None:
    last = torch.empty(2, 4, 8, 6).contiguous(memory_format=torch.channels_last)
    graph = divided(capture(nn.RMSNorm(6), (last,)), on_cpu=False)
    assert ours(graph) == ["pow", "mean", "add", "rsqrt", "mul", "mul"]
    mixed = divided(capture(nn.RMSNorm(6), (ROWS.half(),)), on_cpu=False)
    assert "_fused_rms_norm" not in ours(mixed)


SAMPLED, GRID = torch.empty(2, 3, 8, 8), torch.empty(2, 5, 5, 2)


@pytest.mark.parametrize(
    ("source", "grid", "options", "base"),
    [
        pytest.param(SAMPLED, GRID, {"align_corners": True}, "cudnn_grid_sampler", id="aligned"),
        pytest.param(SAMPLED, GRID, {"align_corners": False}, "grid_sampler_2d", id="not-aligned"),
        pytest.param(SAMPLED, GRID, {"align_corners": True, "mode": "nearest"}, "grid_sampler_2d", id="nearest"),
        pytest.param(SAMPLED, GRID, {"align_corners": True, "padding_mode": "border"}, "grid_sampler_2d", id="border"),
        pytest.param(SAMPLED.half(), GRID.half(), {"align_corners": True}, "cudnn_grid_sampler", id="float16"),
        pytest.param(SAMPLED.bfloat16(), GRID.bfloat16(), {"align_corners": True}, "grid_sampler_2d", id="bfloat16"),
        pytest.param(
            torch.empty(1, 1025, 4, 4), GRID[:1], {"align_corners": True}, "grid_sampler_2d", id="1025-channels"
        ),
        pytest.param(
            torch.empty(1, 1024, 4, 4), GRID[:1], {"align_corners": True}, "cudnn_grid_sampler", id="1024-channels"
        ),
    ],
)
def test_sampling_goes_where_aten_sends_it(
    source: torch.Tensor, grid: torch.Tensor, options: dict[str, Any], base: str
) -> None:
    """`grid_sampler` and `cond_cudnn_grid_sampler` in ATen, eager and compiled: to Inductor it is ATen's too."""
    graph = capture(Apply(lambda x, at: nn.functional.grid_sample(x, at, **options)), (source, grid))
    assert [kernel.anchor.base for kernel in eager_kernels(graph)] == [base]
    (compiled,) = compiled_kernels(graph)
    assert (compiled.backend, compiled.anchor.base) == ("aten" if base.startswith("cudnn") else "triton", base)
    assert [kernel.anchor.base for kernel in eager_kernels(graph, on_cpu=True)] == ["grid_sampler_2d"]


@pytest.mark.parametrize(
    ("module", "inputs", "kernels"),
    [
        (LSTM, (ROWS, (STATE, STATE)), ["mm", "mm", "_thnn_fused_lstm_cell"]),
        (nn.Sequential(nn.RMSNorm(6), nn.ReLU()), (ROWS,), ["mean"]),
    ],
)
def test_compiled_for_a_gpu(module: nn.Module, inputs: tuple[Any, ...], kernels: list[str]) -> None:
    """Gates are ATen's; a norm is one loop with what follows it."""
    assert [kernel.anchor.base for kernel in compiled_kernels(capture(module, inputs))] == kernels


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrent_layer_is_one_call(layer: Callable[..., nn.Module]) -> None:
    kernels = eager_kernels(capture(layer(6, 4, num_layers=2).eval(), (torch.empty(5, 2, 6),)))
    recurrent = [kernel for kernel in kernels if kernel.graph.ops[-1].base.startswith(("rnn", "lstm", "gru"))]
    assert len(recurrent) == 1
