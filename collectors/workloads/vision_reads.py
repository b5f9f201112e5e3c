"""Blocks of rare operators as published models call them: detection, sorting, indices, pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from collectors.workloads.single_operators import Apply
from collectors.workloads.vision_blocks import Block, Weighted, applied, block

INDEX = "int64"


def blocks() -> Iterator[Block]:
    """Every block of this module."""
    yield from _detection()
    yield from _sorted()
    yield from _scanned()
    yield from _indexed()
    yield from _pooled()


def _indexing(source: str, function: Callable[..., Tensor], *inputs: tuple[str, tuple[int, ...]]) -> Block:
    return Block(source, lambda: Apply(function), inputs)


def _detection() -> Iterator[Block]:
    """Deformable convolutions of DCN and CenterNet; regions of Faster and Mask R-CNN."""
    for width, out, side, groups in (
        (256, 256, 28, 1), (512, 512, 14, 1), (128, 128, 56, 1), (64, 64, 64, 1), (256, 256, 50, 4), (3, 64, 112, 1),
    ):  # fmt: skip
        image, weight = (1, width, side, side), (out, width, 3, 3)
        offsets, masks = (1, 18 * groups, side, side), (1, 9 * groups, side, side)
        yield block("deform-v1", partial(Weighted, _deformed, weight), image, offsets)
        yield block("deform-v2", partial(Weighted, _modulated, weight), image, offsets, masks)
    for count in (300, 1000, 4000):
        yield applied("nms", lambda boxes, scores: _vision().nms(boxes, scores, 0.5), (count, 4), (count,))
    for side, count, size in ((200, 1000, 7), (100, 512, 7), (50, 256, 7), (100, 100, 14), (25, 100, 7)):
        yield applied("roi-align", _aligned(size, side / 800), (1, 256, side, side), (count, 5))
    yield applied("roi-pool", lambda x, boxes: _vision().roi_pool(x, boxes, 7, 1 / 16), (1, 256, 50, 50), (256, 5))


def _vision() -> Any:
    from costmodel.zoo import load_torchvision

    load_torchvision()
    import torchvision.ops

    return torchvision.ops


def _deformed(x: Tensor, offset: Tensor, weight: Tensor) -> Tensor:
    """Dai et al., "Deformable convolutional networks", ICCV 2017."""
    convolved: Tensor = _vision().deform_conv2d(x, offset, weight, padding=1)
    return convolved


def _modulated(x: Tensor, offset: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """Zhu et al., "Deformable ConvNets v2", CVPR 2019."""
    convolved: Tensor = _vision().deform_conv2d(x, offset, weight, padding=1, mask=mask)
    return convolved


def _aligned(size: int, scale: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, boxes: _vision().roi_align(x, boxes, size, scale, 2)


def _sorted() -> Iterator[Block]:
    """Scores of detectors, neighbours of Vision GNN, tokens of pruned transformers."""
    for shape in ((1, 100), (1, 196), (1, 512), (1, 900), (1, 8400), (1, 65536), (12, 197), (196, 196)):
        yield applied("sort", lambda x: x.sort(-1, descending=True)[0], shape)
    for shape, count in (
        ((1, 8400), 300), ((1, 20000), 900), ((1, 91 * 900), 300), ((1, 196), 98), ((1, 80 * 8400), 100),
        ((196, 196), 9), ((1024, 1024), 16), ((1, 1000), 5), ((1, 217413), 1000),
    ):  # fmt: skip
        yield applied("topk", _best(count), shape)


def _best(count: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.topk(count)[0]


def _scanned() -> Iterator[Block]:
    """Positions of DETR, transmittance of NeRF, selective scans."""
    for shape, dim in (((1, 100, 152), 1), ((1, 100, 152), 2), ((1, 25, 38), 2), ((1, 3136, 96), 1), ((1, 65536), 1)):
        yield applied("scan-sum", _along(torch.cumsum, dim), shape)
    for rays, samples in ((1024, 64), (4096, 128)):
        yield applied("scan-product", _along(torch.cumprod, -1), (rays, samples))
    yield applied("scan-maximum", lambda x: x.cummax(-1)[0], (64, 196))
    yield applied("scan-logsumexp", _along(torch.logcumsumexp, -1), (64, 196))


def _along(function: Callable[..., Tensor], dim: int) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x, dim=dim)


def _indexed() -> Iterator[Block]:
    """Chosen queries of detectors, kept and masked tokens, points pooled into a plane, quantised codes, unpooling."""
    for tokens, kept, width in ((20000, 900, 256), (197, 138, 384), (196, 49, 768), (8400, 300, 4), (4096, 1024, 64)):
        rows, index = ("", (1, tokens, width)), (INDEX, (1, kept, width))
        yield _indexing("read-gather", lambda x, i: x.gather(1, i), rows, index)
        yield _indexing("read-rows", lambda x, i: x.gather(1, _wide(i, x)), rows, (INDEX, (1, kept)))
    for tokens, kept, width in ((196, 49, 768), (1024, 256, 512), (40000, 10000, 64), (4096, 4096, 32)):
        given = (INDEX, (1, kept, width)), ("", (1, kept, width))
        yield _indexing("write-scatter", _scattered(tokens), *given)
        yield _indexing("write-add", _added(tokens), *given)
        yield _indexing("write-maximum", _raised(tokens), *given)
        yield _indexing("write-tokens", _restored(tokens), (INDEX, (1, kept)), given[1])
    for points, cells, width in ((10000, 40000, 64), (2048, 4096, 128)):
        features, cell = ("", (points, width)), (INDEX, (points,))
        yield _indexing("write-rows", _summed(cells), features, cell)
        yield _indexing("write-put", _put(cells), features, cell)
    for width, side in ((64, 112), (256, 28), (512, 14)):
        shape = (1, width, side, side)
        yield _indexing("write-unpool", lambda x, i: functional.max_unpool2d(x, i, (2, 2)), ("", shape), (INDEX, shape))
    for vectors, codes, width in ((1024, 1024, 3), (256, 512, 64), (1024, 8192, 256)):
        yield applied("distance", torch.cdist, (1, vectors, width), (1, codes, width), half=False)
    for width, side in ((64, 56), (192, 28), (3, 224)):
        yield applied("columns-unfold", lambda x: functional.unfold(x, 3, padding=1), (1, width, side, side))
        columns, whole = (1, width * 9, side * side), (side, side)
        yield applied("columns-fold", lambda x, w=whole: functional.fold(x, w, 3, padding=1), columns)


def _wide(index: Tensor, x: Tensor) -> Tensor:
    """One index a row, shown for every channel."""
    return index.unsqueeze(-1).expand(-1, -1, x.shape[2])


def _restored(tokens: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda i, x: x.new_zeros(x.shape[0], tokens, x.shape[2]).scatter(1, _wide(i, x), x)


def _scattered(tokens: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda i, x: x.new_zeros(x.shape[0], tokens, x.shape[2]).scatter(1, i, x)


def _added(tokens: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda i, x: x.new_zeros(x.shape[0], tokens, x.shape[2]).scatter_add(1, i, x)


def _raised(tokens: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda i, x: x.new_zeros(x.shape[0], tokens, x.shape[2]).scatter_reduce(1, i, x, "amax")


def _summed(cells: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, i: x.new_zeros(cells, x.shape[1]).index_add(0, i, x)


def _put(cells: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, i: x.new_zeros(cells, x.shape[1]).index_put((i,), x)


def _pooled() -> Iterator[Block]:
    """I3D and C3D; pyramid pooling of PSPNet; YOLO's windows of 5, 9 and 13; attention of CBAM."""
    for width, frames, side in ((64, 16, 56), (192, 8, 28), (512, 4, 14)):
        shape = (1, width, frames, side, side)
        yield block("pool-max3d", lambda: nn.MaxPool3d(2, 2), shape)
        yield block("pool-max3d", lambda: nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)), shape)
        yield block("pool-avg3d", lambda: nn.AvgPool3d(2, 2), shape)
        yield block("pool-to3d", lambda: nn.AdaptiveAvgPool3d((1, 7, 7)), shape)
    for width, side in ((512, 20), (256, 40)):
        for window in (5, 9, 13):
            yield block("pool-yolo", partial(nn.MaxPool2d, window, 1, window // 2), (1, width, side, side), every=True)
    for size in (1, 2, 3, 6):
        yield block("pool-pyramid", partial(nn.AdaptiveAvgPool2d, size), (1, 2048, 60, 60), every=True)
    for width, side, size in ((256, 28, 1), (512, 14, 1), (64, 50, 7)):
        yield block("pool-max", partial(nn.AdaptiveMaxPool2d, size), (1, width, side, side))
