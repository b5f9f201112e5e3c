"""Image classifiers with uncommon parts, as users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn
from torch.nn.utils import parametrizations


class LargeKernel(nn.Module):
    """Depthwise convolutions of 31x31 beside 5x5 ones."""

    def __init__(self, c: int = 96, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 4, 4), nn.BatchNorm2d(c))
        self.large = nn.ModuleList(nn.Conv2d(c, c, 31, padding=15, groups=c) for _ in range(depth))
        self.small = nn.ModuleList(nn.Conv2d(c, c, 5, padding=2, groups=c) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c), nn.Conv2d(c, 4 * c, 1), nn.GELU(), nn.Conv2d(4 * c, c, 1))
            for _ in range(depth)
        )
        self.head = nn.Linear(c, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.stem(x)
        for large, small, mlp in zip(self.large, self.small, self.mlp, strict=True):
            x = x + mlp(large(x) + small(x))
        return self.head(x.mean((2, 3)))


class GroupNormBlock(nn.Module):
    """Residual block with group norm and standardised weights."""

    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.n1, self.n2 = nn.GroupNorm(16, o), nn.GroupNorm(16, o)
        self.down = nn.Conv2d(i, o, 1, s) if s > 1 or i != o else None

    def _standard(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        w = conv.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, None, conv.stride, conv.padding)

    def forward(self, x: Tensor) -> Tensor:
        """Features at 1/s of the size."""
        y = F.relu(self.n1(self._standard(self.c1, x)))
        y = self.n2(self._standard(self.c2, y))
        return F.relu(y + (x if self.down is None else self.down(x)))


class GroupNormResNet(nn.Module):
    """ResNet with group norm instead of batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.GroupNorm(16, 64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(GroupNormBlock(64, 64, 1), GroupNormBlock(64, 128, 2), GroupNormBlock(128, 256, 2))
        self.head = nn.Linear(256, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class WeightNormNet(nn.Module):
    """Every weight is a direction times a length, computed anew in each call."""

    def __init__(self) -> None:
        super().__init__()
        wn = parametrizations.weight_norm
        sizes = ((3, 64, 1), (64, 64, 2), (64, 128, 1), (128, 128, 2), (128, 256, 2))
        self.convs = nn.ModuleList(wn(nn.Conv2d(i, o, 3, s, 1)) for i, o, s in sizes)
        self.fc = wn(nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
        return self.fc(x.mean((2, 3)))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels of the groups in turn."""
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffleUnit(nn.Module):
    """Half of the channels pass; the other half is convolved; then they are shuffled."""

    def __init__(self, c: int) -> None:
        super().__init__()
        h = c // 2
        self.branch = nn.Sequential(
            nn.Conv2d(h, h, 1, bias=False), nn.BatchNorm2d(h), nn.ReLU(True),
            nn.Conv2d(h, h, 3, padding=1, groups=h, bias=False), nn.BatchNorm2d(h),
            nn.Conv2d(h, h, 1, bias=False), nn.BatchNorm2d(h), nn.ReLU(True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size."""
        a, b = x.chunk(2, 1)
        return channel_shuffle(torch.cat([a, self.branch(b)], 1), 2)


class ShuffleMobile(nn.Module):
    """Shuffle units between strided convolutions."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU6(True), nn.MaxPool2d(2)]
        for i, o, n in ((32, 96, 3), (96, 192, 5), (192, 384, 2)):
            layers += [nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU6(True)]
            layers += [ShuffleUnit(o) for _ in range(n)]
        self.net, self.head = nn.Sequential(*layers), nn.Linear(384, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(F.adaptive_avg_pool2d(self.net(x), 1).flatten(1))


class SqueezeExcite(nn.Module):
    """Channels weighted by their means."""

    def __init__(self, c: int, r: int = 8) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(c, c // r), nn.Linear(c // r, c)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size."""
        s = torch.sigmoid(self.fc2(F.relu(self.fc1(x.mean(dim=[2, 3])))))
        return x * s[:, :, None, None]


class SENet(nn.Module):
    """Residual blocks with squeeze and excitation, on images of 32x32."""

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.bodies = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(),
                          nn.Conv2d(c, c, 3, padding=1), SqueezeExcite(c))
            for _ in range(8)
        )  # fmt: skip
        self.head = nn.Linear(c, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.stem(x)
        for body in self.bodies:
            x = x + body(x)
        return self.head(x.mean((2, 3)))


class OwnDeformable(nn.Module):
    """Deformable convolution without a library: nine sampled copies, one matmul."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        self.offset, self.weight = nn.Conv2d(i, 18, 3, padding=1), nn.Conv2d(9 * i, o, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size."""
        n, _c, h, w = x.shape
        off = self.offset(x).view(n, 9, 2, h, w)
        ys, xs = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
        taps = []
        for k in range(9):
            gx = (xs + (k % 3 - 1) + off[:, k, 0]) * (2 / (w - 1)) - 1
            gy = (ys + (k // 3 - 1) + off[:, k, 1]) * (2 / (h - 1)) - 1
            taps.append(F.grid_sample(x, torch.stack([gx, gy], -1), align_corners=True))
        return self.weight(torch.cat(taps, 1))


class DeformNet(nn.Module):
    """Two deformable blocks, own or torchvision's."""

    def __init__(self, library: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
        self.library = library
        if library:
            from torchvision.ops import DeformConv2d

            self.offset = nn.Conv2d(32, 27, 3, padding=1)
            self.deform: nn.Module = DeformConv2d(32, 64, 3, padding=1)
        else:
            self.deform = OwnDeformable(32, 64)
        self.head = nn.Sequential(
            nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features, (n, 64)."""
        x = self.stem(x)
        if not self.library:
            return self.head(self.deform(x))
        o = self.offset(x)
        return self.head(self.deform(x, o[:, :18], o[:, 18:].sigmoid()))


class TwoBackbones(nn.Module):
    """Features of a timm model and of a torchvision one, joined by a small head."""

    def __init__(self) -> None:
        super().__init__()
        import timm
        from torchvision.models import mobilenet_v3_small

        self.a = timm.create_model("resnet10t", pretrained=False, num_classes=0)
        self.b = mobilenet_v3_small(weights=None).features
        self.head = nn.Sequential(
            nn.Linear(self.a.num_features + 576, 256), nn.Dropout(0.2), nn.ReLU(), nn.Linear(256, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(torch.cat([self.a(x), self.b(x).mean((2, 3))], 1))


def large_kernel(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """31x31 depthwise convolutions."""
    return LargeKernel().eval(), torch.randn(batch, 3, 224, 224)


def group_norm_resnet(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Group norm and standardised weights."""
    return GroupNormResNet().eval(), torch.randn(batch, 3, 224, 224)


def weight_norm_net(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Weight norm in inference."""
    return WeightNormNet().eval(), torch.randn(batch, 3, 64, 64)


def shuffle_mobile(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Channel shuffles."""
    return ShuffleMobile().eval(), torch.randn(batch, 3, 224, 224)


def senet(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Squeeze and excitation."""
    return SENet().eval(), torch.randn(batch, 3, 32, 32)


def senet_float16(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """The same in half precision."""
    return SENet(128).half().eval(), torch.randn(batch, 3, 64, 64, dtype=torch.float16)


def own_deformable(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Deformable convolution by grid_sample."""
    return DeformNet().eval(), torch.randn(batch, 3, 128, 128)


def library_deformable(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Torchvision's modulated DeformConv2d."""
    return DeformNet(library=True).eval(), torch.randn(batch, 3, 128, 128)


def two_backbones(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Parts of timm and torchvision."""
    return TwoBackbones().eval(), torch.randn(batch, 3, 224, 224)
