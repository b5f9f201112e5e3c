"""Layers -> module tree, as the user wrote the model: totals of each module, identical siblings collapsed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.report import LayerPrediction, Report

ALIKE = 0.25
"""Largest difference of the logarithms of times within which siblings of the same structure count as identical."""
NO_OPERATOR = "no operator of its own"
"""Reason of a module whose parameters another module uses, or that does not run."""
OWN_PARAMETERS = "parameters"
"""Label of the row of parameters that a module holds itself beside its children."""


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """A module with its totals, or a layer of it; totals of children add up to their parent's.

    Attributes:
        name: path in `named_modules()`, of the first one if several are collapsed; empty for the model.
        label: last part of the path, `0..11` for collapsed ones; the kind for a layer of a module that has several.
        module_type: name of the module's class; empty for a layer of a module that has several.
        kind: kind of the anchor operator for a layer; empty for a module that holds several.
        ops: operators of a layer in order; empty for a module that holds several.
        shape: shape of the last result computed in it; empty for none.
        parameters: number of parameter elements.
        flops: arithmetic of convolutions, matmuls and attention, 2 a multiply-accumulate.
        eager_us, compiled_us: device time; 0 if nothing runs.
        speedup: eager over compiled time; None where one is 0.
        speedup_low, speedup_high: 90 % prediction interval, as if the errors of all layers had the same sign.
        bound: `compute`, `memory` or `launch`, whichever bounds most of its time; empty if nothing runs.
        reason: phrase why it gains or loses time: that of the layer that changes most in the same direction.
        extrapolated_share: share of its time in extrapolated kernels, 0 to 1.
        count: identical consecutive modules that the totals are of.
        children: submodules and layers in execution order.
    """

    name: str
    label: str
    module_type: str
    kind: str
    ops: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: int
    flops: int
    eager_us: float
    compiled_us: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    bound: str
    reason: str
    extrapolated_share: float
    count: int = 1
    children: tuple[ModuleNode, ...] = ()

    @property
    def saved_us(self) -> float:
        """Device time that compilation saves; below 0 for a loss."""
        return self.eager_us - self.compiled_us

    def walk(self) -> Iterator[tuple[int, ModuleNode]]:
        """The node and every node below it with their depths, parents first."""
        pending = [(0, self)]
        while pending:
            depth, node = pending.pop()
            yield depth, node
            pending += [(depth + 1, child) for child in reversed(node.children)]


@dataclass(slots=True)
class _Module:
    """A module while the tree is built."""

    path: str
    type: str = ""
    parameters: int = 0
    below: list[_Module] = field(default_factory=list)
    layers: list[tuple[int, LayerPrediction]] = field(default_factory=list)
    first: int | None = None
    node: ModuleNode | None = None


def module_tree(report: Report) -> ModuleNode:
    """Build the tree of a report's modules from its layers.

    A layer belongs to the module of its anchor operator. Modules without parameters and layers are left out; a module
    whose operators are all part of a layer beside it (a batch norm after a convolution) has no time of its own.
    """
    modules = _modules(report)
    served = {name: layer.name for layer in report.layers for name in layer.modules[1:]}
    for module in reversed(modules.values()):  # children before parents
        firsts = [child.first for child in module.below if child.first is not None]
        module.first = min([*firsts, *(place for place, _ in module.layers)], default=None)
        module.node = _node(module, served)
    root = modules[""].node or _leaf("", report.model, "", 0)
    return replace(root, label=report.model)


def _modules(report: Report) -> dict[str, _Module]:
    """Modules by path, parents before children."""
    found: dict[str, _Module] = {"": _Module("")}

    def module_at(path: str) -> _Module:
        missing = []
        while path not in found:
            missing.append(path)
            path = path.rpartition(".")[0]
        module = found[path]
        for name in reversed(missing):
            found[name] = _Module(name)
            module.below.append(found[name])
            module = found[name]
        return module

    for facts in report.modules:
        module = module_at(facts.name)
        module.type, module.parameters = facts.type, facts.parameters
    for place, layer in enumerate(report.layers):
        module_at(layer.modules[0] if layer.modules else layer.name).layers.append((place, layer))
    return found


def _node(module: _Module, served: dict[str, str]) -> ModuleNode | None:
    """Node of a module whose children have theirs; None if it holds neither parameters nor layers."""
    label = module.path.rpartition(".")[2]
    keyed: list[tuple[int, ModuleNode]] = []
    for child in module.below:
        key = child.first if child.first is not None else keyed[-1][0] if keyed else -1
        if child.node is not None:
            keyed.append((key, child.node))
    if not keyed and len(module.layers) <= 1:
        alone = _leaf(module.path, label, module.type, module.parameters)
        if module.layers:
            return _of_layer(alone, module.layers[0][1])
        home = served.get(module.path)
        return replace(alone, reason=f"part of {home}" if home else NO_OPERATOR) if module.parameters else None
    own = [(place, _of_layer(_leaf(layer.name, layer.kind, "", 0), layer)) for place, layer in module.layers]
    if module.parameters and own:
        own[0] = (own[0][0], replace(own[0][1], parameters=module.parameters))
    elif module.parameters:
        keyed.insert(0, (-1, _leaf(module.path, OWN_PARAMETERS, "", module.parameters)))
    children = [node for _, node in sorted([*keyed, *own], key=lambda pair: pair[0])]
    whole = _leaf(module.path, label, module.type, 0)
    return replace(_total(whole, children), children=_collapsed(children))


def _leaf(path: str, label: str, module_type: str, parameters: int) -> ModuleNode:
    return ModuleNode(path, label, module_type, "", (), (), parameters, 0, 0.0, 0.0, None, None, None, "", "", 0.0)


def _of_layer(node: ModuleNode, layer: LayerPrediction) -> ModuleNode:
    """The node with the figures of its only layer."""
    return replace(
        node,
        module_type=node.module_type or (layer.module_type if node.label != layer.kind else ""),
        kind=layer.kind,
        ops=layer.ops,
        shape=layer.shape,
        flops=layer.flops,
        eager_us=layer.eager_us or 0.0,
        compiled_us=layer.compiled_us or 0.0,
        speedup=layer.speedup,
        speedup_low=layer.speedup_low,
        speedup_high=layer.speedup_high,
        bound=layer.bound,
        reason=layer.reason,
        extrapolated_share=layer.extrapolated_share,
    )


def _total(node: ModuleNode, parts: Sequence[ModuleNode]) -> ModuleNode:
    """The node with the totals of its parts."""
    eager, compiled = math.fsum(part.eager_us for part in parts), math.fsum(part.compiled_us for part in parts)
    times = [part.eager_us + part.compiled_us for part in parts]
    time = math.fsum(times) or 1.0
    speedup = eager / compiled if eager and compiled else None
    width = math.fsum(us * _width(part) for us, part in zip(times, parts, strict=True)) / time
    shapes = [part.shape for part in parts if part.shape]
    bounds: dict[str, float] = {}
    for part in parts:
        if part.bound:
            bounds[part.bound] = bounds.get(part.bound, 0.0) + (part.compiled_us or part.eager_us)
    sign = 1.0 if eager >= compiled else -1.0
    cause = max((part for part in parts if part.reason), key=lambda part: sign * part.saved_us, default=node)
    return replace(
        node,
        shape=shapes[-1] if shapes else (),
        parameters=sum(part.parameters for part in parts),
        flops=sum(part.flops for part in parts),
        eager_us=eager,
        compiled_us=compiled,
        speedup=speedup,
        speedup_low=speedup / math.exp(width) if speedup else None,
        speedup_high=speedup * math.exp(width) if speedup else None,
        bound=max(bounds, key=lambda bound: bounds[bound], default=""),
        reason=cause.reason if eager + compiled else node.reason,
        extrapolated_share=math.fsum(us * part.extrapolated_share for us, part in zip(times, parts, strict=True))
        / time,
    )


def _width(node: ModuleNode) -> float:
    """Half-width of the interval of the logarithm of a speedup."""
    return math.log(node.speedup_high / node.speedup) if node.speedup and node.speedup_high else 0.0


def _collapsed(nodes: Sequence[ModuleNode]) -> tuple[ModuleNode, ...]:
    """Siblings with runs of identical ones merged into one node each.

    Identical layers of the parent itself are merged wherever they are: a loop in its forward pass interleaves them.
    """
    runs: list[list[ModuleNode]] = []
    own: list[list[ModuleNode]] = []
    for node in nodes:
        is_own = not node.module_type and node.label == node.kind
        for run in own if is_own else runs[-1:]:
            if _are_alike(run[0], node):
                run.append(node)
                break
        else:
            runs.append([node])
            if is_own:
                own.append(runs[-1])
    return tuple(_merged(run) for run in runs)


def _are_alike(one: ModuleNode, other: ModuleNode) -> bool:
    """Whether two modules have the same structure and about the same times, all the way down."""
    pending = [(one, other)]
    while pending:
        a, b = pending.pop()
        if _structure(a) != _structure(b) or a.count != b.count or len(a.children) != len(b.children):
            return False
        if not (_are_near(a.eager_us, b.eager_us) and _are_near(a.compiled_us, b.compiled_us)):
            return False
        pending += zip(a.children, b.children, strict=True)
    return True


def _structure(node: ModuleNode) -> tuple[object, ...]:
    return (node.module_type, node.kind, node.ops, node.shape, node.parameters, node.flops)


def _are_near(one: float, other: float) -> bool:
    return abs(math.log(one / other)) <= ALIKE if one and other else one == other


def _merged(run: Sequence[ModuleNode]) -> ModuleNode:
    """One node for identical siblings, with their totals, and children merged in turn."""
    if len(run) == 1:
        return run[0]
    children = tuple(_merged(same) for same in zip(*(node.children for node in run), strict=True))
    first = replace(run[0], label=_range(run[0].label, run[-1].label), count=sum(node.count for node in run))
    return replace(_total(first, run), children=children)


def _range(first: str, last: str) -> str:
    """Labels of the first and last of a run as one: `0..11`, `layer0..11`."""
    if first == last:
        return first
    stem = "".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    stem = stem.rstrip("0123456789")
    return f"{first}..{last[len(stem) :]}"
