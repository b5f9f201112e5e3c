"""Convolutions that stay contiguous at batch 1 although their input is in channels_last.

Along a batch of size one, a view of a value that is not realized yet has stride 0, and a view of tokens as an image has
the stride of a token (`convert_to_reinterpret_view`, `View.create`). `is_channels_last_strides_2d` does not accept such
strides. Unless the weight is in channels_last, which is ambiguous for one input channel or a 1x1 kernel, the result is
contiguous (`conv_layout`), and at each call the library copies the input to a contiguous one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.inductor.compilation import Compilation
from costmodel.inductor.lowering import lower
from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import is_view
from costmodel.ir.strides import ORDER_KEPT, Strides, dense, strides_through


def contiguous_convolutions(compilation: Compilation) -> frozenset[str]:
    """Names of these convolutions, in a graph with the captured layouts."""
    graph, made = compilation.graph, compilation.producers
    images = {op.name: ref for op in graph.ops if (ref := _viewed_image(graph, op, made)) is not None}
    views = _views(compilation) if images else {}
    return frozenset(name for name, ref in images.items() if _is_hidden(graph.type_of(ref).shape, views[ref.name]))


def _viewed_image(graph: Graph, op: Op, made: Mapping[str, Op]) -> Ref | None:
    """Input of a two-dimensional convolution if it is a view of batch one and the layout of the weight is ambiguous."""
    image, weight = op.arg("input"), op.arg("weight")
    if op.base != "convolution" or not isinstance(image, Ref) or not isinstance(weight, Ref):
        return None
    _, of_each, *kernel = graph.type_of(weight).shape
    ambiguous = len(kernel) == 2 and (of_each == 1 or math.prod(kernel) == 1)
    viewed = image.name in made and is_view(made[image.name])
    return image if ambiguous and viewed and graph.type_of(image).shape[0] == 1 else None


@dataclass(frozen=True, slots=True)
class _View:
    """Strides of a view in Inductor.

    Attributes:
        strides: strides once the viewed tensor is realized; None if unknown.
        lost: whether the stride along a batch of size one is not the stride of a dense tensor.
    """

    strides: Strides | None
    lost: bool


def _views(compilation: Compilation) -> dict[str, _View]:
    """Every view of the graph, by name."""
    graph = compilation.graph
    views: dict[str, _View] = {}
    for position, op in enumerate(graph.ops):
        if not is_view(op):
            continue
        source = op.refs()[0]
        kind = graph.type_of(source)
        viewed = views.get(source.name)
        if viewed is None:
            lost = not _is_realized(compilation, source.name, position)
            viewed = _View(dense(kind if kind.layout == "nhwc" else kind.with_layout("nchw")), lost)
        strides = strides_through(op, kind, viewed.strides, op.type)
        image_of_tokens = operators.lookup(op).view in ORDER_KEPT and _channels_last(op.type.shape, strides)
        views[op.name] = _View(strides, viewed.lost or image_of_tokens)
    return views


def _is_realized(compilation: Compilation, name: str, position: int) -> bool:
    """Whether a value is realized when a view of it is lowered; users of the view come too late."""
    source = compilation.producers.get(name)
    if source is None or operators.lookup(source).role in (Role.EXTERN, Role.REDUCTION):
        return True
    return len(compilation.users[name]) > 1 and compilation.analysis(lower).is_realized_before(name, position)


def _is_hidden(shape: Sequence[int], view: _View) -> bool:
    """Whether a view is in channels_last and its strides hide that; a view in another order is copied."""
    return view.lost and _channels_last(shape, view.strides)


def _channels_last(shape: Sequence[int], strides: Strides | None) -> bool:
    """Whether strides along channels, columns and rows grow in this order."""
    if strides is None or len(shape) != 4 or shape[1] == 1:
        return False
    steps = [strides[axis] for axis in (1, 3, 2) if shape[axis] > 1]
    return steps == sorted(steps)
