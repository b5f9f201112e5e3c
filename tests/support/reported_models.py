"""Small networks with the essence of models that users report: graph breaks, autocast, caches, odd layers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


class Base(nn.Module):
    """A stem and a head around something odd."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.middle(torch.relu(self.norm(self.stem(x)))))


class Timed(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        self.began = time.time()
        torch._dynamo.graph_break()
        return x * 2


class Item(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.mean().item() > -1e9 else x - 1


class Through(Base):
    """Leaves torch for NumPy and comes back."""

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_numpy(x.cpu().numpy() * 0.5).to(x.device)


class Island(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            x = self.norm(x @ x.transpose(2, 3))
        return x.float()


class Counts(Base):
    """Writes a buffer in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x * self.calls


class Cached(Base):
    """Keeps positions between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, torch.Tensor] = {}

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape not in self.kept:
            self.kept[x.shape] = torch.arange(x.shape[-1], device=x.device).float()
        return x + self.kept[x.shape]


class Spectral(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=x.shape[-2:])


class Rotated(Base):
    """Complex rotations of attention's positions, in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.polar(torch.ones(8, 4), torch.rand(8, 4)))

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * self.turn).flatten(-2)


class Attends(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.layer(x.flatten(2).transpose(1, 2))
        return tokens.transpose(1, 2).reshape(x.shape)


class Recurs(Base):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x.flatten(2).transpose(1, 2))[0].transpose(1, 2).reshape(x.shape)


class UpDown(Base):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.up(torch.relu(self.down(x)))], 1)[:, :8]


class Weighted(Base):
    def __init__(self) -> None:
        super().__init__()
        self.extra = parametrizations.weight_norm(nn.Conv2d(8, 8, 1))

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.extra(x))


class Samples(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        grid = nn.functional.affine_grid(torch.eye(2, 3, device=x.device).expand(len(x), 2, 3), list(x.shape))
        return nn.functional.grid_sample(x, grid, align_corners=False)


class Recomputes(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: torch.relu(y) * 2, x, use_reentrant=False)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        return gradient * 2 * context.saved_tensors[0]


class OwnFunction(Base):
    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return Square.apply(x)


class Hooked(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm.register_forward_hook(lambda module, given, result: result * 2)


class Windows(Base):
    """Rolled windows and an index table, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.randperm(8))

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        rolled = torch.roll(x, (1, 1), (2, 3))[..., self.places]
        return rolled.unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2)).repeat_interleave(2, 2).repeat_interleave(2, 3)


class Shared(Base):
    """One module called twice."""

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.norm(x))


MODELS: dict[str, Callable[[], Base]] = {
    kind.__name__: kind
    for kind in (
        *(Base, Timed, Item, Through, Island, Counts, Cached, Spectral, Rotated, Attends, Recurs, UpDown, Weighted),
        *(Samples, Recomputes, OwnFunction, Hooked, Windows, Shared),
    )
}
"""Networks for images of 3x8x8, by name."""
