"""Graph -> kernels that eager execution launches, one library call an operator."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir import operators as ops
from costmodel.ir.op_table import Role
from costmodel.kernels.attention import fast_path
from costmodel.kernels.eager_layout import memory_orders
from costmodel.kernels.extractor import Extractor
from costmodel.kernels.kernel import Kernel


def eager_kernels(graph: Graph, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """One kernel call for each operator that is not a view, in execution order."""
    return kernels_of(as_issued(graph, on_cpu))


def as_issued(graph: Graph, on_cpu: bool = False) -> Graph:
    """The operators as eager execution gets to them: on a GPU, as ATen dispatches them; on a CPU, as captured."""
    return graph if on_cpu else choose_libraries(fast_path(graph))


def count_views(graph: Graph) -> int:
    """How many operators launch nothing."""
    return sum(ops.lookup(op).role is Role.VIEW for op in graph.ops)


def kernels_of(graph: Graph) -> tuple[Kernel, ...]:
    """One kernel call for each operator of a graph `as_issued` that is not a view, in execution order.

    An `as_strided_scatter` is none either: it says where an operator that wrote through a view has left its result.
    """
    extractor = Extractor(graph, memory_orders(graph))
    return tuple(
        Kernel("aten", extractor.extract([op.name]), (op.name,))
        for op in graph.ops
        if ops.lookup(op).role is not Role.VIEW and op.base != "as_strided_scatter"
    )


def choose_libraries(graph: Graph) -> Graph:
    """Operators as ATen dispatches them on a GPU: batch norm goes to cuDNN in float32, if it has three dimensions.

    The rule is ATen's `_batch_norm_impl_index` in evaluation, for parameters of the input's type: with scale and shift.
    """

    def choose(op: Op) -> Op:
        on_cudnn = op.base == "native_batch_norm" and op.type.dtype == "float32" and len(op.type.shape) >= 3
        affine = all(isinstance(op.arg(name), Ref) for name in ("weight", "bias"))
        if not on_cudnn or not affine or op.type.shape[0] > 65535:
            return op
        args = tuple(("epsilon" if key == "eps" else key, value) for key, value in op.args)
        args = tuple(("exponential_average_factor" if key == "momentum" else key, value) for key, value in args)
        reserve = TensorType("uint8", (0,))
        return Op(op.name, "cudnn_batch_norm", args, (*op.types[:3], reserve), op.module)

    return replace(graph, ops=tuple(choose(op) for op in graph.ops))
