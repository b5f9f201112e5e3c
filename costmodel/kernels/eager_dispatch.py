"""Graph -> kernels that eager execution launches, one library call an operator."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir.operators import is_view
from costmodel.kernels.attention import fast_path
from costmodel.kernels.batch_norm_libraries import cudnn_norm, cudnn_norm_backward, is_cudnn_norm
from costmodel.kernels.composites import divided
from costmodel.kernels.convolution_gradients import divide_convolution_gradients
from costmodel.kernels.eager_layout import memory_orders
from costmodel.kernels.extractor import Extractor
from costmodel.kernels.kernel import Kernel


def eager_kernels(graph: Graph, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """Kernels that eager execution launches, one for each operator that is no view, in order."""
    return kernels_of(as_issued(graph, on_cpu))


def as_issued(graph: Graph, on_cpu: bool = False) -> Graph:
    """Rewrite operators as ATen dispatches them on a device."""
    parts = divide_convolution_gradients(divided(graph, on_cpu))
    return parts if on_cpu else choose_libraries(fast_path(parts))


def count_views(graph: Graph) -> int:
    """Count operators that are views and launch nothing."""
    return sum(map(is_view, graph.ops))


def kernels_of(graph: Graph) -> tuple[Kernel, ...]:
    """One kernel for each operator that is no view, of a graph `as_issued`, in execution order.

    An `as_strided_scatter` launches nothing either: it stands for the memory that an operator wrote through a view.
    """
    extractor = Extractor(graph, memory_orders(graph))
    return tuple(
        Kernel("aten", extractor.extract([op.name]), (op.name,))
        for op in graph.ops
        if not is_view(op) and op.base != "as_strided_scatter"
    )


def choose_libraries(graph: Graph) -> Graph:
    """Replace batch norm by cuDNN's where ATen dispatches it on a GPU: in float32, with at least three dimensions.

    The rule is ATen's `_batch_norm_impl_index` in evaluation mode, with scale and shift in the dtype of the input. With
    statistics of the batch, forward and backward, it is that of `costmodel.kernels.batch_norm_libraries`.
    """
    in_training: set[str] = set()

    def choose(op: Op) -> Op:
        if op.base == "native_batch_norm" and op.arg("training") is True and is_cudnn_norm(graph, op):
            in_training.add(op.name)
            return cudnn_norm(op)
        if op.base == "native_batch_norm_backward" and is_cudnn_norm(graph, op):
            saved = op.arg("save_mean")
            known = isinstance(saved, Ref) and saved.name in in_training
            return cudnn_norm_backward(op, Ref(saved.name, 3) if isinstance(saved, Ref) and known else None)
        on_cudnn = op.base == "native_batch_norm" and op.type.dtype == "float32" and len(op.type.shape) >= 3
        affine = all(isinstance(op.arg(name), Ref) for name in ("weight", "bias"))
        if not on_cudnn or not affine or op.type.shape[0] > 65535:
            return op
        args = tuple(("epsilon" if key == "eps" else key, value) for key, value in op.args)
        args = tuple(("exponential_average_factor" if key == "momentum" else key, value) for key, value in args)
        reserve = TensorType("uint8", (0,))
        return Op(op.name, "cudnn_batch_norm", args, (*op.types[:3], reserve), op.module)

    return replace(graph, ops=tuple(choose(op) for op in graph.ops))
