"""Memory beside tensors: workspaces of cuBLAS and cuDNN, and private pools of CUDA graphs."""

from __future__ import annotations

from costmodel.ir import Graph, Op, Ref, operators
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.memory.storages import rounded
from costmodel.predictor.predictor import Predictor

_HOPPER_CUBLAS = 32 << 20
_OTHER_CUBLAS = 4096 * 2 * 1024 + 16 * 8 * 1024
"""Workspace that torch allocates by default for each cuBLAS handle and stream (`CUBLAS_WORKSPACE_CONFIG` unset)."""

_POOL_SEGMENT = 2 << 20
"""Granularity of a CUDA graph's private pool (`kRoundLarge` of the caching allocator)."""


def matmul_workspace_bytes(graph: Graph, capability: str, training: bool) -> int:
    """Workspace of cuBLAS, which torch allocates at the first matmul.

    The backward pass runs in another thread, with its own handle and workspace.

    Args:
        graph: forward pass.
        capability: compute capability of the device, such as `9.0`.
        training: whether there is a backward pass.
    """
    if not any(operators.lookup(op).kind in ("linear", "matmul") for op in graph.ops):
        return 0
    one = _HOPPER_CUBLAS if capability.partition(".")[0] == "9" else _OTHER_CUBLAS
    return 2 * one if training else one


def convolution_workspaces(graph: Graph, predictor: Predictor) -> dict[str, int]:
    """Predict the workspace of each convolution in a forward pass; operator -> bytes.

    Args:
        graph: forward pass.
        predictor: recalls measured workspaces; without measurements there are none.

    Raises:
        ProfileError: the predictor was trained on other features than this version computes.
    """
    kernels = [kernel for kernel in eager_kernels(graph) if kernel.anchor.base == "convolution"]
    found = predictor.workspace_bytes(kernels)
    return {kernel.ops[0]: rounded(nbytes) for kernel, nbytes in zip(kernels, found, strict=True) if nbytes}


def convolution_allowance_bytes(graph: Graph) -> int:
    """Largest workspace that cuDNN may need for one convolution, by any algorithm.

    Tensor-core kernels work on channels_last data. A convolution on another layout holds copies of its input, weight
    and result while it runs. 0 if all tensors are channels_last.
    """
    return max((_copies_bytes(graph, op) for op in graph.ops if op.base == "convolution"), default=0)


def _copies_bytes(graph: Graph, op: Op) -> int:
    given = [graph.type_of(ref) for ref in (op.arg("input"), op.arg("weight")) if isinstance(ref, Ref)]
    return sum(rounded(kind.nbytes) for kind in (*given, op.type) if kind.layout != "nhwc")


def graph_pool_bytes(peak_bytes: int, resident_bytes: int, input_bytes: int) -> int:
    """Private pool of a CUDA graph of the forward pass: its allocations, and static copies of its inputs.

    Args:
        peak_bytes: peak of the forward pass.
        resident_bytes: bytes of parameters, buffers, inputs and workspaces, which are outside the pool.
        input_bytes: bytes of the inputs.
    """
    return segments_bytes(peak_bytes - resident_bytes + input_bytes)


def segments_bytes(nbytes: int) -> int:
    """Device memory that a CUDA graph's private pool takes for so many bytes."""
    return -(-nbytes // _POOL_SEGMENT) * _POOL_SEGMENT
