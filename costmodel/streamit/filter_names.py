"""Names of filters: names of modules, with sizes as parameters, as in `conv2d(3, 64, 3, 3, 1, 1, 0, 0)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from costmodel.ir import Arg, Graph, Op, Ref, refs_in

_COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "logical_and", "logical_or", "eq", "ne"))


def filter_name(graph: Graph, op: Op, window: Sequence[Ref]) -> str:
    """Name an operator with its parameters.

    If operands do not arrive in the order of the arguments, their places in the window are the last parameter:
    `sub({1, 0})` subtracts the first item from the second.

    Args:
        graph: graph of the operator.
        op: operator to name.
        window: values that arrive by the channel, in order.
    """
    several = len(window) > 1 and op.base in ("addmm", "mm")  # a matmul of two values has no sizes of its own
    name, parameters = ("matmul", []) if several else _NAMES.get(op.base, _plain)(graph, op)
    places = [window.index(ref) for ref in op.refs() if ref in window]
    swapped = op.base in _COMMUTATIVE and sorted(places) == list(range(len(window)))
    if places != list(range(len(window))) and not swapped:
        parameters = [*parameters, tuple(places)]
    return f"{name}({', '.join(map(_text, parameters))})"


def _plain(_: Graph, op: Op) -> tuple[str, list[Arg]]:
    """Name of the operator, and its arguments other than tensors."""
    values = [value for _, value in op.args if value is not None and not any(refs_in(value))]
    return op.base.strip("_"), [value for value in values if not isinstance(value, str)]


def _convolution(graph: Graph, op: Op) -> tuple[str, list[Arg]]:
    """Channels in and out, kernel size, strides, padding; dilation and groups if not 1."""
    weight = _shape(graph, op, "weight")
    groups = op.arg("groups", 1)
    assert isinstance(groups, int)
    transposed = op.arg("transposed") is True
    outer, inner = weight[0], weight[1] * groups
    channels = (outer, inner) if transposed else (inner, outer)
    found = [*channels, *weight[2:], *_ints(op.arg("stride")), *_ints(op.arg("padding"))]
    dilation = _ints(op.arg("dilation"))
    if groups != 1 or set(dilation) - {1}:
        found += [*dilation, groups]
    return f"conv{'_transpose' if transposed else ''}{len(weight) - 2}d", list(found)


def _batch_norm(_: Graph, op: Op) -> tuple[str, list[Arg]]:
    rank = len(op.type.shape) - 2
    return f"batchnorm{rank if rank > 0 else 1}d", [op.type.shape[1]]


def _layer_norm(_: Graph, op: Op) -> tuple[str, list[Arg]]:
    return "layernorm", [*_ints(op.arg("normalized_shape"))]


def _linear(graph: Graph, op: Op) -> tuple[str, list[Arg]]:
    """Input and output features."""
    return "linear", [*_shape(graph, op, "mat2")]


def _max_pool(_: Graph, op: Op) -> tuple[str, list[Arg]]:
    sides, padding = _ints(op.arg("kernel_size")), _ints(op.arg("padding", (0,)))
    strides = _ints(op.arg("stride")) or sides
    square = all(len(set(numbers)) == 1 for numbers in (sides, strides, padding))
    found = [sides[0], strides[0], padding[0]] if square else [*sides, *strides, *padding]
    return f"maxpool{len(sides)}d", list(found)


def _view(graph: Graph, op: Op) -> tuple[str, list[Arg]]:
    before, after = _shape(graph, op, "self"), op.type.shape
    if len(after) == 2 and before[:1] == after[:1] and math.prod(before[1:]) == after[1]:
        return "flatten", []
    return _plain(graph, op)


def _lstm(graph: Graph, op: Op) -> tuple[str, list[Arg]]:
    """Input features, hidden features, layers."""
    weight = next(refs_in(op.arg("params")))
    rows, columns = graph.type_of(weight).shape
    return "lstm", [columns, rows // 4, op.arg("num_layers", 1)]


_NAMES: dict[str, Callable[[Graph, Op], tuple[str, list[Arg]]]] = {
    "convolution": _convolution,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "native_layer_norm": _layer_norm,
    "addmm": _linear,
    "mm": _linear,
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
    "view": _view,
    "lstm": _lstm,
}


def _shape(graph: Graph, op: Op, argument: str) -> tuple[int, ...]:
    ref = op.arg(argument)
    assert isinstance(ref, Ref)
    return graph.type_of(ref).shape


def _ints(arg: Arg) -> tuple[int, ...]:
    items = arg if isinstance(arg, tuple) else (arg,)
    return tuple(item for item in items if isinstance(item, int))


def _text(value: Arg) -> str:
    """Parameter as C++ source."""
    if isinstance(value, tuple):
        return "{" + ", ".join(map(_text, value)) + "}"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
