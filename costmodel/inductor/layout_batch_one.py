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

from costmodel.inductor.lowering import Lowering
from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import REGROUPING
from costmodel.ir.strides import Strides, dense, strides_through


def plain_convolutions(graph: Graph) -> frozenset[str]:
    """The names of those convolutions; the graph has the orders in which its tensors were captured."""
    made = {op.name: op for op in graph.ops}
    images = {op.name: ref for op in graph.ops if (ref := _view_of_one(graph, op, made)) is not None}
    views = _views(graph, made) if images else {}
    return frozenset(name for name, ref in images.items() if _is_hidden(graph.type_of(ref).shape, views[ref.name]))


def _view_of_one(graph: Graph, op: Op, made: Mapping[str, Op]) -> Ref | None:
    """The images of a convolution of two dimensions, if they are one, a view, and its weight leaves the order open."""
    images, weight = op.arg("input"), op.arg("weight")
    if op.base != "convolution" or not isinstance(images, Ref) or not isinstance(weight, Ref):
        return None
    _, of_each, *kernel = graph.type_of(weight).shape
    open_weight = len(kernel) == 2 and (of_each == 1 or math.prod(kernel) == 1)
    viewed = images.name in made and operators.lookup(made[images.name]).role is Role.VIEW
    return images if open_weight and viewed and graph.type_of(images).shape[0] == 1 else None


@dataclass(frozen=True, slots=True)
class _View:
    """A view as Inductor takes it.

    Attributes:
        strides: of what it sees, once that lies in memory; None where nothing tells.
        lost: whether the stride along a batch of one is that of no dense tensor.
    """

    strides: Strides | None
    lost: bool


def _views(graph: Graph, made: Mapping[str, Op]) -> dict[str, _View]:
    """Every view of the graph, by its name."""
    lowering, users = Lowering(graph), graph.users()
    views: dict[str, _View] = {}
    for op in graph.ops:
        if operators.lookup(op).role is Role.VIEW:
            source = op.refs()[0]
            kind = graph.type_of(source)
            seen = views.get(source.name)
            if seen is None:
                lost = not _kept_at_once(lowering, made.get(source.name), users)
                seen = _View(dense(kind if kind.layout == "nhwc" else replace(kind, layout="nchw")), lost)
            strides = strides_through(op, kind, seen.strides, op.type)
            image_of_tokens = op.base in REGROUPING and _channels_last(op.type.shape, strides)
            views[op.name] = _View(strides, seen.lost or image_of_tokens)
        lowering.lower(op)
    return views


def _kept_at_once(lowering: Lowering, source: Op | None, users: Mapping[str, Sequence[Op]]) -> bool:
    """Whether a value is in memory when a view of it is made: users of the view come too late to have it kept."""
    if source is None or operators.lookup(source).role in (Role.EXTERN, Role.REDUCTION):
        return True
    return lowering.in_memory(source.name) and len(users[source.name]) > 1


def _is_hidden(shape: Sequence[int], view: _View) -> bool:
    """Whether channels come last in a view and its strides hide it; what lies otherwise is copied to dense strides."""
    return view.lost and _channels_last(shape, view.strides)


def _channels_last(shape: Sequence[int], strides: Strides | None) -> bool:
    """Whether the steps from channel to channel, column to column and row to row grow in this order."""
    if strides is None or len(shape) != 4 or shape[1] == 1:
        return False
    steps = [strides[axis] for axis in (1, 3, 2) if shape[axis] > 1]
    return steps == sorted(steps)
