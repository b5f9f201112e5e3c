"""Warps, optical flow, stereo, rays and point clouds as users write them."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


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


class BigWarp(nn.Module):
    """A large map sampled on a given grid."""

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """Sampled, bilinear."""
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def spatial_transformer(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """affine_grid and grid_sample."""
    return SpatialTransformer().eval(), torch.randn(batch, 3, 96, 96)


def flow_net(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Optical flow."""
    return FlowNet().eval(), (torch.rand(batch, 3, 128, 192), torch.rand(batch, 3, 128, 192))


def stereo(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Stereo matching."""
    return Stereo().eval(), (torch.rand(batch, 3, 128, 192), torch.rand(batch, 3, 128, 192))


def nerf(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Colours of 512 rays a batch element."""
    return Nerf().eval(), torch.rand(batch * 512, 32, 3)


def point_net(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Classification of point clouds."""
    return PointNet().eval(), torch.randn(batch, 3, 1024)


def big_warp(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """grid_sample on a large map."""
    return BigWarp().eval(), (torch.randn(batch, 32, 384, 384), torch.rand(batch, 384, 384, 2) * 2 - 1)
