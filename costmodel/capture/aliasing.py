"""Memory shared by tensors, in a graph of values: a write through one tensor changes the value of the others."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from costmodel import ir

aten = torch.ops.aten
Geometry = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides, and offset in the storage."""


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """Sizes, strides and storage offset of a tensor."""
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())


def type_of(tensor: torch.Tensor) -> ir.TensorType:
    """Type of a tensor in the IR."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_contiguous():
        layout = "nchw"
    elif tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        layout = "nhwc"
    else:
        layout = "strided"
    return ir.TensorType(dtype, tuple(tensor.shape), layout)


@dataclass(slots=True)
class Memory:
    """Memory shared by tensors: the value of the first tensor, and writes through any of them.

    Attributes:
        owner: node that allocated the memory.
        storage: reference whose callback reports that the last tensor on it is gone.
        node: value of the memory, with the first `applied` writes applied.
        geometry: geometry of that value.
        dtype: dtype of that value.
        writes: geometry, dtype and node of each write.
        applied: number of writes applied to `node`.
    """

    owner: fx.Node
    storage: weakref.ref[torch.UntypedStorage]
    node: fx.Node
    geometry: Geometry
    dtype: torch.dtype
    writes: list[tuple[Geometry, torch.dtype, fx.Node]]
    applied: int = 0

    def own(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """Declare that an operator allocated this memory, although a substitute produced the tensor."""
        self.owner = self.node = node
        self.geometry, self.dtype = geometry_of(tensor), tensor.dtype

    def read(self, tensor: torch.Tensor, graph: fx.Graph, module: str) -> fx.Node:
        """Current value of a tensor on this memory; operators that apply writes are added to the graph."""
        for (sizes, strides, offset), dtype, node in self.writes[self.applied :]:
            self._convert(graph, module, dtype)
            if math.prod(sizes) == math.prod(self.geometry[0]) and offset == self.geometry[2]:
                self.node, self.geometry = node, (sizes, strides, offset)
                continue
            self._put_in_order(graph, module)
            place = (sizes, strides, offset - self.geometry[2])
            self.node = self._made(graph, module, aten.as_strided_scatter.default, node, *place)
            self.node.meta["inplace"] = True
        self.applied = len(self.writes)
        self._convert(graph, module, tensor.dtype)
        geometry = geometry_of(tensor)
        if geometry != self.geometry:
            self._put_in_order(graph, module)
        if geometry == self.geometry:
            return self.node
        place = (*geometry[:2], geometry[2] - self.geometry[2])
        found = graph.call_function(aten.as_strided.default, (self.node, *place))
        found.meta["module"] = module
        return found

    def _put_in_order(self, graph: fx.Graph, module: str) -> None:
        """Permute the value to memory order, so that strides determine places."""
        sizes, strides, offset = self.geometry
        order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], -sizes[dim]))
        if order != sorted(order):
            self.geometry = tuple(sizes[dim] for dim in order), tuple(strides[dim] for dim in order), offset
            self.node = self._made(graph, module, aten.permute.default, order)

    def _convert(self, graph: fx.Graph, module: str, dtype: torch.dtype) -> None:
        """Reinterpret the bytes of the value as another dtype."""
        if dtype is self.dtype:
            return
        self._put_in_order(graph, module)
        sizes, strides, offset = self.geometry
        bytes_before = offset * self.dtype.itemsize
        like = torch.empty_strided(sizes, strides, dtype=self.dtype, device="meta").view(dtype)
        self.dtype, self.geometry = dtype, (*geometry_of(like)[:2], bytes_before // dtype.itemsize)
        self.node = self._made(graph, module, aten.view.dtype, dtype)

    def _made(self, graph: fx.Graph, module: str, target: Callable[..., Any], *args: Any) -> fx.Node:
        node = graph.call_function(target, (self.node, *args))
        like = torch.empty_strided(*self.geometry[:2], dtype=self.dtype, device="meta")
        node.meta.update(types=(type_of(like),), module=module)
        return node
