"""Values of tensors whose values decide how long an operator takes: indices, sampling grids, boxes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from costmodel.ir import Graph, Op, Ref, TensorType, refs_in
from costmodel.ir.flops import tensor_of
from costmodel.ir.operators import is_view

Fill = Callable[[Graph, Op, TensorType, str], torch.Tensor]
"""Makes the values of an argument: graph, operator, type of the argument, device."""
BOX_SHARE = 0.25
"""Side of a box as a share of the feature map's."""


def chosen_values(graph: Graph, device: str) -> dict[str, torch.Tensor]:
    """Values of those inputs of a graph that an operator reads as indices, a grid or boxes, by name of the input.

    Indices are found through views too.
    """
    named = {value.name: value.type for value in graph.values}
    viewed = {op.name: op.refs()[0].name for op in graph.ops if is_view(op)}
    found: dict[str, torch.Tensor] = {}
    for op in graph.ops:
        for argument, fill in FILLS.get(op.base, {}).items():
            for ref in refs_in(op.arg(argument)):
                name = ref.name
                while name in viewed and fill in _OF_INDICES:
                    name = viewed[name]
                if name in named and name not in found:
                    found[name] = fill(graph, op, named[name], device)
    return found


def _indices(graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Indices along the dimension that the operator works along."""
    shape = tensor_of(graph, op, "self").shape
    dim = op.arg("dim", 0)
    axis = dim % len(kind.shape) if isinstance(dim, int) and kind.shape else 0
    return _places(shape[axis] if shape else 1, kind, axis, device)


def _several_indices(graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Indices along the shortest dimension that one of several index tensors stands for."""
    shape, given = tensor_of(graph, op, "self").shape, op.arg("indices")
    places = given if isinstance(given, tuple) else ()
    size = min((shape[axis] for axis, one in enumerate(places) if isinstance(one, Ref)), default=1)
    return _places(size, kind, 0, device)


def _pixels(_graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Places in the unpooled plane, each pixel in a window of its own."""
    size = op.arg("output_size")
    sides = [side for side in size if isinstance(side, int)] if isinstance(size, tuple) else []
    flat = TensorType(kind.dtype, (math.prod(kind.shape[:-2]), math.prod(kind.shape[-2:])))
    return _places(math.prod(sides), flat, 1, device).reshape(kind.shape)


def _places(size: int, kind: TensorType, axis: int, device: str) -> torch.Tensor:
    """Random indices below `size`, different ones along an axis where it is not longer, and alike across the others.

    So each place is written once, as models do; where several write to one place, results depend on the order.
    """
    count = kind.shape[axis] if kind.shape else 1
    dtype = getattr(torch, kind.dtype)
    if count <= size:
        drawn = torch.randperm(size, device=device)[:count]
    else:
        drawn = torch.randint(0, max(1, size), (count,), device=device)
    rank = len(kind.shape)
    shown = drawn.to(dtype).reshape([count if dim == axis else 1 for dim in range(rank)])
    return shown.expand(kind.shape).contiguous()


def _grid(_graph: Graph, _op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """A regular grid that is a little displaced, as of a warped image: neighbours stay near."""
    _, *sides, dims = kind.shape
    made = 0.05 * (torch.rand(kind.shape, device=device) * 2 - 1)
    if len(sides) != dims:  # points at no regular places, as of deformable attention
        return (20 * made).to(getattr(torch, kind.dtype))
    axes = [torch.linspace(-1.0, 1.0, side, device=device) for side in sides]
    regular = torch.stack(torch.meshgrid(*axes, indexing="ij")[::-1], -1)  # the last axis is the first coordinate
    return (regular + made).to(getattr(torch, kind.dtype))


def _boxes(graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Boxes of a quarter of the image's sides, in one image after another, in the coordinates of the whole image."""
    image = tensor_of(graph, op, "input").shape
    scale = op.arg("spatial_scale", 1.0)
    factor = scale if isinstance(scale, (int, float)) and scale else 1.0
    height, width = (side / factor for side in image[-2:])
    count = kind.shape[0]
    sides = torch.tensor([width, height], device=device)
    corner = torch.rand((count, 2), device=device) * (1 - BOX_SHARE) * sides
    number = torch.arange(count, device=device) % image[0]
    return torch.cat((number[:, None], corner, corner + BOX_SHARE * sides), 1).to(getattr(torch, kind.dtype))


def _candidates(_graph: Graph, _op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Boxes as a detector proposes them: many near few objects."""
    count = kind.shape[0]
    centre = torch.rand((max(1, count // 20), 2), device=device).repeat(20 + 1, 1)[:count] * 800
    centre = centre + 20 * torch.rand((count, 2), device=device)
    return torch.cat((centre, centre + 100), 1).to(getattr(torch, kind.dtype))


_OF_INDICES = (_indices, _several_indices)
_ALONG = {"index": _indices}
FILLS: Mapping[str, Mapping[str, Fill]] = {
    "grid_sampler_2d": {"grid": _grid},
    "grid_sampler_3d": {"grid": _grid},
    "torchvision_roi_align": {"rois": _boxes},
    "torchvision_roi_pool": {"rois": _boxes},
    "torchvision_ps_roi_align": {"rois": _boxes},
    "torchvision_ps_roi_pool": {"rois": _boxes},
    "torchvision_nms": {"dets": _candidates},
    "max_unpool2d": {"indices": _pixels},
    "max_unpool3d": {"indices": _pixels},
    "index_put": {"indices": _several_indices},
    **dict.fromkeys(
        ("gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill"), _ALONG
    ),
}
"""Arguments of operators whose values matter. Others are uniformly random, indices of other operators zero."""
