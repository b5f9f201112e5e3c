"""Detectors, trackers and keypoint networks as users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class Conv(nn.Module):
    """Convolution, batch norm, SiLU."""

    def __init__(self, inp: int, out: int, k: int = 1, s: int = 1, g: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inp, out, k, s, k // 2, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(out, eps=1e-3)
        self.act = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Features at 1/s of the size."""
        return self.act(self.bn(self.conv(x)))


class C2f(nn.Module):
    """A cross-stage block that keeps each bottleneck's output."""

    def __init__(self, inp: int, out: int, n: int = 1, shortcut: bool = True) -> None:
        super().__init__()
        self.c = out // 2
        self.cv1 = Conv(inp, out)
        self.m = nn.ModuleList(nn.Sequential(Conv(self.c, self.c, 3), Conv(self.c, self.c, 3)) for _ in range(n))
        self.cv2 = Conv((2 + n) * self.c, out)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size."""
        parts = list(self.cv1(x).chunk(2, 1))
        for m in self.m:
            y = m(parts[-1])
            parts.append(parts[-1] + y if self.shortcut else y)
        return self.cv2(torch.cat(parts, 1))


class SPPF(nn.Module):
    """Three max pools in a row, all kept."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(c, c // 2), Conv(2 * c, c)

    def forward(self, x: Tensor) -> Tensor:
        """Features of the same size."""
        y = [self.cv1(x)]
        for _ in range(3):
            y.append(F.max_pool2d(y[-1], 5, 1, 2))
        return self.cv2(torch.cat(y, 1))


class YoloLike(nn.Module):
    """CSP backbone, path-aggregating neck, decoupled heads at three strides, boxes decoded on a grid."""

    def __init__(self, w: int = 16, classes: int = 80) -> None:
        super().__init__()
        c = [w, 2 * w, 4 * w, 8 * w, 16 * w]
        self.stem = nn.Sequential(Conv(3, c[0], 3, 2), Conv(c[0], c[1], 3, 2), C2f(c[1], c[1]))
        self.p3 = nn.Sequential(Conv(c[1], c[2], 3, 2), C2f(c[2], c[2], 2))
        self.p4 = nn.Sequential(Conv(c[2], c[3], 3, 2), C2f(c[3], c[3], 2))
        self.p5 = nn.Sequential(Conv(c[3], c[4], 3, 2), C2f(c[4], c[4]), SPPF(c[4]))
        self.up4, self.up3 = C2f(c[3] + c[4], c[3], 1, False), C2f(c[2] + c[3], c[2], 1, False)
        self.d3, self.d4 = Conv(c[2], c[2], 3, 2), Conv(c[3], c[3], 3, 2)
        self.n4, self.n5 = C2f(c[2] + c[3], c[3], 1, False), C2f(c[3] + c[4], c[4], 1, False)
        self.box = nn.ModuleList(nn.Sequential(Conv(i, 64, 3), nn.Conv2d(64, 4, 1)) for i in c[2:])
        self.cls = nn.ModuleList(nn.Sequential(Conv(i, 64, 3), nn.Conv2d(64, classes, 1)) for i in c[2:])

    def forward(self, x: Tensor) -> Tensor:
        """Boxes and class scores, (n, 4 + classes, anchors)."""
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.up4(torch.cat([F.interpolate(p5, scale_factor=2.0), p4], 1))
        n3 = self.up3(torch.cat([F.interpolate(n4, scale_factor=2.0), p3], 1))
        n4 = self.n4(torch.cat([self.d3(n3), n4], 1))
        n5 = self.n5(torch.cat([self.d4(n4), p5], 1))
        levels = zip((n3, n4, n5), self.box, self.cls, (8, 16, 32), strict=True)
        return torch.cat([self._decode(box(feat), cls(feat), stride) for feat, box, cls, stride in levels], 2)

    @staticmethod
    def _decode(box: Tensor, cls: Tensor, stride: int) -> Tensor:
        h, w = box.shape[-2:]
        ys = torch.arange(h, device=box.device, dtype=box.dtype) + 0.5
        xs = torch.arange(w, device=box.device, dtype=box.dtype) + 0.5
        gy, gx = torch.meshgrid(ys, xs, indexing="ij")
        left, top, right, bottom = box.exp().unbind(1)
        corners = torch.stack([gx - left, gy - top, gx + right, gy + bottom], 1) * stride
        return torch.cat([corners, cls.sigmoid()], 1).flatten(2)


class FPN(nn.Module):
    """Feature pyramid on three maps of a plain backbone."""

    def __init__(self, c: int = 128) -> None:
        super().__init__()
        self.c2 = nn.Sequential(Conv(3, 32, 3, 2), Conv(32, 64, 3, 2), Conv(64, 64, 3))
        self.c3 = nn.Sequential(Conv(64, 128, 3, 2), Conv(128, 128, 3))
        self.c4 = nn.Sequential(Conv(128, 256, 3, 2), Conv(256, 256, 3))
        self.c5 = nn.Sequential(Conv(256, 512, 3, 2), Conv(512, 512, 3))
        self.lat = nn.ModuleList(nn.Conv2d(i, c, 1) for i in (128, 256, 512))
        self.out = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(3))
        self.p6 = nn.Conv2d(c, c, 3, 2, 1)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Maps at 1/8, 1/16, 1/32 and 1/64."""
        c3 = self.c3(self.c2(x))
        c4 = self.c4(c3)
        c5 = self.c5(c4)
        t5 = self.lat[2](c5)
        t4 = self.lat[1](c4) + F.interpolate(t5, size=c4.shape[-2:], mode="nearest")
        t3 = self.lat[0](c3) + F.interpolate(t4, size=c3.shape[-2:], mode="nearest")
        maps = [out(t) for out, t in zip(self.out, (t3, t4, t5), strict=True)]
        return [*maps, self.p6(maps[-1])]


class RetinaLike(nn.Module):
    """One head of four convolutions shared by all levels, nine anchors a place."""

    def __init__(self, classes: int = 20, c: int = 128) -> None:
        super().__init__()
        self.fpn = FPN(c)
        self.cls = nn.Sequential(*self._tower(c), nn.Conv2d(c, 9 * classes, 3, padding=1))
        self.reg = nn.Sequential(*self._tower(c), nn.Conv2d(c, 36, 3, padding=1))
        self.classes = classes

    @staticmethod
    def _tower(c: int) -> list[nn.Module]:
        return [layer for _ in range(4) for layer in (nn.Conv2d(c, c, 3, padding=1), nn.ReLU(inplace=True))]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores, (n, anchors, classes), and offsets, (n, anchors, 4)."""
        scores, boxes = [], []
        for f in self.fpn(x):
            scores.append(self.cls(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes))
            boxes.append(self.reg(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
        return torch.cat(scores, 1).sigmoid(), torch.cat(boxes, 1)


class FcosLike(nn.Module):
    """Anchor-free head with group norm and centerness; the best hundred places are kept."""

    def __init__(self, classes: int = 20, c: int = 128) -> None:
        super().__init__()
        self.fpn = FPN(c)
        self.cls_tower, self.reg_tower = self._tower(c), self._tower(c)
        self.cls, self.ctr = nn.Conv2d(c, classes, 3, padding=1), nn.Conv2d(c, 1, 3, padding=1)
        self.reg = nn.Conv2d(c, 4, 3, padding=1)
        self.scales = nn.Parameter(torch.ones(4))

    @staticmethod
    def _tower(c: int) -> nn.Sequential:
        parts = [(nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(32, c), nn.ReLU(inplace=True)) for _ in range(3)]
        return nn.Sequential(*(layer for part in parts for layer in part))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, (n, 100), boxes, (n, 100, 4), and classes, (n, 100)."""
        scores, boxes = [], []
        for f, scale in zip(self.fpn(x), self.scales, strict=True):
            a, b = self.cls_tower(f), self.reg_tower(f)
            scores.append((self.cls(a).sigmoid() * self.ctr(b).sigmoid()).sqrt().flatten(2))
            boxes.append(F.relu(self.reg(b) * scale).flatten(2))
        score, kind = torch.cat(scores, 2).max(1)
        best, where = score.topk(100, dim=1)
        box = torch.cat(boxes, 2).transpose(1, 2).gather(1, where[..., None].expand(-1, -1, 4))
        return best, box, kind.gather(1, where)


class SsdLike(nn.Module):
    """VGG-like backbone with L2 normalisation and a head a map."""

    def __init__(self, classes: int = 21) -> None:
        super().__init__()
        self.a = nn.Sequential(*self._block(3, 32), *self._block(32, 64), *self._block(64, 128))
        self.b, self.c, self.d = (nn.Sequential(*self._block(i, 256)) for i in (128, 256, 256))
        self.gamma = nn.Parameter(torch.full((1, 128, 1, 1), 20.0))
        self.heads = nn.ModuleList(nn.Conv2d(i, 6 * (classes + 4), 3, padding=1) for i in (128, 256, 256, 256))
        self.width = classes + 4

    @staticmethod
    def _block(i: int, o: int) -> list[nn.Module]:
        return [nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Class probabilities and offsets of all anchors."""
        a = self.a(x)
        b = self.b(a)
        c = self.c(b)
        maps = [F.normalize(a, dim=1) * self.gamma, b, c, self.d(c)]
        flat = [
            head(m).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.width)
            for head, m in zip(self.heads, maps, strict=False)
        ]
        out = torch.cat(flat, 1)
        return out[..., 4:].softmax(-1), out[..., :4]


class Siamese(nn.Module):
    """Template and search image through one backbone; depthwise cross-correlation; two small heads."""

    def __init__(self, c: int = 128) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 64, 11, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, c, 5), nn.BatchNorm2d(c), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(c, c, 3), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3),
        )  # fmt: skip
        self.cls, self.loc = nn.Conv2d(c, 10, 1), nn.Conv2d(c, 20, 1)

    def forward(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Response maps of template z in search image x."""
        kernel, search = self.net(z), self.net(x)
        n, c, h, w = search.shape
        corr = F.conv2d(search.reshape(1, n * c, h, w), kernel.reshape(n * c, 1, *kernel.shape[-2:]), groups=n * c)
        corr = corr.view(n, c, *corr.shape[-2:])
        return self.cls(corr), self.loc(corr)


class Keypoints(nn.Module):
    """Strided encoder, two transposed convolutions, soft-argmax of heat maps."""

    def __init__(self, joints: int = 17) -> None:
        super().__init__()
        self.down = nn.Sequential(Conv(3, 32, 3, 2), Conv(32, 64, 3, 2), Conv(64, 128, 3, 2), Conv(128, 256, 3, 2))
        ups: list[nn.Module] = []
        for i in (256, 128):
            ups += [nn.ConvTranspose2d(i, 128, 4, 2, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU(inplace=True)]
        self.up, self.head = nn.Sequential(*ups), nn.Conv2d(128, joints, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Heat maps, and coordinates, (n, joints, 2)."""
        heat = self.head(self.up(self.down(x)))
        n, j, h, w = heat.shape
        p = heat.flatten(2).softmax(-1).view(n, j, h, w)
        xs, ys = torch.linspace(0, 1, w, device=x.device), torch.linspace(0, 1, h, device=x.device)
        return heat, torch.stack([(p.sum(2) * xs).sum(-1), (p.sum(3) * ys).sum(-1)], -1)


class FaceMesh(nn.Module):
    """A small depthwise network with PReLU that regresses landmarks and gaze."""

    def __init__(self, points: int = 468) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1), nn.PReLU(16)]
        for c, out in ((16, 32), (32, 64), (64, 128), (128, 128)):
            layers += [self._block(c), self._block(c), nn.Conv2d(c, out, 2, 2), nn.PReLU(out)]
        self.net = nn.Sequential(*layers)
        self.points, self.gaze = nn.Conv2d(128, points * 3, 6), nn.Linear(128, 2)

    @staticmethod
    def _block(c: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c), nn.Conv2d(c, c, 1), nn.PReLU(c))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Landmarks, (n, points, 3), and two angles."""
        f = self.net(x)
        return {"points": self.points(f).flatten(1).unflatten(1, (-1, 3)), "gaze": self.gaze(f.mean((2, 3))).tanh()}


def yolo_like(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Detector with a path-aggregating neck."""
    return YoloLike().eval(), torch.randn(batch, 3, 416, 416)


def retina_like(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Feature pyramid with shared heads."""
    return RetinaLike().eval(), torch.randn(batch, 3, 320, 320)


def fcos_like(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Anchor-free detector, top 100."""
    return FcosLike().eval(), torch.randn(batch, 3, 320, 320)


def ssd_like(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Single-shot detector."""
    return SsdLike().eval(), torch.randn(batch, 3, 300, 300)


def siamese(batch: int = 1) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Siamese tracker."""
    return Siamese().eval(), (torch.randn(batch, 3, 127, 127), torch.randn(batch, 3, 255, 255))


def keypoints(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Pose network with heat maps."""
    return Keypoints().eval(), torch.randn(batch, 3, 256, 192)


def face_mesh(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Landmarks and gaze of a face."""
    return FaceMesh().eval(), torch.randn(batch, 3, 192, 192)
