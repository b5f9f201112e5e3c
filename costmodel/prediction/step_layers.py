"""Passes of a training step -> device time of each layer, forward and backward, eager and compiled.

A kernel of a backward pass belongs to the layers of the modules whose operators it differentiates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel.capture.step_recording import Phase
from costmodel.ir import Graph, Op, operators
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_groups import Layer, layers_of
from costmodel.prediction.layer_predictions import predict_layer
from costmodel.prediction.roofline_parts import roofline_parts
from costmodel.prediction.step_traces import TimedPass, TimedStep
from costmodel.prediction.timed_kernels import Part
from costmodel.profiles.profile import Profile
from costmodel.report.training_prediction import LayerPasses
from costmodel.report.types import LayerPrediction
from costmodel.timeline.issue_trace import origin_of


def step_layers(
    graph: Graph, step: TimedStep, profile: Profile
) -> tuple[tuple[LayerPrediction, ...], tuple[LayerPasses, ...]]:
    """Predictions of the layers, of both passes together, and their times by pass.

    Args:
        graph: recorded eager step.
        step: its passes with their times.
        profile: profile of the hardware.
    """
    forward = replace(graph, ops=tuple(op for op in graph.ops if _is_of_a_layer(op)), outputs=())
    layers = layers_of(forward)
    homes = _Homes(layers)
    passes = [step.eager[Phase.FORWARD], step.eager[Phase.BACKWARD]]
    passes += [step.compiled.forward, step.compiled.backward] if step.compiled else []
    shared = [_parts(one, homes, profile, len(layers)) for one in passes]
    shared += [[[] for _ in layers] for _ in range(4 - len(shared))]
    types = {module.name: module.type for module in graph.modules}
    found, times = [], []
    for layer, *parts in zip(layers, *shared, strict=True):
        eager, compiled = [*parts[0], *parts[1]], [*parts[2], *parts[3]]
        found.append(predict_layer(forward, types, layer, eager, compiled))
        times.append(LayerPasses(*(sum(part.us for part in some) for some in parts)))
    return tuple(found), tuple(times)


def _is_of_a_layer(op: Op) -> bool:
    """Whether an operator belongs to the forward pass, other than as a count of batches."""
    counts = op.inplace and op.type.shape == () and not operators.is_view(op)
    return op.section == Phase.FORWARD and not counts


class _Homes:
    """Layers by the modules whose operators they hold."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._by_operator = {op.name: place for place, layer in enumerate(layers) for op in layer.ops}
        self._by_module: dict[str, list[tuple[int, str]]] = {}
        for place, layer in enumerate(layers):
            for op in layer.ops:
                entry = (place, operators.kind_of(op))
                if entry not in self._by_module.setdefault(op.module, []):
                    self._by_module[op.module].append(entry)

    def place(self, op: Op, captured: bool) -> int | None:
        """Layer of an operator: its own if it is a captured one of the forward pass, else one of its module."""
        if captured and (own := self._by_operator.get(op.name)) is not None:
            return own
        entries = self._by_module.get(op.module, ())
        kind = operators.kind_of(op).removesuffix("_backward").replace("conv", "conv2d", 1)
        return next((place for place, one in entries if one == kind), entries[0][0] if entries else None)


def _parts(one: TimedPass, homes: _Homes, profile: Profile, count: int) -> list[list[Part]]:
    """Parts of the kernels of a pass that serve each layer."""
    found: list[list[Part]] = [[] for _ in range(count)]
    lines = roofline_parts(one.trace.kernels, profile.predictor.roofline)
    captured = not one.trace.sections
    for kernel, estimate, line in zip(one.trace.kernels, one.estimates, lines, strict=True):
        for place, share in _shares(kernel, one.ops, homes, captured).items():
            found[place].append(Part(kernel, estimate, line, share))
    return found


def _shares(kernel: Kernel, ops: Mapping[str, Op], homes: _Homes, captured: bool) -> dict[int, float]:
    """Shares of a kernel by layer: of a fused one by the bytes that its operators make."""
    weights: dict[int, float] = {}
    for name in dict.fromkeys(map(origin_of, kernel.ops)):
        op = ops.get(name)
        place = homes.place(op, captured) if op is not None and not operators.is_view(op) else None
        if op is not None and place is not None:
            weights[place] = weights.get(place, 0.0) + max(1, sum(kind.nbytes for kind in op.types))
    total = sum(weights.values())
    return {place: weight / total for place, weight in weights.items()}
