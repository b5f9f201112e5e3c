"""Choice of the library that runs batch norm with the statistics of the batch, forward and backward, on a GPU.

The rule is ATen's `_select_batch_norm_backend` in training: cuDNN where scale and shift are in float32, or in the dtype
of the input, and the input has at least three dimensions and is not larger than cuDNN allows.
"""

from __future__ import annotations

from costmodel.ir import Arg, Graph, Op, Ref, TensorType

LARGEST_BATCH = 880801
"""Most images for cuDNN in training."""


def is_cudnn_norm(graph: Graph, op: Op) -> bool:
    """Whether cuDNN runs a batch norm with the statistics of the batch, or its backward pass."""
    source, weight = op.arg("input"), op.arg("weight")
    lacks_shift = op.base == "native_batch_norm" and not isinstance(op.arg("bias"), Ref)
    if not isinstance(source, Ref) or not isinstance(weight, Ref) or lacks_shift:
        return False
    kind, scale = graph.type_of(source), graph.type_of(weight)
    known = scale.dtype == "float32" and kind.dtype in ("float32", "float16")
    return known and len(kind.shape) >= 3 and kind.shape[0] <= LARGEST_BATCH and kind.layout != "strided"


def cudnn_norm(op: Op) -> Op:
    """Call of cuDNN for a batch norm in training; the reserve is a further result."""
    return Op(op.name, "cudnn_batch_norm", _renamed(op), (*op.types[:3], TensorType("uint8", (0,))), op.module)


def cudnn_norm_backward(op: Op, reserve: Ref | None) -> Op:
    """Call of cuDNN for the backward pass of a batch norm.

    Args:
        op: the backward pass as autograd records it.
        reserve: reserve of the forward pass; None where it is not known.
    """
    args = {
        "input": op.arg("input"),
        "grad_output": op.arg("grad_out"),
        "weight": op.arg("weight"),
        "running_mean": op.arg("running_mean"),
        "running_var": op.arg("running_var"),
        "save_mean": op.arg("save_mean"),
        "save_var": op.arg("save_invstd"),
        "epsilon": op.arg("eps"),
        "reserveSpace": reserve,
    }
    return Op(op.name, "cudnn_batch_norm_backward", tuple(args.items()), op.types, op.module)


def _renamed(op: Op) -> tuple[tuple[str, Arg], ...]:
    names = {"eps": "epsilon", "momentum": "exponential_average_factor"}
    return tuple((names.get(key, key), value) for key, value in op.args)
