"""Backward passes of convolutions, divided into the library calls that ATen makes for them.

ATen computes the gradient by input and the gradient by weight in a call of cuDNN each, and the gradient by bias as a
sum of the incoming gradient (`convolution_backward` in ATen's Convolution.cpp).
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.ir.training_costs import gradients_of

NOTHING = TensorType("uint8", (0,))
"""Type of a gradient that a call does not compute."""
BY_INPUT, BY_WEIGHT, BY_BIAS = range(3)


def divide_convolution_gradients(graph: Graph) -> Graph:
    """Replace each `convolution_backward` by one call for each gradient; the graph itself if it has none.

    Their names end in the number of the gradient, so that they stem from the same captured operator.
    """
    if not any(op.base == "convolution_backward" and sum(gradients_of(op)) > 1 for op in graph.ops):
        return graph
    moved: dict[Ref, Ref] = {}
    ops: list[Op] = []
    for op in graph.ops:
        read = op.reading(lambda ref: moved.get(ref, ref)) if moved else op
        if op.base != "convolution_backward" or sum(gradients_of(op)) < 2:
            ops.append(read)
            continue
        made = [one for number, wanted in enumerate(gradients_of(op)) if wanted for one in [_gradient(read, number)]]
        for one, number in zip(made, [n for n, wanted in enumerate(gradients_of(op)) if wanted], strict=True):
            moved[Ref(op.name, number)] = Ref(one.name, 0 if one.base == "sum" else number)
        ops += made
    return replace(graph, ops=tuple(ops), outputs=tuple(moved.get(ref, ref) for ref in graph.outputs))


def _gradient(op: Op, number: int) -> Op:
    """Call for one gradient."""
    name = f"{op.name}.{number}"
    if number == BY_BIAS:
        dims: Arg = tuple(axis for axis in range(_rank(op)) if axis != 1)
        args: tuple[tuple[str, Arg], ...] = (("self", op.arg("grad_output")), ("dim", dims), ("keepdim", False))
        return Op(name, "sum.dim_IntList", args, (op.types[BY_BIAS],), op.module)
    mask = tuple(place == number for place in range(3))
    args = tuple((key, _for_mask(key, value, mask)) for key, value in op.args)
    types = (*(NOTHING for _ in range(number)), op.types[number])
    return Op(name, op.op, args, types, op.module)


def _for_mask(key: str, value: Arg, mask: tuple[bool, ...]) -> Arg:
    if key == "output_mask":
        return mask
    return None if key == "bias_sizes" else value


def _rank(op: Op) -> int:
    """Dimensions of the incoming gradient."""
    stride = op.arg("stride")
    return 2 + (len(stride) if isinstance(stride, tuple) else 2)
