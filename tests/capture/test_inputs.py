"""Arguments that a module may be called with, and plans under calls that differ in more than tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.inputs import Arguments
from costmodel.errors import CaptureError, PlanError, RequestError
from tests.execution.test_planned_module import plan_for

HERE = "amd-epyc-2-threads"


class Flip(nn.Module):
    """Goes by arguments that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor, flip: bool = False, scale: float = 1.0, names: Any = None) -> torch.Tensor:
        del names
        return self.conv(x.flip(-1) if flip else x) * scale


class Fused(nn.Module):
    """Takes two images by name, which may not be exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, rgb: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        return self.left(rgb) - 2 * self.right(depth)


def image() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8)


@torch.no_grad()
def same(planned: nn.Module, module: nn.Module, *args: Any, **kwargs: Any) -> bool:
    return torch.allclose(planned(*args, **kwargs), module(*args, **kwargs), atol=1e-5)


class TestPlans:
    def test_what_is_no_tensor_tells_calls_apart(self):
        module, x = Flip().eval(), image()
        planned = costmodel.apply(module, plan_for(module, (x, False)), (x, False))
        assert same(planned, module, x, False)
        assert len(planned._runner().ready) == 1
        for args, kwargs in (((x, True), {}), ((x, False, 5.0), {}), ((x,), {"flip": True}), ((x, 0), {})):
            assert same(planned, module, *args, **kwargs)
        ready, unfit = planned._runner().ready, planned._runner().unfit
        assert (len(ready), len(unfit)) == (3, 2)  # the plan fits another scale and 0, and no flip

    def test_what_is_made_ready_for_meta_tensors_serves_real_ones(self):
        module, x = Flip().eval(), image()
        planned = costmodel.apply(module, plan_for(module, (x,)), (x.to("meta"),))
        assert same(planned, module, x)
        assert len(planned._runner().ready) == 1

    def test_what_has_no_hash_runs_eagerly(self):
        module, x = Flip().eval(), image()
        planned = costmodel.apply(module, plan_for(module, (x,)), (x,))
        assert same(planned, module, x, names=bytearray(b"mutable"))
        assert len(planned._runner().ready) == 1

    def test_inputs_by_name_in_any_order(self):
        module = Fused().eval()
        inputs = {"depth": image(), "rgb": image()}
        plan = costmodel.plan(module, inputs, hardware=HERE)
        planned = costmodel.apply(module, plan, inputs)
        assert same(planned, module, **inputs)
        assert same(planned, module, rgb=inputs["rgb"], depth=inputs["depth"])
        assert len(planned._runner().ready) == 1

    def test_a_dict_among_positional_inputs(self):
        class Unpacks(nn.Module):
            def forward(self, images: dict[str, torch.Tensor]) -> torch.Tensor:
                return images["a"] - 2 * images["b"]

        module, a, b = Unpacks().eval(), image(), image()
        planned = costmodel.apply(module, plan_for(module, ({"a": a, "b": b},)), ({"a": a, "b": b},))
        assert same(planned, module, {"b": b, "a": a})

    def test_optional_tensors_are_told_from_each_other(self):
        class Either(nn.Module):
            def forward(self, x: torch.Tensor, plus: torch.Tensor | None, minus: torch.Tensor | None) -> torch.Tensor:
                return x + plus if minus is None else x - minus

        module, x, other = Either().eval(), image(), image()
        planned = costmodel.apply(module, plan_for(module, (x, other, None)), (x, other, None))
        assert same(planned, module, x, None, other)


@pytest.mark.parametrize("ask", [costmodel.predict, costmodel.plan, costmodel.analyze_memory])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(1, 3, 8, 8), r"write \(x,\) for one tensor"),
        (None, "not a NoneType"),
        ("image", "not a str"),
        ((torch.zeros(0, 3, 8, 8),), "an input of shape 0x3x8x8 is empty"),
    ],
)
def test_what_is_no_input_is_refused(ask: Callable[..., object], inputs: Any, message: str):
    with pytest.raises((RequestError, CaptureError), match=message):
        ask(nn.Conv2d(3, 4, 3).eval(), inputs, hardware="nvidia-h200")


@pytest.mark.parametrize(
    ("module", "message"),
    [(nn.ReLU, "the class ReLU"), (None, "None"), (torch.relu, "a value of type builtin_function")],
)
def test_what_is_no_module_is_refused(module: Any, message: str):
    with pytest.raises(RequestError, match=f"module must be an instance of nn.Module, not {message}"):
        costmodel.predict(module, (image(),), hardware="nvidia-h200")


def test_an_unknown_way_of_capture_is_refused():
    with pytest.raises(RequestError, match="capture must be one of run, fx, export, dynamo, not 'eyes'"):
        costmodel.predict(nn.ReLU(), (image(),), hardware="nvidia-h200", capture="eyes")


def test_random_numbers_are_drawn_by_nobody():
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn(3, 1, 1)

    before = torch.get_rng_state()
    costmodel.predict(Noisy().eval(), (torch.empty(1, 3, 8, 8, device="meta"),), hardware="nvidia-h200")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_call_and_what_is_in_it():
    x, y = torch.zeros(2), torch.ones(3)
    call = Arguments((x, 3), {"more": [y]})
    assert [tensor.shape for tensor in call.tensors()] == [(2,), (3,)]
    doubled = call.like(lambda tensor: tensor + 1)
    assert doubled.passed_to(lambda a, b, more: (a.sum().item(), b, more[0].sum().item())) == (2.0, 3, 6.0)


class Generating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape, generator=self.generator)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mixing", torch.eye(8).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(self.mixing, x[0, 0])


def test_what_no_plan_can_do_is_said_when_it_is_made():
    with pytest.raises(PlanError, match=r"draws random numbers from its own torch\.Generator"):
        costmodel.plan(Generating().eval(), (image(),), hardware=HERE)
    for ask in (costmodel.plan, costmodel.predict, costmodel.analyze_memory):
        with pytest.raises(
            RequestError, match="module has mixing, a sparse_coo tensor, which is not captured; convert it to a dense"
        ):
            ask(Sparse().eval(), (image(),), hardware=HERE)


def test_operators_without_a_rule_are_called_by_their_names():
    class Volume(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.det(x)

    report = costmodel.predict(Volume().eval(), (image(),), hardware="nvidia-h200")
    (layer,) = report.layers
    assert layer.kind == "_linalg_det"
    assert layer.kind in {item.op for item in report.unsupported}
    assert "?" not in layer.ops


def test_legacy_spectral_norm_is_predicted():
    """It divides by a product of two vectors, which is a scalar."""
    module = nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)).eval()
    report = costmodel.predict(module, (image(),), hardware="nvidia-h200")
    assert not report.unsupported
    assert any("matmul" in layer.ops for layer in report.layers)


def test_a_module_for_several_devices_is_refused():
    with pytest.raises(RequestError, match=r"module is a DataParallel, .* give the nn\.Module in it"):
        costmodel.predict(nn.DataParallel(nn.ReLU()), (image(),), hardware="nvidia-h200")


def test_a_module_that_torch_compile_made_is_refused_with_the_one_to_give():
    with pytest.raises(
        RequestError, match=r"^module was compiled by torch.compile; give .* its attribute \._orig_mod$"
    ):
        costmodel.predict(torch.compile(Flip().eval()), (image(),), hardware=HERE)
