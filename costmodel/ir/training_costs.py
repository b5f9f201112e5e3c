"""FLOPs, traffic and launches of operators of a training step, from shapes."""

from __future__ import annotations

import math

from costmodel.ir import Graph, Op, Ref, TensorType, refs_in
from costmodel.ir.flops import attention_flops, recurrent_flops, tensor_of

CHUNK = 65536
"""Elements that a block of a multi-tensor kernel updates (`kChunkSize` in ATen's MultiTensorApply.cuh)."""
MOST_BLOCKS = 320
"""Blocks of a launch of a multi-tensor kernel (`depth_to_max_blocks`)."""
MOST_TENSORS = (110, 64, 48, 36, 30)
"""Tensors of a launch by the number of lists that the kernel takes, from one on (`depth_to_max_tensors`)."""
BACKWARD_MATMULS = 5
"""Matmuls of attention's backward pass, half a forward pass's each: the scores once more, and a gradient for each of
value, weights, query and key (Dao et al., "FlashAttention", 2022)."""


def convolution_backward_flops(graph: Graph, op: Op) -> int:
    """As many as the forward convolution for each gradient, by input and by weight; the bias's is a sum."""
    weight = tensor_of(graph, op, "weight").shape
    moved = tensor_of(graph, op, "input" if op.arg("transposed") else "grad_output")
    return 2 * moved.numel * math.prod(weight[1:]) * sum(gradients_of(op)[:2])


def gradients_of(op: Op) -> tuple[bool, bool, bool]:
    """Gradients that a convolution's backward pass computes: by input, by weight, by bias."""
    mask = op.arg("output_mask")
    by_input, by_weight, by_bias = mask if isinstance(mask, tuple) and len(mask) == 3 else (True, True, True)
    return bool(by_input), bool(by_weight), bool(by_bias)


def attention_step_flops(graph: Graph, op: Op) -> int:
    """Those of the forward pass, as in inference."""
    return attention_flops(graph, op)


def attention_backward_flops(graph: Graph, op: Op) -> int:
    """Five matmuls instead of the forward pass's two."""
    return attention_flops(graph, op) * BACKWARD_MATMULS // 2


def recurrent_backward_flops(graph: Graph, op: Op) -> int:
    """Twice the forward pass's: each product has a gradient by its operand and one by its weights."""
    return 2 * recurrent_flops(graph, op)


def statistics_again(graph: Graph, op: Op) -> int:
    """Bytes of the input that a batch norm in training reads a second time, after its statistics."""
    updates = op.arg("training") is True and isinstance(op.arg("running_mean"), Ref)
    return graph.type_of(op.refs()[0]).nbytes if updates else 0


def gradient_again(graph: Graph, op: Op) -> int:
    """Bytes of the incoming gradient and the normalised tensor, which sums of both read a first time."""
    return 2 * max(graph.type_of(ref).nbytes for ref in op.refs())


def foreach_lists(graph: Graph, op: Op) -> list[list[TensorType]]:
    """Lists of tensors that a multi-tensor operator reads."""
    given = (value for _, value in op.args if isinstance(value, tuple) and any(refs_in(value)))
    return [[graph.type_of(ref) for ref in refs_in(value)] for value in given]


def foreach_flops(graph: Graph, op: Op) -> int:
    """One operation an element of the first list."""
    del graph
    return sum(kind.numel for kind in op.types)


def foreach_launches(graph: Graph, op: Op) -> int:
    """Launches of a multi-tensor kernel."""
    return len(foreach_blocks(graph, op))


def foreach_blocks(graph: Graph, op: Op) -> list[list[int]]:
    """Elements of each block of each launch of a multi-tensor kernel: chunks of at most CHUNK elements of a tensor.

    The loop is ATen's `multi_tensor_apply`: a launch ends at the most tensors, once the last one's chunks are all in
    it, or at the most blocks; a tensor that a launch ends within is also the next one's first.
    """
    lists = foreach_lists(graph, op)
    most = MOST_TENSORS[min(len(lists), len(MOST_TENSORS)) - 1] if lists else 1
    launches: list[list[int]] = []
    blocks: list[int] = []
    tensors = 0
    for kind in lists[0] if lists else ():
        tensors += kind.numel > 0
        for start in range(0, kind.numel, CHUNK):
            blocks.append(min(CHUNK, kind.numel - start))
            is_last = start + CHUNK >= kind.numel
            if (tensors == most and is_last) or len(blocks) == MOST_BLOCKS:
                launches.append(blocks)
                blocks, tensors = [], 0 if is_last else 1
    return [*launches, blocks] if blocks else launches
