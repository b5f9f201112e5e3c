"""Segmentation networks as users write them: U-Nets, attention gates, atrous pyramids."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


def double_conv(inp: int, out: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inp, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class AttentionGate(nn.Module):
    """Weights a skip connection by what the decoder knows."""

    def __init__(self, skip: int, gate: int) -> None:
        super().__init__()
        self.w_skip = nn.Conv2d(skip, skip // 2, 1)
        self.w_gate = nn.Conv2d(gate, skip // 2, 1)
        self.psi = nn.Conv2d(skip // 2, 1, 1)

    def forward(self, skip: Tensor, gate: Tensor) -> Tensor:
        """The skip connection, (n, skip, h, w), scaled pixel by pixel."""
        a = F.relu(self.w_skip(skip) + self.w_gate(gate))
        return skip * torch.sigmoid(self.psi(a))


class UNet(nn.Module):
    """Four levels down and up again, with transposed convolutions or bilinear upsampling."""

    def __init__(self, width: int = 32, classes: int = 2, bilinear: bool = False, attention: bool = False) -> None:
        super().__init__()
        c = [width * 2**i for i in range(5)]
        self.inc = double_conv(3, c[0])
        self.downs = nn.ModuleList(double_conv(c[i], c[i + 1]) for i in range(4))
        self.ups, self.decs, self.gates = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i in reversed(range(4)):
            if bilinear:
                up = nn.Sequential(
                    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(c[i + 1], c[i], 1)
                )
            else:
                up = nn.ConvTranspose2d(c[i + 1], c[i], 2, stride=2)
            self.ups.append(up)
            self.decs.append(double_conv(2 * c[i], c[i]))
            self.gates.append(AttentionGate(c[i], c[i]) if attention else nn.Identity())
        self.attention = attention
        self.outc = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of each pixel."""
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up, dec, gate in zip(self.ups, self.decs, self.gates, strict=True):
            x = up(x)
            skip = skips.pop()
            if self.attention:
                skip = gate(skip, x)
            x = dec(torch.cat([skip, x], dim=1))
        return self.outc(x)


class ASPP(nn.Module):
    """Atrous convolutions of several rates beside a pooled branch."""

    def __init__(self, inp: int, out: int, rates: tuple[int, ...] = (6, 12, 18)) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Sequential(nn.Conv2d(inp, out, 1), nn.BatchNorm2d(out), nn.ReLU())])
        for rate in rates:
            conv = nn.Conv2d(inp, out, 3, padding=rate, dilation=rate, bias=False)
            self.branches.append(nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU()))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inp, out, 1), nn.ReLU())
        self.project = nn.Sequential(nn.Conv2d(out * (len(rates) + 2), out, 1), nn.BatchNorm2d(out), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size as x."""
        pooled = F.interpolate(self.pool(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.project(torch.cat([branch(x) for branch in self.branches] + [pooled], dim=1))


class DeepLabLike(nn.Module):
    """A small backbone, ASPP, a low-level skip, and bilinear upsampling to the image's size."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), double_conv(32, 64))
        self.low = nn.Sequential(nn.MaxPool2d(2), double_conv(64, 128))
        self.high = nn.Sequential(nn.MaxPool2d(2), double_conv(128, 256), double_conv(256, 256))
        self.aspp = ASPP(256, 128)
        self.reduce = nn.Conv2d(128, 48, 1)
        self.head = nn.Sequential(double_conv(128 + 48, 128), nn.Dropout(0.1), nn.Conv2d(128, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of each pixel of the image."""
        low = self.low(self.stem(x))
        y = self.aspp(self.high(low))
        y = F.interpolate(y, size=low.shape[-2:], mode="bilinear", align_corners=False)
        y = self.head(torch.cat([y, self.reduce(low)], dim=1))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class PyramidPooling(nn.Module):
    """A PSPNet-like head on a torchvision ResNet."""

    def __init__(self, classes: int = 19) -> None:
        super().__init__()
        from torchvision.models import resnet18

        net = resnet18(weights=None)
        self.stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)
        self.layers = nn.Sequential(net.layer1, net.layer2, net.layer3, net.layer4)
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(size), nn.Conv2d(512, 128, 1, bias=False), nn.ReLU())
            for size in (1, 2, 4)
        )
        self.head = nn.Sequential(nn.Conv2d(512 + 3 * 128, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Class of each pixel, as indices."""
        y = self.layers(self.stem(x))
        pooled = [F.interpolate(pool(y), size=y.shape[-2:], mode="nearest") for pool in self.pools]
        y = self.head(torch.cat([y, *pooled], dim=1))
        return F.interpolate(y, scale_factor=8, mode="bicubic", align_corners=False).softmax(dim=1)


def unet(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """U-Net with transposed convolutions."""
    return UNet().eval(), torch.randn(batch, 3, 256, 256)


def unet_bilinear(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """U-Net with bilinear upsampling."""
    return UNet(bilinear=True).eval(), torch.randn(batch, 3, 256, 256)


def attention_unet(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """U-Net whose skip connections are gated."""
    return UNet(width=24, attention=True).eval(), torch.randn(batch, 3, 256, 256)


def deeplab_like(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Encoder with an atrous pyramid."""
    return DeepLabLike().eval(), torch.randn(batch, 3, 320, 320)


def pyramid_pooling(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Pyramid pooling on torchvision's resnet18."""
    return PyramidPooling().eval(), torch.randn(batch, 3, 256, 256)
