"""Table of graph rewrites that a plan may use before it chooses backends, one entry a rewrite.

A rewritten graph computes the same outputs up to rounding. Ordinary operators in the graph prepare weights; they run
once, when the plan is applied (`costmodel.rewrites.hoist_constants`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from costmodel.errors import PlanError
from costmodel.inductor.channels_last import in_channels_last
from costmodel.ir import Graph
from costmodel.ir.strides import is_strided
from costmodel.rewrites.conv1x1_to_matmul import conv1x1_to_matmul, find_conv1x1
from costmodel.rewrites.fold_batch_norm import fold_batch_norm
from costmodel.rewrites.merge_sibling_convs import find_sibling_convs, merge_sibling_convs
from costmodel.rewrites.scale_batch_norm import find_batch_norms, scale_batch_norm
from costmodel.rewrites.sink_epilogues_into_cat import find_epilogues, sink_epilogues_into_cat


def channels_last(graph: Graph, only: Collection[str] = ()) -> Graph:
    """Convert the named convolutions, or all, to channels_last.

    A graph in which an operator such as `as_strided` reads a view by its strides is left unchanged, because the strides
    in such an operator refer to the present memory layout.
    """
    views_by_stride = any(is_strided(op) and graph.type_of(op.refs()[0]).layout != "nchw" for op in graph.ops)
    return graph if views_by_stride else in_channels_last(graph, only=only or None)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Graph rewrite.

    Attributes:
        matches: pattern that it rewrites.
        costs: costs and savings, as they appear in the rewritten graph.
        apply: rewrites a graph at the named places, or at all matches if none is named.
        places: names of the places in a graph that can be chosen one by one; none if it always applies to all matches.
    """

    matches: str
    costs: str
    apply: Callable[[Graph, Collection[str]], Graph]
    places: Callable[[Graph], tuple[str, ...]] = lambda _: ()


REWRITES: Mapping[str, Rewrite] = {
    "fold_batch_norm": Rewrite(
        matches="a batch norm in evaluation that alone reads a convolution, both with constant parameters",
        costs="nothing but the new weights' memory; saves the batch norm's kernel and lets cuDNN fuse what follows",
        apply=lambda graph, _: fold_batch_norm(graph),
    ),
    "channels_last": Rewrite(
        matches="two-dimensional convolutions, if no operator reads a view by its strides",
        costs="a copy, as an operator of its own, where a convolution's input has another layout",
        apply=channels_last,
        places=lambda graph: tuple(op.name for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4),
    ),
    "merge_sibling_convs": Rewrite(
        matches="1x1 convolutions of one geometry on one input, either each with a ReLU as its only reader or none",
        costs="copies of slices that are not dense, as operators of their own; saves kernels and reads",
        apply=merge_sibling_convs,
        places=lambda graph: tuple(find_sibling_convs(graph)),
    ),
    "sink_epilogues_into_cat": Rewrite(
        matches="convolutions with bias and ReLU whose only reader is a concatenation of up to eight inputs",
        costs="a bare convolution instead of cuDNN's fused one; the epilogue is free in Inductor's concatenation",
        apply=sink_epilogues_into_cat,
        places=lambda graph: tuple(find_epilogues(graph)),
    ),
    "conv1x1_to_matmul": Rewrite(
        matches="1x1 convolutions on 1x1 images, as in squeeze-and-excitation, with constant weights",
        costs="cuBLAS's matmul instead of cuDNN's convolution; a ReLU that cuDNN could fuse becomes its own kernel",
        apply=conv1x1_to_matmul,
        places=lambda graph: tuple(find_conv1x1(graph)),
    ),
    "scale_batch_norm": Rewrite(
        matches="a batch norm in evaluation with constant parameters",
        costs="further kernels where it runs eagerly; saves Inductor's fused kernels a root and a division an element",
        apply=scale_batch_norm,
        places=find_batch_norms,
    ),
}
"""Graph rewrites by name."""


def apply_rewrites(graph: Graph, rewrites: Sequence[str]) -> Graph:
    """Apply rewrites to a graph, in order.

    Args:
        graph: captured graph.
        rewrites: names of rewrites; `NAME:PLACE,PLACE` applies one at some places only.

    Raises:
        PlanError: there is no such rewrite, or no such place.
    """
    for text in rewrites:
        name, _, listed = text.partition(":")
        rewrite, places = REWRITES.get(name), frozenset(listed.split(",") if listed else ())
        if rewrite is None:
            raise PlanError(f"there is no graph rewrite {name!r}; make the plan again with this version")
        if odd := sorted(places - set(rewrite.places(graph))) if places else []:
            raise PlanError(f"the graph rewrite {name} does not apply at {odd[0]}; make the plan again")
        graph = rewrite.apply(graph, places)
    return graph
