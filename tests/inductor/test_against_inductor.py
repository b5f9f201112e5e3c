"""Kernels of compiled code against those of Inductor's own scheduler, run for a GPU on fake tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from collectors.workloads.single_operators import Apply
from costmodel.capture.trace import capture
from costmodel.inductor.pipeline import compiled_kernels
from tests.support.inductor_for_gpu import kernels_made

pytest.importorskip("triton", reason="Inductor plans kernels for a GPU only with Triton installed")


class Normalised(nn.Module):
    """Unit rows after a convolution, as in a head of descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.conv(x), dim=1)


class Scanned(nn.Module):
    """Two scans of one gate, as in a linear recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        decay = torch.cumsum(-F.softplus(self.project(x)), 1)
        return torch.exp(decay) * torch.cumsum(x * torch.exp(-decay), 1)


def styled(*norms: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for norm in norms:
        layers += [nn.Conv2d(16, 16, 3, padding=1), norm, nn.ReLU()]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        pytest.param(styled(nn.BatchNorm2d(16), nn.BatchNorm2d(16)), (2, 16, 32, 32), id="batch-norm"),
        pytest.param(styled(nn.InstanceNorm2d(16), nn.InstanceNorm2d(16)), (2, 16, 32, 32), id="instance-norm"),
        pytest.param(styled(nn.InstanceNorm2d(16, affine=True)), (2, 16, 128, 128), id="instance-norm-split"),
        pytest.param(nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64), nn.SiLU()), (2, 50, 64), id="rms-norm"),
        pytest.param(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()), (2, 50, 64), id="layer-norm"),
        pytest.param(nn.Sequential(Normalised(), nn.Conv2d(32, 8, 3)), (2, 16, 20, 20), id="unit-channels"),
        pytest.param(Apply(lambda x: F.normalize(x, dim=-1) * 2), (8, 64), id="unit-rows"),
        pytest.param(Scanned(), (2, 50, 64), id="scans"),
        pytest.param(Apply(lambda x: x.softmax(-1) * x.sum(1, keepdim=True)), (8, 20, 64), id="softmax"),
    ],
)
def test_as_many_kernels_as_inductor(module: nn.Module, shape: tuple[int, ...]) -> None:
    kernels = compiled_kernels(capture(module.eval(), (torch.empty(shape, device="meta"),)))
    generated = sum(kernel.launches for kernel in kernels if kernel.backend == "triton")
    calls = sum(kernel.backend == "aten" for kernel in kernels)
    assert (generated, calls) == kernels_made(module, shape)
