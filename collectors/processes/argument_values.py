"""Values of tensors whose values decide how long an operator takes: indices, sampling grids, boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from costmodel.ir import Graph, Op, Ref, TensorType, refs_in
from costmodel.ir.flops import tensor_of

Fill = Callable[[Graph, Op, TensorType, str], torch.Tensor]
"""Makes the values of an argument: graph, operator, type of the argument, device."""
BOX_SHARE = 0.25
"""Side of a box as a share of the feature map's."""


def chosen_values(graph: Graph, device: str) -> dict[str, torch.Tensor]:
    """Values of those inputs of a graph that an operator reads as indices, a grid or boxes, by name of the input.

    An input that an operator reads through views gets none.
    """
    named = {value.name: value.type for value in graph.values}
    found: dict[str, torch.Tensor] = {}
    for op in graph.ops:
        for argument, fill in FILLS.get(op.base, {}).items():
            for ref in refs_in(op.arg(argument)):
                if ref.name in named and ref.name not in found:
                    found[ref.name] = fill(graph, op, named[ref.name], device)
    return found


def _indices(graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Random indices along the dimension that the operator works along."""
    shape = tensor_of(graph, op, "self").shape
    dim = op.arg("dim", 0)
    size = shape[dim if isinstance(dim, int) else 0]
    return torch.randint(0, max(1, size), kind.shape, dtype=getattr(torch, kind.dtype), device=device)


def _several_indices(graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Random indices along the shortest dimension that one of several index tensors stands for."""
    shape, given = tensor_of(graph, op, "self").shape, op.arg("indices")
    places = given if isinstance(given, tuple) else ()
    size = min((shape[axis] for axis, one in enumerate(places) if isinstance(one, Ref)), default=1)
    return torch.randint(0, max(1, size), kind.shape, dtype=getattr(torch, kind.dtype), device=device)


def _pixels(_graph: Graph, op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """Random places in the unpooled plane."""
    size = op.arg("output_size")
    pixels = torch.Size(side for side in size if isinstance(side, int)).numel() if isinstance(size, tuple) else 1
    return torch.randint(0, max(1, pixels), kind.shape, dtype=torch.int64, device=device)


def _grid(_graph: Graph, _op: Op, kind: TensorType, device: str) -> torch.Tensor:
    """A regular grid that is a little displaced, as of a warped image: neighbours stay near."""
    *outer, dims = kind.shape
    axes = [torch.linspace(-1.0, 1.0, side, device=device) for side in reversed(outer[1:])]
    regular = torch.stack(torch.meshgrid(*axes, indexing="xy"), -1) if len(axes) == dims else None
    noise = torch.rand(kind.shape, device=device) * 2 - 1
    made = noise if regular is None else _in_order(regular, kind) + 0.05 * noise
    return made.to(getattr(torch, kind.dtype)).contiguous()


def _in_order(regular: torch.Tensor, kind: TensorType) -> torch.Tensor:
    """Coordinates in the shape of the grid, for every image of the batch."""
    return regular.reshape(1, *kind.shape[1:]).expand(kind.shape)


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
