"""Convolutions that Inductor leaves in plain order at batch 1, although it has put what they read channels last.

A view of a value that is not in memory yet has stride 0, and one of tokens regrouped to an image the stride of a token,
along a batch of one (`convert_to_reinterpret_view`, `View.create`). No tensor with such strides counts as channels last
(`is_channels_last_strides_2d`); unless the weight does, which one input channel or one pixel leaves open, the result is
said to be in plain order (`conv_layout`), and at each call the library copies its input to that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel import ops
from costmodel.ir import Graph, Op, Ref
from costmodel.ops import Role
from costmodel.realize import REGROUPING, Lowering
from costmodel.strides import Strides, dense, strides_through


def plain_convolutions(graph: Graph) -> frozenset[str]:
    """The names of those convolutions; the graph has the orders in which its tensors were captured."""
    lowering, users = Lowering(graph), graph.users()
    made = {op.name: op for op in graph.ops}
    views: dict[str, _View] = {}
    found = []
    for op in graph.ops:
        if ops.lookup(op).role is Role.VIEW:
            source = op.refs()[0]
            kind = graph.type_of(source)
            seen = views.get(source.name)
            if seen is None:
                lost = not _kept_at_once(lowering, made.get(source.name), users)
                seen = _View(dense(kind if kind.layout == "nhwc" else replace(kind, layout="nchw")), lost)
            strides = strides_through(op, kind, seen.strides, op.type)
            image_of_tokens = op.base in REGROUPING and _channels_last(op.type.shape, strides)
            views[op.name] = _View(strides, seen.lost or image_of_tokens)
        elif op.base == "convolution" and _is_plain(graph, op, views):
            found.append(op.name)
        lowering.lower(op)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _View:
    """A view as Inductor takes it.

    Attributes:
        strides: of what it sees, once that lies in memory; None where nothing tells.
        lost: whether the stride along a batch of one is that of no dense tensor.
    """

    strides: Strides | None
    lost: bool


def _kept_at_once(lowering: Lowering, source: Op | None, users: Mapping[str, Sequence[Op]]) -> bool:
    """Whether a value is in memory when a view of it is made: users of the view come too late to have it kept."""
    if source is None or ops.lookup(source).role in (Role.EXTERN, Role.REDUCTION):
        return True
    return lowering.in_memory(source.name) and len(users[source.name]) > 1


def _is_plain(graph: Graph, op: Op, views: Mapping[str, _View]) -> bool:
    images, weight = op.arg("input"), op.arg("weight")
    if not isinstance(images, Ref) or not isinstance(weight, Ref) or len(op.type.shape) != 4:
        return False
    _, of_each, *kernel = graph.type_of(weight).shape
    shape, view = graph.type_of(images).shape, views.get(images.name)
    if view is None or not view.lost or shape[0] != 1:
        return False
    in_order = _channels_last(shape, view.strides)  # else it is copied, and the copy has the strides of a dense tensor
    return in_order and (of_each == 1 or math.prod(kernel) == 1)


def _channels_last(shape: Sequence[int], strides: Strides | None) -> bool:
    """Whether the steps from channel to channel, column to column and row to row grow in this order."""
    if strides is None or len(shape) != 4 or shape[1] == 1:
        return False
    steps = [strides[axis] for axis in (1, 3, 2) if shape[axis] > 1]
    return steps == sorted(steps)
