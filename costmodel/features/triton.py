"""Features of kernels that a compiler fuses from several operators."""

from __future__ import annotations

from costmodel.device import ASSUMED_GPU
from costmodel.features.scalars import log2_of, window
from costmodel.inductor.split_reductions import split_reduction
from costmodel.ir import Ref, operators
from costmodel.ir.op_table import Role, View
from costmodel.kernels.kernel import Kernel


def triton_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of a fused kernel.

    `split` follows Inductor's rule for `ASSUMED_GPU`, whatever the device, so that profiles of CPUs have it too.
    """
    graph = kernel.graph
    made = {op.name: op for op in graph.ops}
    computing = [op for op in graph.ops if operators.lookup(op).role is not Role.VIEW]
    views = [op for op in graph.ops if operators.lookup(op).role is Role.VIEW]
    reductions = [op for op in computing if operators.lookup(op).role is Role.REDUCTION]
    outputs = [graph.type_of(ref) for ref in graph.outputs]
    needed = kernel.needed_elements
    results = (Ref(op.name, index) for op in computing for index in range(len(op.types)))
    reduced = (ref for op in reductions for ref in op.refs())
    domain = max(needed.get(ref, 0.0) for ref in (*results, *reduced))
    outer = min((op.type.numel for op in reductions), default=domain)
    inputs = [value.type for value in graph.values]
    anchor = kernel.anchor
    first = graph.type_of(reductions[0].refs()[0]) if reductions else anchor.type
    return {
        "operators": float(len(computing)),
        "work": float(sum(operators.lookup(op).work for op in computing)),
        "inputs": float(len(inputs)),
        "large_inputs": float(sum(kind.numel * 4 > domain for kind in inputs)),
        "outputs": float(len(outputs)),
        "log_domain": log2_of(domain),
        "log_outer": log2_of(outer),
        "log_inner": log2_of(domain / max(1, outer)),
        "reductions": float(len(reductions)),
        "reduces_nhwc": float(bool(reductions) and first.layout == "nhwc"),
        "split": float(
            any(split_reduction(graph, op, made.get, ASSUMED_GPU.multiprocessors).levels > 1 for op in reductions)
        ),
        "log_windows": log2_of(sum(window(op) for op in computing)),
        "cats": float(sum(operators.lookup(op).role is Role.CONCAT for op in computing)),
        "cat_inputs": float(sum(len(op.refs()) for op in computing if operators.lookup(op).role is Role.CONCAT)),
        "copies": float(sum(op.base == "clone" for op in computing)),
        "to_nhwc": float(
            any(op.base == "clone" and op.arg("memory_format") == "torch.channels_last" for op in computing)
        ),
        "of_params": float(all(value.role == "param" for value in graph.values)),
        "shuffles": float(sum(op.base in ("permute", "transpose") for op in views)),
        "slices": float(sum(operators.lookup(op).view in (View.NARROW, View.SELECT) for op in views)),
        "strided": float(any(kind.layout == "strided" for kind in inputs)),
        "indexing": float(
            any(op.base in ("index", "roll", "constant_pad_nd", "index_select", "gather") for op in computing)
        ),
        "transcendental": float(sum(operators.lookup(op).work >= 4 for op in computing)),
        "log_last": log2_of(anchor.type.shape[-1] if anchor.type.shape else 1),
        "log_channels": log2_of(anchor.type.shape[1] if len(anchor.type.shape) > 1 else 1),
        "blocks": log2_of(domain / 1024 / multiprocessors),
    }
