"""Blocks of rare operators as published models call them: convolutions, norms, transforms, sampling.

Shapes are of one image; `collectors.workloads.vision_operators` multiplies the first size by the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from collectors.workloads.single_operators import Apply, Shape

Given = tuple[str, Shape]
"""Element type, "" for the precision that is asked for, and shape of an input."""


class Weighted(nn.Module):
    """A function of inputs and weights as a module."""

    def __init__(self, function: Callable[..., Tensor], *shapes: Shape) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.empty(shape, device="meta") for shape in shapes)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the function on the inputs and the weights."""
        return self.function(*inputs, *self.weights)


@dataclass(frozen=True)
class Block:
    """A module to measure and its inputs.

    Attributes:
        source: name of the block, `source` of its cases.
        make: makes the module, on the meta device.
        inputs: types and shapes of its inputs, for one image.
        half: whether float16 is measured too.
        all_kernels: whether kernels without a rare operator are measured too.
    """

    source: str
    make: Callable[[], nn.Module]
    inputs: tuple[Given, ...]
    half: bool = True
    all_kernels: bool = False


def block(source: str, make: Callable[[], nn.Module], *shapes: Shape, half: bool = True, every: bool = False) -> Block:
    """A block whose inputs all have the precision that is asked for."""
    return Block(source, make, tuple(("", shape) for shape in shapes), half, every)


def applied(source: str, function: Callable[..., Tensor], *shapes: Shape, half: bool = True) -> Block:
    """A block of a function without parameters."""
    return block(source, lambda: Apply(function), *shapes, half=half)


def blocks() -> Iterator[Block]:
    """Every block of this module."""
    yield from _transposed()
    yield from _three_dimensional()
    yield from _large_depthwise()
    yield from _norms()
    yield from _transforms()
    yield from _resized()
    yield from _sampled()


def _convolution(kind: type[nn.Module], *sizes: int, **options: object) -> Callable[[], nn.Module]:
    return lambda: kind(*sizes, **options, device="meta")


def _transposed() -> Iterator[Block]:
    """U-Net, DCGAN, FCN, CenterNet, Mask R-CNN, StyleGAN-like decoders, 3-D U-Net."""
    for width, side in ((1024, 14), (512, 28), (256, 56), (128, 112), (64, 224), (256, 32), (64, 128)):
        yield block("convt-unet", _convolution(nn.ConvTranspose2d, width, width // 2, 2, 2), (1, width, side, side))
    for width, out, side in ((512, 256, 4), (256, 128, 8), (128, 64, 16), (64, 3, 32), (256, 128, 32)):
        made = _convolution(nn.ConvTranspose2d, width, out, 4, 2, 1, bias=False)
        yield block("convt-gan", made, (1, width, side, side))
    for width, out, side in ((64, 64, 16), (256, 128, 64), (128, 64, 128), (512, 256, 14), (64, 64, 56)):
        made = _convolution(nn.ConvTranspose2d, width, out, 3, 2, 1, 1)
        yield block("convt-decoder", made, (1, width, side, side))
    yield block("convt-dcgan", _convolution(nn.ConvTranspose2d, 100, 512, 4, 1, 0, bias=False), (1, 100, 1, 1))
    yield block("convt-mask", _convolution(nn.ConvTranspose2d, 256, 256, 2, 2), (100, 256, 14, 14))
    grouped = {"groups": 21, "bias": False}
    yield block("convt-fcn", _convolution(nn.ConvTranspose2d, 21, 21, 16, 8, 4, **grouped), (1, 21, 28, 28))
    for width, side in ((64, 64), (256, 16)):
        made = _convolution(nn.ConvTranspose2d, width, width, 4, 2, 1, groups=width, bias=False)
        yield block("convt-centernet", made, (1, width, side, side))
    for width, side in ((256, 8), (128, 16), (64, 32)):
        made = _convolution(nn.ConvTranspose3d, width, width // 2, 2, 2)
        yield block("convt-unet3d", made, (1, width, side, side, side))


def _three_dimensional() -> Iterator[Block]:
    """R3D, R(2+1)D, X3D, ViViT, 3-D U-Net."""
    for width, out, frames, side in ((64, 64, 16, 56), (128, 128, 8, 28), (256, 256, 4, 14), (512, 512, 2, 7)):
        yield block("conv3d-r3d", _convolution(nn.Conv3d, width, out, 3, padding=1), (1, width, frames, side, side))
        across = {"kernel_size": (1, 3, 3), "padding": (0, 1, 1), "bias": False}
        yield block("conv3d-space", _convolution(nn.Conv3d, width, out, **across), (1, width, frames, side, side))
        along = {"kernel_size": (3, 1, 1), "padding": (1, 0, 0), "bias": False}
        yield block("conv3d-time", _convolution(nn.Conv3d, width, out, **along), (1, width, frames, side, side))
    stem = {"kernel_size": (3, 7, 7), "stride": (1, 2, 2), "padding": (1, 3, 3), "bias": False}
    yield block("conv3d-stem", _convolution(nn.Conv3d, 3, 64, **stem), (1, 3, 16, 112, 112))
    for width, side in ((54, 56), (108, 28), (216, 14)):
        made = _convolution(nn.Conv3d, width, width, 3, padding=1, groups=width, bias=False)
        yield block("conv3d-x3d", made, (1, width, 13, side, side))
        yield block("conv3d-x3d", _convolution(nn.Conv3d, width, width // 2, 1), (1, width, 13, side, side))
    for width, out, side in ((1, 32, 64), (32, 64, 64), (64, 128, 32), (128, 256, 16), (256, 256, 8)):
        yield block("conv3d-unet", _convolution(nn.Conv3d, width, out, 3, padding=1), (1, width, side, side, side))
    tube = {"kernel_size": (2, 16, 16), "stride": (2, 16, 16)}
    yield block("conv3d-vivit", _convolution(nn.Conv3d, 3, 768, **tube), (1, 3, 16, 224, 224))


def _large_depthwise() -> Iterator[Block]:
    """RepLKNet (31, 29, 27, 13), SLaK (51 x 5), large-kernel attention (dilated)."""
    for width, side, kernel in ((128, 56, 31), (256, 28, 29), (512, 14, 27), (1024, 7, 13), (64, 56, 13), (96, 56, 21)):
        made = _convolution(nn.Conv2d, width, width, kernel, padding=kernel // 2, groups=width, bias=False)
        yield block("conv2d-large", made, (1, width, side, side))
    for height, across in ((51, 5), (5, 51)):
        strip = {"kernel_size": (height, across), "padding": (height // 2, across // 2), "groups": 96, "bias": False}
        yield block("conv2d-slak", _convolution(nn.Conv2d, 96, 96, **strip), (1, 96, 56, 56))


def _norms() -> Iterator[Block]:
    """Group norm of diffusion U-Nets, detectors' heads and 3-D networks; instance norm; normalised weights."""
    for width, side in ((320, 64), (640, 32), (1280, 16), (128, 128), (512, 64), (256, 100), (64, 56)):
        yield block("norm-group", _normed(width, 32), (1, width, side, side), every=True)
    yield block("norm-group3d", _normed(32, 8), (1, 32, 32, 32, 32), every=True)
    for width, side in ((64, 128), (256, 64)):
        made = _convolution(nn.InstanceNorm2d, width)
        yield block("norm-instance", made, (1, width, side, side), every=True)
    for shape in ((64, 64, 3, 3), (256, 256, 3, 3), (512, 512, 3, 3), (1024, 512), (512, 256, 7)):
        row = (shape[0], *(1 for _ in shape[1:]))
        yield block("norm-weight", _weighted(_normalised, shape, row), (1, 1), every=True)


def _weighted(function: Callable[..., Tensor], *shapes: Shape) -> Callable[[], nn.Module]:
    return lambda: Weighted(function, *shapes)


def _normalised(_: Tensor, direction: Tensor, length: Tensor) -> Tensor:
    """Salimans and Kingma, "Weight normalization", NeurIPS 2016."""
    made: Tensor = torch._weight_norm(direction, length, 0)
    return made


def _normed(width: int, groups: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.GroupNorm(groups, width, device="meta"), nn.SiLU())


def _transforms() -> Iterator[Block]:
    """FNet (all tokens and channels), GFNet and AFNO (tokens in a plane), FNO and LaMa (feature maps)."""
    for channels, height, across in (
        (64, 56, 56), (192, 32, 32), (192, 64, 64), (32, 128, 128), (16, 256, 256), (3, 224, 224), (32, 64, 64),
        (8, 100, 100), (16, 85, 85),
    ):  # fmt: skip
        shape = (1, channels, height, across)
        yield applied("fft-plane", lambda x: torch.fft.irfft2(_doubled(torch.fft.rfft2(x))), shape, half=False)
        yield applied("fft-complex", lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real, shape, half=False)
    for size, channels in ((14, 384), (28, 256), (7, 768)):
        yield applied("fft-gfnet", _filtered, (1, size, size, channels), half=False)
    for tokens, channels in ((196, 384), (197, 768), (512, 768)):
        yield applied("fft-fnet", _transformed_twice, (1, tokens, channels), half=False)
    for channels, modes in ((32, 16), (64, 16), (64, 32)):
        side = (modes, modes // 2 + 1)
        made = _weighted(_mixed, (channels, channels, *side))
        yield block("complex-fno", made, (1, channels, *side), half=False)
    for shape in ((1, 64, 56, 29), (1, 384, 14, 8), (1, 32, 128, 65), (1, 12, 197, 32)):
        yield applied("complex-product", _product, shape, shape, half=False)
        yield applied("complex-polar", lambda x, y: torch.view_as_real(torch.polar(x, y)), shape, shape, half=False)


def _transformed_twice(x: Tensor) -> Tensor:
    """Lee-Thorp et al., "FNet", NAACL 2022."""
    real: Tensor = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
    return real


def _mixed(x: Tensor, weight: Tensor) -> Tensor:
    """Channels mixed at each frequency. Li et al., "Fourier neural operator", ICLR 2021."""
    return torch.einsum("bixy,ioxy->boxy", torch.complex(x, x), torch.complex(weight, weight))


def _product(x: Tensor, y: Tensor) -> Tensor:
    return (torch.complex(x, y) * torch.complex(y, x)).abs()


def _doubled(x: Tensor) -> Tensor:
    return x * 2.0


def _filtered(x: Tensor) -> Tensor:
    """Product with a filter in the frequency domain. Rao et al., "Global filter networks", NeurIPS 2021."""
    powers = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
    filtered: Tensor = torch.fft.irfft2(powers * powers.abs(), s=x.shape[1:3], dim=(1, 2), norm="ortho")
    return filtered


def _resized() -> Iterator[Block]:
    """Feature pyramids, DeepLab's and SegFormer's heads, preprocessing, video decoders."""
    planes = (
        ((1, 256, 25, 25), 50),
        ((1, 256, 50, 50), 100),
        ((1, 21, 65, 65), 513),
        ((1, 64, 112, 112), 224),
        ((1, 3, 256, 256), 224),
    )
    for shape, to in planes:
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            yield applied(f"resize-{mode}", _resize(to, mode), shape)
    for to, source in ((112, 224), (224, 512), (28, 64)):
        for mode in ("bilinear", "bicubic"):
            yield applied(f"resize-{mode}-aa", _resize(to, mode, True), (1, 3 if source > 64 else 64, source, source))
    for channels, frames, side in ((64, 8, 28), (32, 16, 56), (16, 32, 64)):
        for mode in ("nearest", "trilinear"):
            yield applied(
                f"resize-{mode}3d", _resize((2 * frames, 2 * side, 2 * side), mode), (1, channels, frames, side, side)
            )
    for channels, length in ((256, 1024), (64, 4096)):
        for mode in ("nearest", "linear"):
            yield applied(f"resize-{mode}1d", _resize(2 * length, mode), (1, channels, length))


def _resize(to: int | Shape, mode: str, smooth: bool = False) -> Callable[[Tensor], Tensor]:
    aligned = False if mode in ("bilinear", "bicubic", "linear", "trilinear") else None
    return lambda x: functional.interpolate(x, to, mode=mode, align_corners=aligned, antialias=smooth)


def _sampled() -> Iterator[Block]:
    """Spatial transformers, optical flow, deformable attention, RAFT's look-up, medical registration."""
    maps = (
        ((64, 56, 56), (56, 56)),
        ((32, 128, 128), (128, 128)),
        ((3, 224, 224), (224, 224)),
        ((128, 48, 64), (48, 64)),
        ((32, 256, 256), (256, 256)),
    )
    for source, to in maps:
        shapes = ((1, *source), (1, *to, 2))
        for mode in ("bilinear", "nearest", "bicubic"):
            yield applied(f"sample-{mode}", _sample(mode, "zeros"), *shapes)
        for padding in ("border", "reflection"):
            yield applied(f"sample-{padding}", _sample("bilinear", padding), *shapes)
    for side, queries in ((100, 900), (50, 900), (25, 300), (64, 5440)):
        yield applied("sample-attention", _sample("bilinear", "zeros"), (8, 32, side, side), (8, queries, 4, 2))
    yield applied("sample-raft", _sample("bilinear", "zeros"), (1024, 1, 32, 32), (1024, 9, 9, 2))
    for channels, side in ((16, 32), (1, 96), (32, 24)):
        yield applied(
            "sample-volume", _sample("bilinear", "border"), (1, channels, side, side, side), (1, side, side, side, 3)
        )
    for side in (28, 64, 224, 512):
        yield applied("affine-plane", _affine((8, side, side)), (1, 2, 3))
    for side in (32, 96):
        yield applied("affine-volume", _affine((8, side, side, side)), (1, 3, 4))
    yield applied("sample-stn", _transformed, (1, 32, 64, 64), (1, 2, 3))


def _sample(mode: str, padding: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, grid: functional.grid_sample(x, grid, mode, padding, align_corners=False)


def _affine(shape: Shape) -> Callable[[Tensor], Tensor]:
    return lambda theta: functional.affine_grid(theta, [theta.shape[0], *shape], align_corners=False)


def _transformed(x: Tensor, theta: Tensor) -> Tensor:
    """Jaderberg et al., "Spatial transformer networks", NeurIPS 2015."""
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False).relu()
