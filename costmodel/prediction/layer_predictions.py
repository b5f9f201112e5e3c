"""Estimates of kernels -> predictions of each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costmodel.ir import Graph, operators
from costmodel.prediction.layer_groups import Layer
from costmodel.prediction.layer_reasons import reason_of
from costmodel.prediction.roofline_parts import largest
from costmodel.prediction.timed_kernels import Part, TimedKernels
from costmodel.report.types import LayerPrediction


def predict_layers(
    graph: Graph, layers: Sequence[Layer], eager: TimedKernels, compiled: TimedKernels
) -> tuple[LayerPrediction, ...]:
    """Predictions of the layers in execution order: eager and compiled device time of each.

    Args:
        graph: captured graph.
        layers: its layers.
        eager: kernels of the eager pass.
        compiled: kernels of the compiled pass.
    """
    types = {module.name: module.type for module in graph.modules}
    pairs = zip(layers, eager.by_layer(len(layers)), compiled.by_layer(len(layers)), strict=True)
    return tuple(predict_layer(graph, types, layer, before, after) for layer, before, after in pairs)


def layer_flops(graph: Graph, layer: Layer) -> int:
    """Arithmetic of a layer's convolutions, matmuls and attention; other operators count as 0."""
    return sum(operators.flops(graph, op) for op in layer.ops if operators.lookup(op).flops is not None)


def predict_layer(
    graph: Graph, types: Mapping[str, str], layer: Layer, before: Sequence[Part], after: Sequence[Part]
) -> LayerPrediction:
    """Prediction of one layer.

    Args:
        graph: graph of the layer.
        types: classes of modules by their names.
        layer: the layer.
        before: parts of eager kernels that serve it.
        after: parts of compiled kernels that serve it.
    """
    eager_us, compiled_us = _total_us(before), _total_us(after)
    speedup = eager_us / compiled_us if compiled_us and eager_us else None
    width = math.hypot(_log_width(before), _log_width(after))
    others = [op.module for op in layer.ops if op.module != layer.module]
    return LayerPrediction(
        name=layer.name,
        kind=layer.kind,
        ops=tuple(map(operators.kind_of, layer.ops)),
        position=layer.position,
        eager_us=eager_us or None,
        compiled_us=compiled_us or None,
        speedup=speedup,
        speedup_low=speedup / math.exp(width) if speedup else None,
        speedup_high=speedup * math.exp(width) if speedup else None,
        backend="inductor",
        in_range=all(part.estimate.in_range for part in (*before, *after)),
        extrapolated_share=max(_extrapolated_share(before), _extrapolated_share(after)),
        shape=layer.type.shape,
        module_type=types.get(layer.module, ""),
        flops=layer_flops(graph, layer),
        bound=bound_of(after or before),
        reason=reason_of(before, after),
        modules=(layer.module, *dict.fromkeys(others)),
    )


def bound_of(parts: Sequence[Part]) -> str:
    """Bound of the kernels that serve a layer: the largest sum of arithmetic, traffic and smallest kernels."""
    if not parts:
        return ""
    sums = [0.0, 0.0, 0.0]
    for part in parts:
        times = part.roofline.compute_us, part.roofline.memory_us, part.roofline.launch_us
        sums = [total + part.share * us for total, us in zip(sums, times, strict=True)]
    return largest(*sums)


def _total_us(parts: Sequence[Part]) -> float:
    return sum(part.us for part in parts)


def _extrapolated_share(parts: Sequence[Part]) -> float:
    return sum(part.us for part in parts if not part.estimate.in_range) / max(1e-9, _total_us(parts))


def _log_width(parts: Sequence[Part]) -> float:
    """Half-width of the logarithm of a sum of estimates, as if their errors were independent."""
    total = _total_us(parts)
    if not total:
        return 0.0
    widths = [(part.us / total) * math.log(part.estimate.high_us / part.estimate.us) for part in parts]
    return math.sqrt(sum(width**2 for width in widths))
