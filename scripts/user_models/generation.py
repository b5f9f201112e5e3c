"""Generators, autoencoders and diffusion as users write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from three_stages import image, stage
from torch import Tensor, nn
from torch.nn.utils import parametrizations


class Generator(nn.Module):
    """DCGAN's generator."""

    def __init__(self, z: int = 100, w: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.ConvTranspose2d(z, 8 * w, 4, 1, 0, bias=False),
            nn.BatchNorm2d(8 * w),
            nn.ReLU(True),
        ]
        for m in (8, 4, 2):
            layers += [
                nn.ConvTranspose2d(m * w, m * w // 2, 4, 2, 1, bias=False),
                nn.BatchNorm2d(m * w // 2),
                nn.ReLU(True),
            ]
        self.main = nn.Sequential(*layers, nn.ConvTranspose2d(w, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        """Images of 64x64."""
        return self.main(z)


class Discriminator(nn.Module):
    """DCGAN's discriminator with spectral norm."""

    def __init__(self, w: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in ((3, w), (w, 2 * w), (2 * w, 4 * w), (4 * w, 8 * w)):
            layers += [parametrizations.spectral_norm(nn.Conv2d(i, o, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True)]
        self.main = nn.Sequential(*layers, nn.Conv2d(8 * w, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        """One score an image."""
        return self.main(x).view(-1)


class Vae(nn.Module):
    """Convolutional variational autoencoder that samples in forward."""

    def __init__(self, latent: int = 128) -> None:
        super().__init__()
        enc: list[nn.Module] = []
        for i, o in ((3, 32), (32, 64), (64, 128), (128, 256)):
            enc += [nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.LeakyReLU()]
        self.enc, self.mu, self.logvar = (
            nn.Sequential(*enc, nn.Flatten()),
            nn.Linear(4096, latent),
            nn.Linear(4096, latent),
        )
        self.fc = nn.Linear(latent, 4096)
        dec: list[nn.Module] = []
        for i, o in ((256, 128), (128, 64), (64, 32)):
            dec += [nn.ConvTranspose2d(i, o, 3, 2, 1, output_padding=1), nn.BatchNorm2d(o), nn.LeakyReLU()]
        self.dec = nn.Sequential(*dec, nn.ConvTranspose2d(32, 3, 3, 2, 1, output_padding=1), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, log-variance, and a reconstruction from a sample."""
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return mu, logvar, self.dec(self.fc(z).view(-1, 256, 4, 4))


class TimeBlock(nn.Module):
    """Residual block with group norm that is shifted by a time embedding."""

    def __init__(self, i: int, o: int, t: int) -> None:
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, i), nn.Conv2d(i, o, 3, padding=1)
        self.time = nn.Linear(t, 2 * o)
        self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Features of the same size."""
        h = self.c1(F.silu(self.n1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        h = self.n2(h) * (1 + scale) + shift
        return self.skip(x) + self.c2(F.silu(h))


class DiffusionUNet(nn.Module):
    """Noise predictor: sinusoidal time embedding, two levels, attention in the middle."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        t = 4 * c
        self.c = c
        self.time = nn.Sequential(nn.Linear(c, t), nn.SiLU(), nn.Linear(t, t))
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.d1, self.d2 = TimeBlock(c, c, t), TimeBlock(c, 2 * c, t)
        self.down = nn.Conv2d(c, c, 3, 2, 1)
        self.norm, self.attn = nn.GroupNorm(8, 2 * c), nn.MultiheadAttention(2 * c, 4, batch_first=True)
        self.mid = TimeBlock(2 * c, 2 * c, t)
        self.u1 = TimeBlock(3 * c, c, t)
        self.out = nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        """Noise in x at integer time steps, (n,)."""
        half = self.c // 2
        freq = torch.exp(-math.log(10000) * torch.arange(half, device=x.device) / half)
        angle = steps[:, None].float() * freq
        t = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        h1 = self.d1(self.inp(x), t)
        h2 = self.d2(self.down(h1), t)
        seq = self.norm(h2).flatten(2).transpose(1, 2)
        h2 = h2 + self.attn(seq, seq, seq, need_weights=False)[0].transpose(1, 2).reshape(h2.shape)
        h2 = self.mid(h2, t)
        return self.out(self.u1(torch.cat([F.interpolate(h2, scale_factor=2, mode="nearest"), h1], 1), t))


class Autoencoder(nn.Module):
    """Anomaly detection: convolutions down, transposed ones up, the squared error as a map."""

    def __init__(self) -> None:
        super().__init__()
        down = [layer for i, o in ((1, 32), (32, 64), (64, 128)) for layer in (nn.Conv2d(i, o, 4, 2, 1), nn.ELU())]
        up = [layer for i, o in ((128, 64), (64, 32)) for layer in (nn.ConvTranspose2d(i, o, 4, 2, 1), nn.ELU())]
        self.net = nn.Sequential(*down, *up, nn.ConvTranspose2d(32, 1, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """A smoothed map of errors."""
        return F.avg_pool2d((self.net(x) - x).square(), 9, 1, 4)


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


def dcgan_generator(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Images from noise."""
    return Generator().eval(), torch.randn(batch, 100, 1, 1)


def dcgan_discriminator(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Spectral norm in inference."""
    return Discriminator().eval(), torch.randn(batch, 3, 64, 64)


def vae(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Variational autoencoder."""
    return Vae().eval(), torch.rand(batch, 3, 64, 64)


def diffusion_unet(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Noise predictor with a time embedding."""
    return DiffusionUNet().eval(), (torch.randn(batch, 3, 32, 32), torch.randint(0, 1000, (batch,)))


def autoencoder(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Anomaly maps."""
    return Autoencoder().eval(), torch.rand(batch, 1, 128, 128)


def transposed_stack(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Transposed convolutions."""
    return TransposedStack().eval(), image(batch, 64)
