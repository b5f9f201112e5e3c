"""Memory that libraries and CUDA graphs take besides tensors: facts of torch's sources, measurements, an allowance."""

from __future__ import annotations

from costmodel.ir import Graph, Op, Ref, operators
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.memory.storages import rounded
from costmodel.predictor.predictor import Predictor

_HOPPER_CUBLAS = 32 << 20
_OTHER_CUBLAS = 4096 * 2 * 1024 + 16 * 8 * 1024
"""What torch gives each cuBLAS handle and stream by default (`CUBLAS_WORKSPACE_CONFIG` unset)."""

_POOL_SEGMENT = 2 << 20
"""A CUDA graph's private pool grows by multiples of this (`kRoundLarge` of the caching allocator)."""


def products_workspace_bytes(graph: Graph, capability: str, training: bool) -> int:
    """The workspace of cuBLAS, which torch's allocator counts from the first product on.

    The backward pass runs in a thread of its own, with a handle and a workspace of its own.

    Args:
        graph: of the forward pass.
        capability: the device's compute capability, `9.0`.
        training: whether there is a backward pass.
    """
    if not any(operators.lookup(op).kind in ("linear", "matmul") for op in graph.ops):
        return 0
    one = _HOPPER_CUBLAS if capability.partition(".")[0] == "9" else _OTHER_CUBLAS
    return 2 * one if training else one


def convolution_workspaces(graph: Graph, predictor: Predictor) -> dict[str, int]:
    """What each convolution of a forward pass is predicted to allocate beside its result, by operator; bytes.

    Args:
        graph: of the forward pass.
        predictor: what it knows of workspaces was measured; without, there are none.

    Raises:
        ProfileError: the predictor was trained on other features than this version computes.
    """
    kernels = [kernel for kernel in eager_kernels(graph) if kernel.anchor.base == "convolution"]
    found = predictor.workspace_bytes(kernels)
    return {kernel.ops[0]: rounded(nbytes) for kernel, nbytes in zip(kernels, found, strict=True) if nbytes}


def convolution_allowance_bytes(graph: Graph) -> int:
    """The most that cuDNN may ask for while one convolution runs, whichever algorithm it takes.

    Tensor-core kernels work on channels-last data, and a convolution of tensors in another order holds copies of its
    input, weight and result while it runs. The largest of them all is allowed for; 0 if all lie channels last.
    """
    return max((_copies_bytes(graph, op) for op in graph.ops if op.base == "convolution"), default=0)


def _copies_bytes(graph: Graph, op: Op) -> int:
    given = [graph.type_of(ref) for ref in (op.arg("input"), op.arg("weight")) if isinstance(ref, Ref)]
    return sum(rounded(kind.nbytes) for kind in (*given, op.type) if kind.layout != "nhwc")


def graph_pool_bytes(peak_bytes: int, resident_bytes: int, input_bytes: int) -> int:
    """The private pool of a CUDA graph of the forward pass: what the pass allocates, and static copies of its inputs.

    Args:
        peak_bytes: of the forward pass.
        resident_bytes: of parameters, buffers, inputs and workspaces, which lie outside the pool.
        input_bytes: of the inputs.
    """
    return segments_bytes(peak_bytes - resident_bytes + input_bytes)


def segments_bytes(nbytes: int) -> int:
    """What a CUDA graph's private pool takes from the device to hold so many bytes."""
    return -(-nbytes // _POOL_SEGMENT) * _POOL_SEGMENT
