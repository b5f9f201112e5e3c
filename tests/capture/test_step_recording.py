"""Recorded training steps against what torch dispatches on a CPU, and errors of steps in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from costmodel.capture.step_recording import Phase, record_step, usual_loss
from costmodel.capture.trace import lower
from costmodel.errors import CaptureError
from costmodel.ir import Graph
from tests.support.attention import Attention


class Dispatched(TorchDispatchMode):
    """Names of the operators that torch dispatches, in place or not, without views of memory that compute nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name.removeprefix("aten::").removesuffix("_"))
        return func(*args, **(kwargs or {}))


def net() -> nn.Sequential:
    """Two layers with weights and an activation: convolution 3 -> 4 of 3x3, ReLU, linear 4 -> 5 after a global mean."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


X = torch.zeros(2, 3, 8, 8)
UNSEEN = {"detach", "empty", "_reshape_alias", "view", "t", "expand", "permute", "_unsafe_view", "reshape"}
"""Operators that show or reserve memory; which of them a device needs differs."""


def step_of(module: nn.Module, x: torch.Tensor = X, **options: Any) -> Graph:
    """Recorded step as a graph."""
    return lower(record_step(module, (x,), **options).graph, "net")


def test_a_step_has_the_operators_that_torch_dispatches():
    module = net().train()
    with Dispatched() as watch:
        loss = usual_loss(module(X))
        torch.autograd.grad(loss, list(module.parameters()))
    wanted = [name for name in watch.names if name not in UNSEEN]
    found = [op.base for op in step_of(net()).ops if op.base not in UNSEEN]
    assert found == wanted
    assert found == [
        *("convolution", "relu", "mean", "addmm"),
        *("zeros", "_log_softmax", "nll_loss_forward"),
        *("ones_like", "nll_loss_backward", "_log_softmax_backward_data"),
        *("mm", "mm", "sum", "div", "threshold_backward", "convolution_backward"),
    ]


def test_backward_operators_belong_to_the_modules_that_they_differentiate():
    found = {op.base: op for op in step_of(net()).ops}
    assert found["convolution_backward"].module == found["convolution"].module == "0"
    assert found["threshold_backward"].module == "1"
    assert found["sum"].module == found["addmm"].module == "4"
    phases = {name: Phase(op.section) for name, op in found.items()}
    assert phases["convolution"] is Phase.FORWARD
    assert phases["nll_loss_forward"] is Phase.LOSS
    assert phases["nll_loss_backward"] is phases["ones_like"] is Phase.LOSS_BACKWARD
    assert phases["threshold_backward"] is Phase.BACKWARD


def test_outputs_are_gradients_and_updated_counts_of_batches():
    graph = step_of(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)))
    shapes = [graph.type_of(ref).shape for ref in graph.outputs]
    assert shapes == [(4, 3, 3, 3), (4,), (4,), ()]  # weight, scale, shift; batches


def test_a_convolution_of_the_input_needs_no_gradient_by_it():
    (op,) = (op for op in step_of(net()).ops if op.base == "convolution_backward")
    assert op.arg("output_mask") == (False, True, True)
    assert [kind.shape for kind in op.types] == [(0,), (4, 3, 3, 3), (4,)]


def test_frozen_parameters_get_no_gradient():
    module = net()
    module[0].requires_grad_(False)
    recorded = record_step(module, (X,))
    assert recorded.trainable == ("4.weight", "4.bias")
    assert "convolution_backward" not in {op.base for op in lower(recorded.graph, "net").ops}


def test_dropout_and_batch_norm_are_those_of_training():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).eval()
    found = {op.base: op for op in step_of(module).ops}
    assert found["native_batch_norm"].arg("training") is True
    assert {"native_dropout", "native_dropout_backward", "native_batch_norm_backward"} <= set(found)
    assert not any(child.training for child in module.modules())


def test_results_that_are_no_classes_have_the_sum_of_their_means_as_loss():
    found = [op.base for op in step_of(nn.Conv2d(3, 4, 3)).ops if op.section == Phase.LOSS]
    assert found == ["mean"]


def test_autocast_casts_each_weight_once_and_gradients_back():
    graph = step_of(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False)), amp="float16")
    casts = [op for op in graph.ops if op.base == "_to_copy"]
    forward = [op.type.dtype for op in casts if op.section == Phase.FORWARD]
    assert forward == ["float16", "float16"]  # input and weight
    assert [graph.type_of(ref).dtype for ref in graph.outputs] == ["float32"]


def test_attention_has_a_fused_backward_pass():
    names = [op.base for op in step_of(Attention(), torch.zeros(2, 10, 16), amp="float16").ops]
    assert "_scaled_dot_product_flash_attention" in names
    assert "_scaled_dot_product_flash_attention_backward" in names
    names = [op.base for op in step_of(Attention(), torch.zeros(2, 10, 16)).ops]
    assert "_scaled_dot_product_efficient_attention_backward" in names


class Overwrites(nn.Module):
    """Overwrites the result of a sigmoid, whose gradient needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.sigmoid(self.layer(x))
        doubled = kept * 2
        return kept.add_(1) + doubled


class Differentiates(nn.Module):
    """Needs a gradient in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.layer(x)
        (gradient,) = torch.autograd.grad(result.sum(), self.layer.weight, create_graph=True)
        return result + gradient.sum()


def frozen() -> nn.Module:
    """A layer that does not train."""
    return nn.Linear(8, 8).requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "loss", "words"),
    [
        (net, lambda result: result, "the loss of Sequential is no scalar but 2x5; reduce it"),
        (net, lambda _: 1.0, "the loss of Sequential is no scalar but float"),
        (net, lambda _: torch.zeros(()), "depends on no parameter that trains"),
        (net, lambda result: result.no_such_method(), "the loss of Sequential failed: AttributeError"),
        (frozen, None, "Linear has no parameter that trains; set requires_grad"),
        (Overwrites, None, "a tensor that it needs was overwritten in place; compute the new value out of place"),
        (Differentiates, None, "Differentiates differentiates within the forward pass"),
    ],
)
def test_an_impossible_step_is_one_line(make: Callable[[], nn.Module], loss: Any, words: str):
    with pytest.raises(CaptureError, match=words) as caught:
        record_step(make(), (X if make is net else torch.zeros(2, 8),), loss=loss)
    assert "\n" not in str(caught.value)
