"""Tests that need a GPU: plans and validations under autocast and with matmuls in TF32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.execution.numerics import relative_error
from costmodel.zoo import Loaded, load_real

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),
]  # those of torch's compiler, which differ by version
GPU = "nvidia-h200"


def loaded(name: str) -> Loaded:
    torch.manual_seed(0)
    return load_real(name, torch.device("cuda"), batch_size=8)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
@pytest.mark.parametrize("amp", ["float16", "bfloat16"])
def test_a_plan_computes_what_autocast_does(name: str, amp: str) -> None:
    model = loaded(name)
    module, inputs = model.module, tuple(model.inputs)
    plan = costmodel.plan(module, inputs, hardware=GPU, amp=amp)
    fast = costmodel.apply(module, plan, inputs)
    with torch.no_grad():
        exact = module(*inputs)
        got = fast(*inputs)
        with torch.autocast("cuda", getattr(torch, amp)):
            expected = module(*inputs)
            assert torch.equal(fast(*inputs), got)
    assert fast.replaced == ()
    assert got.dtype is expected.dtype
    assert relative_error(got, exact) < 4 * max(relative_error(expected, exact), 1e-3)


def test_a_plan_in_tf32_rounds_whatever_the_process_has() -> None:
    """TF32 keeps 10 bits of mantissa: a relative error above 1e-5 and below 1e-2; float32 has about 1e-7."""
    torch.manual_seed(0)
    net, x = nn.Linear(1024, 1024).cuda().eval(), torch.randn(512, 1024, device="cuda")
    assert torch.get_float32_matmul_precision() == "highest"
    errors = {}
    with torch.no_grad():
        exact = net.double()(x.double())
        net.float()
        for precision in ("highest", "high"):
            plan = costmodel.plan(net, (x,), hardware=GPU, matmul_precision=precision)
            errors[precision] = relative_error(costmodel.apply(net, plan, (x,))(x), exact)
    assert torch.get_float32_matmul_precision() == "highest"
    assert errors["highest"] < 1e-5 < errors["high"] < 1e-2


@pytest.mark.parametrize("settings", [{"amp": "float16"}, {"matmul_precision": "high"}, {"cudnn_benchmark": True}])
def test_every_mode_and_the_plan_are_measured(settings: dict[str, Any]) -> None:
    model = loaded("vit_b_16" if "matmul_precision" in settings else "resnet18")
    inputs = tuple(model.inputs)
    plan = costmodel.plan(model.module, inputs, hardware=GPU, **settings)
    result = costmodel.validate(model.module, inputs, hardware=GPU, plan=plan, seconds=0.02, **settings)
    assert list(result.modes) == ["eager", "default", "reduce-overhead", "plan"]
    for name, mode in result.modes.items():
        assert mode.note == ""
        assert mode.measured_ms > 0
        assert name == "eager" or mode.output_error < 0.1
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark) == ("highest", False)


def test_memory_of_inference_under_autocast() -> None:
    """Within 5 % of what torch allocates; without the kept casts the prediction is a third lower."""
    model = loaded("vit_b_16")
    inputs = tuple(model.inputs)
    options: dict[str, Any] = {"hardware": GPU, "passes": ("inference",), "amp": "float16"}
    found = costmodel.analyze_memory(model.module, inputs, **options).inference
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad(), torch.autocast("cuda", torch.float16):
            model.module(*inputs)
    held = sum(tensor.nbytes for tensor in (*model.module.parameters(), *model.module.buffers(), *inputs))
    other = torch.cuda.memory_allocated() - held  # of earlier tests, and cuBLAS's workspace
    measured = torch.cuda.max_memory_allocated() - max(0, other - found.workspace_bytes)
    assert abs(found.peak_bytes / measured - 1) < 0.05
