"""Modules whose compiled kernels are compared with those of Inductor itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

from collectors.workloads.single_operators import Apply


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


CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "batch-norm": (styled(nn.BatchNorm2d(16), nn.BatchNorm2d(16)), (2, 16, 32, 32)),
    "instance-norm": (styled(nn.InstanceNorm2d(16), nn.InstanceNorm2d(16)), (2, 16, 32, 32)),
    "instance-norm-split": (styled(nn.InstanceNorm2d(16, affine=True)), (2, 16, 128, 128)),
    "rms-norm": (nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64), nn.SiLU()), (2, 50, 64)),
    "layer-norm": (nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()), (2, 50, 64)),
    "unit-channels": (nn.Sequential(Normalised(), nn.Conv2d(32, 8, 3)), (2, 16, 20, 20)),
    "unit-rows": (Apply(lambda x: F.normalize(x, dim=-1) * 2), (8, 64)),
    "scans": (Scanned(), (2, 50, 64)),
    "softmax": (Apply(lambda x: x.softmax(-1) * x.sum(1, keepdim=True)), (8, 20, 64)),
}
"""Modules by name, each with the shape of its input."""
