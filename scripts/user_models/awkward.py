"""Models that torch.compile cannot take as one graph, or whose CUDA graph it refuses."""

from __future__ import annotations

import copy
import logging
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

log = logging.getLogger(__name__)


def stage(i: int, o: int, s: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Small(nn.Module):
    """Three stages and a head; subclasses do something between the stages."""

    def __init__(self) -> None:
        super().__init__()
        self.s1, self.s2, self.s3 = stage(3, 48, 2), stage(48, 96, 2), stage(96, 96)
        self.head = nn.Linear(96, 20)
        self.calls = 0

    def between(self, x: Tensor) -> Tensor:
        """Nothing, here."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.between(self.s1(x))
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class Prints(Small):
    """A print that was forgotten."""

    def between(self, x: Tensor) -> Tensor:
        """The same, and a line on the terminal."""
        print("after stage 1:", tuple(x.shape))
        return x


class Logs(Small):
    """Debug messages of a logger."""

    def between(self, x: Tensor) -> Tensor:
        """The same."""
        log.info("stage 1 gave %s", x.shape)
        return x


class Stopwatch(Small):
    """Times its first stage."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        start = time.time()
        x = self.s1(x)
        self.took = time.time() - start
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class Excluded(Small):
    """A step that is kept out of torch.compile."""

    @torch.compiler.disable
    def between(self, x: Tensor) -> Tensor:
        """Clipped."""
        return x.clamp(max=6.0)


class NumpyWindow(Small):
    """A window made by numpy."""

    def between(self, x: Tensor) -> Tensor:
        """Weighted towards the middle."""
        w = torch.from_numpy(np.hanning(x.shape[-1]).astype(np.float32)).to(x.device)
        return x * (0.5 + w)


class CopiesConfig(Small):
    """Copies its configuration in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"gain": [1.5], "bias": 0.1}

    def between(self, x: Tensor) -> Tensor:
        """Scaled and shifted."""
        config = copy.deepcopy(self.config)
        return x * config["gain"][0] + config["bias"]


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


class NormalisesInPlace(Small):
    """Writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x.sub_(0.45).mul_(0.999)
        x = self.s1(x)
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class CpuTable(Small):
    """A table that stays on the CPU and is moved in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.linspace(0.5, 1.5, 48)

    def between(self, x: Tensor) -> Tensor:
        """Scaled by channel."""
        return x * self.table.to(x.device)[None, :, None, None]


class RunningMean(Small):
    """Keeps a running mean of its features in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(48))

    def between(self, x: Tensor) -> Tensor:
        """Centred."""
        self.memory.mul_(0.9).add_(0.1 * x.mean((0, 2, 3)))
        return x - self.memory[:, None, None]


class CachesGrid(Small):
    """Makes a grid of positions at the first call and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, int], Tensor] = {}

    def between(self, x: Tensor) -> Tensor:
        """With positions added."""
        size = (x.shape[-2], x.shape[-1])
        if size not in self.kept:
            rows = torch.linspace(-1, 1, size[0], device=x.device)
            cols = torch.linspace(-1, 1, size[1], device=x.device)
            self.kept[size] = torch.sin(rows[:, None] * 3) * torch.cos(cols[None] * 5)
        return x + self.kept[size]


class ShapeTensor(Small):
    """Sizes handled as tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and their size as a tensor on the device."""
        x = self.s1(x)
        size = torch.stack([torch._shape_as_tensor(x)[-2:]]).to(x.device)
        return self.head(self.s3(self.s2(x)).mean((2, 3))), size


class MixedInside(Small):
    """Half precision in the stages, float32 in the head."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            x = self.s2(self.s1(x))
            with torch.autocast(x.device.type, enabled=False):
                x = x.float() / 6
            x = self.s3(x)
        return self.head(x.float().mean((2, 3)))


class Hooks(nn.Module):
    """Features of inner layers by forward hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(stage(3, 48, 2), stage(48, 96, 2), stage(96, 192, 2))
        self.features: dict[str, Tensor] = {}
        for name, layer in self.net.named_children():
            layer.register_forward_hook(self._keep(name))

    def _keep(self, name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            self.features[name] = output

        return hook

    def forward(self, x: Tensor) -> Tensor:
        """Means of all kept features."""
        self.net(x)
        return torch.cat([f.mean((2, 3)) for f in self.features.values()], 1)


class Checkpointed(Small):
    """Activation checkpointing left on in inference."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = checkpoint(self.s1, x, use_reentrant=False)
        x = checkpoint(self.s2, x, use_reentrant=False)
        return self.head(self.s3(x).mean((2, 3)))


@torch.jit.script
def scripted_mish(x: Tensor) -> Tensor:
    """Mish, as TorchScript."""
    return x * torch.tanh(F.softplus(x))


class Scripted(Small):
    """Calls a scripted function."""

    def between(self, x: Tensor) -> Tensor:
        """Activated."""
        return scripted_mish(x)


class HardClip(torch.autograd.Function):
    """Straight-through clipping."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        """Clipped to [0, 1]."""
        return x.clamp(0, 1)

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        """As if nothing were clipped."""
        return grad


class StraightThrough(Small):
    """Calls an autograd.Function."""

    def between(self, x: Tensor) -> Tensor:
        """Quantised to 16 levels."""
        return torch.round(HardClip.apply(x) * 15) / 15


@torch.library.custom_op("user_models::soft_clip", mutates_args=())
def soft_clip(x: Tensor, limit: float) -> Tensor:
    """Clipped smoothly."""
    return limit * torch.tanh(x / limit)


@soft_clip.register_fake
def _(x: Tensor, _limit: float) -> Tensor:
    return torch.empty_like(x)


class CustomOperator(Small):
    """Calls an operator of its own."""

    def between(self, x: Tensor) -> Tensor:
        """Clipped."""
        return soft_clip(x, 3.0)


class BigWarp(nn.Module):
    """A large map sampled on a given grid."""

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """Sampled, bilinear."""
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


class TransposedStack(nn.Module):
    """Transposed convolutions with output padding, as many channels out as in."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        ups = [nn.ConvTranspose2d(c, c, 3, 2, 1, output_padding=1) for _ in range(3)]
        self.net = nn.Sequential(stage(3, c, 2), *(layer for up in ups for layer in (up, nn.BatchNorm2d(c), nn.ReLU())))
        self.out = nn.Conv2d(c, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """An image of four times the size."""
        return self.out(self.net(x))


def _image(batch: int, size: int = 160) -> Tensor:
    return torch.randn(batch, 3, size, size)


def prints(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Print in forward."""
    return Prints().eval(), _image(batch)


def logs(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A logger in forward."""
    return Logs().eval(), _image(batch)


def stopwatch(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """The clock in forward."""
    return Stopwatch().eval(), _image(batch)


def excluded(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """torch.compiler.disable."""
    return Excluded().eval(), _image(batch)


def numpy_window(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Numpy in forward."""
    return NumpyWindow().eval(), _image(batch)


def copies_config(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Deepcopy in forward."""
    return CopiesConfig().eval(), _image(batch)


def early_exit(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A branch on values."""
    return EarlyExit().eval(), _image(batch)


def reads_scale(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """item() in forward."""
    return ReadsScale().eval(), _image(batch)


def validates(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Checks that raise."""
    return Validates().eval(), _image(batch)


def ragged_attention(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """tolist() in forward."""
    return RaggedAttention().eval(), (torch.randn(batch * 256, 192), torch.tensor([64, 64, 128] * batch))


def selects(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Boolean indexing."""
    return Selects().eval(), _image(batch)


def normalises_in_place(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """An input that is written."""
    return NormalisesInPlace().eval(), _image(batch)


def cpu_table(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A tensor on the CPU."""
    return CpuTable().eval(), _image(batch)


def running_mean(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A buffer that is written."""
    return RunningMean().eval(), _image(batch)


def training_mode(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Batch norm in training mode."""
    return Small().train(), _image(max(batch, 2))


def caches_grid(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A result kept between calls."""
    return CachesGrid().eval(), _image(batch)


def shape_tensor(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Sizes as tensors."""
    return ShapeTensor().eval(), _image(batch)


def mixed_inside(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Autocast in forward."""
    return MixedInside().eval(), _image(batch)


def hooks(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Forward hooks."""
    return Hooks().eval(), _image(batch)


def checkpointed(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Activation checkpointing."""
    return Checkpointed().eval(), _image(batch)


def scripted(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A scripted function."""
    return Scripted().eval(), _image(batch)


def straight_through(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """An autograd.Function."""
    return StraightThrough().eval(), _image(batch)


def custom_operator(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A custom operator."""
    return CustomOperator().eval(), _image(batch)


def big_warp(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """grid_sample on a large map."""
    return BigWarp().eval(), (torch.randn(batch, 32, 384, 384), torch.rand(batch, 384, 384, 2) * 2 - 1)


def transposed_stack(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Transposed convolutions."""
    return TransposedStack().eval(), _image(batch, 64)
