"""Control flow, shapes and checks that depend on the values of tensors."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from three_stages import Small, image
from torch import Tensor, nn


class EarlyExit(Small):
    """Leaves after stage 1 where it is confident."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Linear(48, 20)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, of the early head or the last."""
        x = self.s1(x)
        first = self.early(x.mean((2, 3)))
        if first.softmax(-1).amax() > 0.95:
            return first
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class ReadsScale(Small):
    """Reads a statistic as a Python number."""

    def between(self, x: Tensor) -> Tensor:
        """Normalised by its largest value."""
        return x / max(x.abs().amax().item(), 1e-3)


class Validates(Small):
    """Checks of values that raise, at the entrance and inside."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        if torch.isnan(x).any():
            raise ValueError("the image has a nan")
        if (self.std <= 0).any():
            raise ValueError("std must be positive")
        x = self.s1(x / self.std)
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class RaggedAttention(nn.Module):
    """Attention over pieces whose lengths are a tensor."""

    def __init__(self, dim: int = 192, depth: int = 3) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(depth))
        self.out = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Tokens, (all, dim)."""
        for qkv, out in zip(self.qkv, self.out, strict=True):
            pieces = []
            for piece in torch.split(qkv(tokens), lengths.tolist()):
                q, k, v = piece.unsqueeze(0).chunk(3, -1)
                pieces.append(F.scaled_dot_product_attention(q, k, v)[0])
            tokens = tokens + out(torch.cat(pieces))
        return tokens


class Selects(Small):
    """Keeps the confident rows only: a shape that depends on data."""

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the kept rows' logits."""
        f = self.s2(self.s1(x)).flatten(2).transpose(1, 2).reshape(-1, 96)
        kept = f[f.mean(1) > f.mean()]
        return self.head(kept).sum(0, keepdim=True)


class ShapeTensor(Small):
    """Sizes handled as tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and their size as a tensor on the device."""
        x = self.s1(x)
        size = torch.stack([torch._shape_as_tensor(x)[-2:]]).to(x.device)
        return self.head(self.s3(self.s2(x)).mean((2, 3))), size


def early_exit(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A branch on values."""
    return EarlyExit().eval(), image(batch)


def reads_scale(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """item() in forward."""
    return ReadsScale().eval(), image(batch)


def validates(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Checks that raise."""
    return Validates().eval(), image(batch)


def ragged_attention(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """tolist() in forward."""
    return RaggedAttention().eval(), (torch.randn(batch * 256, 192), torch.tensor([64, 64, 128] * batch))


def selects(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Boolean indexing."""
    return Selects().eval(), image(batch)


def shape_tensor(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Sizes as tensors."""
    return ShapeTensor().eval(), image(batch)
