"""Restoration, geometry and generation as users write them."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.nn.utils import parametrizations


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


class SpatialTransformer(nn.Module):
    """A localisation network aligns the image before it is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.loc = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU()
        )
        self.theta = nn.Linear(32 * 16, 6)
        self.theta.bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))
        self.net = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(128, 43)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        theta = self.theta(F.adaptive_avg_pool2d(self.loc(x), 4).flatten(1)).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
        return self.head(self.net(x).mean((2, 3)))


def warp(x: Tensor, flow: Tensor) -> Tensor:
    """Samples x where a flow in pixels points to."""
    _n, _, h, w = x.shape
    ys, xs = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
    grid = torch.stack([xs, ys], 0).to(x.dtype) + flow
    scale = torch.tensor([2.0 / (w - 1), 2.0 / (h - 1)], device=x.device, dtype=x.dtype)
    return F.grid_sample(x, grid.permute(0, 2, 3, 1) * scale - 1, padding_mode="border", align_corners=True)


class FlowNet(nn.Module):
    """Three-level pyramid: warp, local correlation volume, convolutional estimator."""

    def __init__(self, radius: int = 3) -> None:
        super().__init__()
        self.radius = radius
        self.pyramid = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(o, o, 3, 1, 1), nn.LeakyReLU(0.1))
            for i, o in ((3, 32), (32, 48), (48, 64))
        )
        volume = (2 * radius + 1) ** 2
        self.estimators = nn.ModuleList(
            nn.Sequential(nn.Conv2d(volume + c + 2, 64, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(64, 2, 3, 1, 1))
            for c in (64, 48, 32)
        )

    def _correlate(self, a: Tensor, b: Tensor) -> Tensor:
        r = self.radius
        h, w = a.shape[-2:]
        b = F.pad(b, (r, r, r, r))
        shifted = [(a * b[..., i : i + h, j : j + w]).mean(1) for i in range(2 * r + 1) for j in range(2 * r + 1)]
        return torch.stack(shifted, 1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Flow at half the size."""
        left, right = [first], [second]
        for level in self.pyramid:
            left.append(level(left[-1]))
            right.append(level(right[-1]))
        flow = first.new_zeros(first.shape[0], 2, *left[-1].shape[-2:])
        for i, estimate in enumerate(self.estimators):
            a, b = left[3 - i], right[3 - i]
            if i:
                flow = 2 * F.interpolate(flow, size=a.shape[-2:], mode="bilinear", align_corners=False)
            flow = flow + estimate(torch.cat([self._correlate(a, warp(b, flow)), a, flow], 1))
        return flow


class Stereo(nn.Module):
    """Cost volume by concatenation, 3-D convolutions, soft-argmin."""

    def __init__(self, disparities: int = 16) -> None:
        super().__init__()
        self.disparities = disparities
        self.feature = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 16, 3, 2, 1))
        self.regular = nn.Sequential(
            nn.Conv3d(32, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(),
            nn.Conv3d(16, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(),
            nn.ConvTranspose3d(16, 1, 4, 2, 1),
        )  # fmt: skip

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Disparity at half the size."""
        a, b = self.feature(left), self.feature(right)
        n, c, h, w = a.shape
        cost = a.new_zeros(n, 2 * c, self.disparities, h, w)
        for d in range(self.disparities):
            cost[:, :c, d, :, d:] = a[..., d:]
            cost[:, c:, d, :, d:] = b[..., : w - d]
        prob = F.softmax(-self.regular(cost).squeeze(1), dim=1)
        return (prob * torch.arange(prob.shape[1], device=prob.device).view(1, -1, 1, 1)).sum(1)


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


class Nerf(nn.Module):
    """Positional encoding, eight layers with a skip, colours composed along rays."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.a = nn.ModuleList(nn.Linear(63 if i == 0 else width, width) for i in range(4))
        self.b = nn.ModuleList(nn.Linear(width + 63 if i == 0 else width, width) for i in range(3))
        self.sigma, self.rgb = nn.Linear(width, 1), nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, points: Tensor) -> Tensor:
        """Colours of rays from points on them, (rays, samples, 3)."""
        scaled = points[..., None] * 2.0 ** torch.arange(10, device=points.device)
        code = torch.cat([points, scaled.sin().flatten(-2), scaled.cos().flatten(-2)], -1)
        h = code
        for layer in self.a:
            h = F.relu(layer(h))
        h = torch.cat([h, code], -1)
        for layer in self.b:
            h = F.relu(layer(h))
        alpha = 1 - torch.exp(-F.softplus(self.sigma(h)) * 0.05)
        passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        return (alpha * passed * self.rgb(h).sigmoid()).sum(1)


class PointNet(nn.Module):
    """Shared MLPs over points, an input transform, a global maximum."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        self.tnet, self.tfc = self._mlp(3, 64, 256), nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 9))
        self.mlp1, self.mlp2 = self._mlp(3, 64), self._mlp(64, 128, 1024)
        self.head = nn.Sequential(nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, classes))

    @staticmethod
    def _mlp(*c: int) -> nn.Sequential:
        parts = [(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU()) for i, o in itertools.pairwise(c)]
        return nn.Sequential(*(layer for part in parts for layer in part))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of clouds, (n, 3, points)."""
        t = self.tfc(self.tnet(x).amax(2)).view(-1, 3, 3) + torch.eye(3, device=x.device)
        return self.head(self.mlp2(self.mlp1(torch.bmm(t, x))).max(dim=2).values)


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


def spatial_transformer(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """affine_grid and grid_sample."""
    return SpatialTransformer().eval(), torch.randn(batch, 3, 96, 96)


def flow_net(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Optical flow."""
    return FlowNet().eval(), (torch.rand(batch, 3, 128, 192), torch.rand(batch, 3, 128, 192))


def stereo(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Stereo matching."""
    return Stereo().eval(), (torch.rand(batch, 3, 128, 192), torch.rand(batch, 3, 128, 192))


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


def nerf(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Colours of 512 rays a batch element."""
    return Nerf().eval(), torch.rand(batch * 512, 32, 3)


def point_net(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Classification of point clouds."""
    return PointNet().eval(), torch.randn(batch, 3, 1024)
