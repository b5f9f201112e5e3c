"""Super-resolution, denoising and Fourier operators as users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class Espcn(nn.Module):
    """Sub-pixel super-resolution."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.c1, self.c2, self.c3 = (
            nn.Conv2d(1, 64, 5, padding=2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.Conv2d(64, 32, 3, padding=1),
        )
        self.c4, self.shuffle = nn.Conv2d(32, scale**2, 3, padding=1), nn.PixelShuffle(scale)

    def forward(self, x: Tensor) -> Tensor:
        """The enlarged image."""
        x = torch.tanh(self.c1(x))
        x = torch.tanh(self.c2(x))
        return torch.sigmoid(self.shuffle(self.c4(torch.tanh(self.c3(x)))))


class Edsr(nn.Module):
    """Residual blocks without norms, then pixel shuffles."""

    def __init__(self, width: int = 64, depth: int = 8) -> None:
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(depth)
        )
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))
        self.register_buffer("mean", torch.tensor([0.449, 0.437, 0.404]).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """An image of twice the size."""
        x = self.head(x - self.mean)
        y = x
        for block in self.body:
            y = y + 0.1 * block(y)
        return self.tail(self.up(x + y)) + self.mean


class SpectralLayer(nn.Module):
    """Low frequencies are mixed by complex weights, as in Fourier neural operators."""

    def __init__(self, c: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.low = nn.Parameter(torch.randn(c, c, modes, modes, dtype=torch.cfloat) / c)
        self.high = nn.Parameter(torch.randn(c, c, modes, modes, dtype=torch.cfloat) / c)

    def forward(self, x: Tensor) -> Tensor:
        """A map of the same size."""
        m = self.modes
        f = torch.fft.rfft2(x)
        out = torch.zeros_like(f)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class FourierOperator(nn.Module):
    """Four Fourier layers beside 1x1 convolutions."""

    def __init__(self, c: int = 32, modes: int = 12) -> None:
        super().__init__()
        self.lift, self.project = nn.Conv2d(1, c, 1), nn.Conv2d(c, 1, 1)
        self.spectral = nn.ModuleList(SpectralLayer(c, modes) for _ in range(4))
        self.local = nn.ModuleList(nn.Conv2d(c, c, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """A field of the same size."""
        x = self.lift(x)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            x = F.gelu(spectral(x) + local(x))
        return self.project(x)


class FftDenoiser(nn.Module):
    """Convolutions, a learned Wiener-like gain in the frequency domain, convolutions again."""

    def __init__(self, c: int = 48) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1))
        self.gain = nn.Sequential(nn.Conv2d(c, c, 1), nn.Sigmoid())
        self.dec = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """The image without its noise."""
        y = self.enc(x)
        f = torch.fft.fft2(y, norm="ortho")
        f = f * self.gain(f.abs())
        return x - self.dec(torch.fft.ifft2(f, norm="ortho").real)


def espcn(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Sub-pixel super-resolution."""
    return Espcn().eval(), torch.rand(batch, 1, 160, 160)


def edsr(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Residual super-resolution."""
    return Edsr().eval(), torch.rand(batch, 3, 96, 96)


def fourier_operator(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Fourier neural operator."""
    return FourierOperator().eval(), torch.randn(batch, 1, 64, 64)


def fft_denoiser(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Denoiser in the frequency domain."""
    return FftDenoiser().eval(), torch.rand(batch, 3, 128, 128)
