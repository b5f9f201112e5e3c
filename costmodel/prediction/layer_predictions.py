"""Estimates of kernels -> predictions of each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costmodel.ir import Graph, operators
from costmodel.prediction.bounds import extrapolated_share
from costmodel.prediction.layers import Unit, group_units
from costmodel.predictor.predictor import Estimate
from costmodel.report.types import LayerPrediction
from costmodel.timeline.issue_trace import IssueTrace, origin_of


def predict_layers(
    graph: Graph,
    eager: IssueTrace,
    compiled: IssueTrace,
    eager_kernels: Sequence[Estimate],
    compiled_kernels: Sequence[Estimate],
) -> tuple[LayerPrediction, ...]:
    """Predictions of the layers in execution order: eager and compiled device time of each unit.

    Args:
        graph: captured graph.
        eager: eager issue trace.
        compiled: compiled issue trace.
        eager_kernels: estimates of the eager kernels.
        compiled_kernels: estimates of the compiled kernels.
    """
    eager_of: dict[str, list[Estimate]] = {}
    for kernel, estimate in zip(eager.kernels, eager_kernels, strict=True):
        eager_of.setdefault(origin_of(kernel.ops[0]), []).append(estimate)
    return tuple(_layer(unit, eager_of, compiled_kernels) for unit in group_units(graph, compiled.kernels))


def _layer(unit: Unit, eager_of: Mapping[str, Sequence[Estimate]], compiled: Sequence[Estimate]) -> LayerPrediction:
    before = [estimate for op in unit.ops for estimate in eager_of.get(op.name, ())]
    after = [compiled[index] for index in unit.kernels]
    eager_us, compiled_us = sum(e.us for e in before), sum(e.us for e in after)
    speedup = eager_us / compiled_us if compiled_us and eager_us else None
    width = math.hypot(_log_width(before), _log_width(after))
    return LayerPrediction(
        name=unit.name,
        kind=unit.kind,
        ops=tuple(map(operators.kind_of, unit.ops)),
        position=unit.position,
        eager_us=eager_us or None,
        compiled_us=compiled_us or None,
        speedup=speedup,
        speedup_low=speedup / math.exp(width) if speedup else None,
        speedup_high=speedup * math.exp(width) if speedup else None,
        backend="inductor",
        in_range=all(estimate.in_range for estimate in (*before, *after)),
        extrapolated_share=max(extrapolated_share(before), extrapolated_share(after)),
    )


def _log_width(estimates: Sequence[Estimate]) -> float:
    """Half-width of the logarithm of a sum of estimates, as if their errors were independent."""
    total = sum(estimate.us for estimate in estimates)
    if not total:
        return 0.0
    parts = [(e.us / total) * math.log(e.high_us / e.us) for e in estimates]
    return math.sqrt(sum(part**2 for part in parts))
