"""Propagation of channels_last through a graph, from convolutions to the operators that read their results."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role, View
from costmodel.ir.operators import ATTENTION, CHANNELS_LAST, CONVOLUTION_INPUT_COPY
from costmodel.ir.strides import is_strided


def in_channels_last(
    graph: Graph, runnable: bool = True, only: Collection[str] | None = None, contiguous: Collection[str] = ()
) -> Graph:
    """Convert convolutions to channels_last; an operand in another layout is converted by a `clone`.

    A runnable graph also converts operands of operators that depend on strides back to the captured layout. A graph
    that is not runnable describes costs only, as in Inductor: a contiguous convolution copies its input itself.

    Args:
        graph: graph with tensors in any layouts.
        runnable: whether the result will be run.
        only: names of the convolutions to convert; others become contiguous, with a `clone` if needed. None for all.
        contiguous: names of values that stay contiguous, whatever the layout of their operands.
    """
    conversion = _Conversion(graph, runnable, only, contiguous)
    for op in graph.ops:
        conversion.add(op)
    return replace(graph, ops=tuple(conversion.ops))


class _Conversion:
    """Rewrite of a graph, operator by operator, with the types of the tensors so far."""

    def __init__(self, graph: Graph, runnable: bool, only: Collection[str] | None, contiguous: Collection[str]) -> None:
        self.ops: list[Op] = []
        self._graph, self._runnable, self._only, self._contiguous = graph, runnable, only, contiguous
        self._types: dict[str, tuple[TensorType, ...]] = {value.name: (value.type,) for value in graph.values}
        self._params = {value.name for value in graph.values if value.role == "param"}
        self._converted: dict[tuple[Ref, str], Ref] = {}
        self._attended = {ref.name for op in graph.ops if op.base == ATTENTION for ref in op.refs()}

    def add(self, op: Op) -> None:
        """Add the next operator: a convolution in its decided layout, another in the layout of its inputs."""
        if op.base == "convolution" and len(op.type.shape) == 4:
            layout = "nhwc" if self._only is None or op.name in self._only else "nchw"
            args = tuple((key, self._operand(op, key, value, layout)) for key, value in op.args)
            self._append(op.with_args(args).with_types((op.type.with_layout(layout),)))
        elif op.base == "convolution_backward":
            self._append(op.with_types(self._gradients(op)))
        elif self._runnable and is_strided(op):
            args = tuple((key, self._as_captured(op, value)) for key, value in op.args)
            self._append(op.with_args(args))
        elif op.name in self._contiguous or self._is_contiguous_copy(op):
            self._append(op)
        else:
            self._append(_as_reshape(op).with_types(_propagated(op, self._types)))

    def _gradients(self, op: Op) -> tuple[TensorType, ...]:
        """Types of a convolution's gradients: in channels_last where an operand is (ATen's `convolution_backward`)."""
        operands = [op.arg(name) for name in ("grad_output", "input")]
        kinds = [self._types[ref.name][ref.index] for ref in operands if isinstance(ref, Ref)]
        layout = "nhwc" if any(kind.layout == "nhwc" for kind in kinds) else "nchw"
        return tuple(kind.with_layout(layout) if len(kind.shape) == 4 else kind for kind in op.types)

    def _is_contiguous_copy(self, op: Op) -> bool:
        """Whether a copy stays contiguous: Inductor ignores the requested memory format, except for attention."""
        contiguous = op.base == "clone" and op.arg("memory_format") == "torch.contiguous_format"
        return contiguous and (self._runnable or op.name in self._attended)

    def _append(self, op: Op) -> None:
        self._types[op.name] = op.types
        self.ops.append(op)

    def _operand(self, op: Op, key: str, value: Arg, layout: str) -> Arg:
        """Copy a convolution's input or weight if its strides differ (Inductor's `require_channels_last`)."""
        if key not in ("input", "weight") or not isinstance(value, Ref):
            return value
        kind = self._types[value.name][value.index]
        same_either_way = kind.shape[1] == 1 or math.prod(kind.shape[2:]) == 1
        if kind.layout == layout or same_either_way:
            return value
        if key == "input" and not self._runnable and (layout == "nchw" or self._is_part(value)):
            order = () if layout == "nchw" else (("memory_format", CHANNELS_LAST),)
            args = (("self", value), *order)
            self._append(Op(f"{op.name}.input", CONVOLUTION_INPUT_COPY, args, (kind.with_layout(layout),), op.module))
            return Ref(f"{op.name}.input")
        if (value, layout) not in self._converted:
            self._converted[value, layout] = self._copy(value, kind.with_layout(layout), op.module)
        return self._converted[value, layout]

    def _is_part(self, value: Ref) -> bool:
        """Whether a value is a range of channels of a tensor in channels_last, and so not dense."""
        cut = next((op for op in reversed(self.ops) if op.name == value.name), None)
        source = cut.refs()[0] if cut is not None and operators.lookup(cut).view is View.NARROW else None
        return source is not None and self._types[source.name][source.index].layout == "nhwc"

    def _as_captured(self, op: Op, value: Arg) -> Arg:
        """Copy an operand of an operator that depends on strides to the captured layout."""
        if not isinstance(value, Ref) or self._graph.type_of(value).layout != "nchw":
            return value
        if self._types[value.name][value.index].layout == "nchw":
            return value
        return self._copy(value, self._graph.type_of(value), op.module)

    def _copy(self, ref: Ref, kind: TensorType, module: str) -> Ref:
        order = "channels_last" if kind.layout == "nhwc" else "contiguous_format"
        args = (("self", ref), ("memory_format", f"torch.{order}"))
        name = f"{ref.name}.{ref.index}.{kind.layout}"
        if name in self._types:
            return Ref(name)
        copy = Op(name, "clone", args, (kind,), "" if ref.name in self._params else module)
        self._append(copy)
        return Ref(copy.name)


def _as_reshape(op: Op) -> Op:
    """Replace `view` by `reshape`, which may copy: a view may be impossible in another layout."""
    if op.op not in ("view", "_unsafe_view"):
        return op
    return replace(op, op="reshape", args=tuple(("shape" if key == "size" else key, value) for key, value in op.args))


def _propagated(op: Op, types: Mapping[str, tuple[TensorType, ...]]) -> tuple[TensorType, ...]:
    """Result types after conversion: outputs take the layout of their four-dimensional inputs."""
    role = operators.lookup(op).role
    sources = [types[ref.name][ref.index] for ref in op.refs()]
    channels_last = any(kind.layout == "nhwc" and len(kind.shape) == 4 for kind in sources)
    if not channels_last or role in (Role.EXTERN, Role.SOURCE):
        return op.types
    if op.base == "permute":
        return (op.type.with_layout("nchw" if op.arg("dims") == (0, 2, 3, 1) else "strided"),)
    layout = "strided" if role is Role.VIEW else "nhwc"
    return tuple(kind.with_layout(layout) if len(kind.shape) == 4 else kind for kind in op.types)
