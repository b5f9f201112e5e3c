"""Rewrites: rewrites of a whole graph that a plan may make before it decides how each unit runs, one entry a rewrite.

A rewrite keeps what the graph computes, up to rounding. What it computes of parameters alone is done once, when the plan
is applied (`costmodel.rewrites.hoist_constants`), so weights are prepared by ordinary operators in the graph and need
no recipe.
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
from costmodel.rewrites.sink_epilogues_into_cat import find_epilogues, sink_epilogues_into_cat


def channels_last(graph: Graph, only: Collection[str] = ()) -> Graph:
    """Convolutions in channels-last order: those named and no other, or all.

    The graph as it is, where some operator reads strides of a view: what such an operator names are strides of memory
    in the order that it has now, and no copy can bring them back.
    """
    views_by_stride = any(is_strided(op) and graph.type_of(op.refs()[0]).layout != "nchw" for op in graph.ops)
    return graph if views_by_stride else in_channels_last(graph, only=only or None)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One entry of the table.

    Attributes:
        matches: what it looks for.
        costs: what it costs and saves, and where a plan's region_costs see that.
        apply: makes it: at the places that are named, or wherever it matches.
        places: names of the places in a graph where it can be made one by one; none, if it is made wherever it matches.
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
        matches="two-dimensional convolutions, if nothing reads strides of a view",
        costs="a copy, as an operator of its own, where what a convolution reads lies in another order",
        apply=channels_last,
        places=lambda graph: tuple(op.name for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4),
    ),
    "merge_sibling_convs": Rewrite(
        matches="1x1 convolutions of one geometry on one input, each read by a ReLU alone or none of them so",
        costs="copies of the pieces, as operators of their own, where they are not dense; saves kernels and reads",
        apply=merge_sibling_convs,
        places=lambda graph: tuple(find_sibling_convs(graph)),
    ),
    "sink_epilogues_into_cat": Rewrite(
        matches="convolutions with bias and ReLU that only a concatenation of up to eight inputs reads",
        costs="a bare convolution for cuDNN's fused one; the epilogue is free in Inductor's concatenation",
        apply=sink_epilogues_into_cat,
        places=lambda graph: tuple(find_epilogues(graph)),
    ),
    "conv1x1_to_matmul": Rewrite(
        matches="1x1 convolutions of images of one pixel, as in squeeze-and-excitation, with constant weights",
        costs="cuBLAS's product for cuDNN's convolution, and cuDNN's fused ReLU, which becomes a kernel of its own",
        apply=conv1x1_to_matmul,
        places=lambda graph: tuple(find_conv1x1(graph)),
    ),
}
"""Every rewrite by name."""


def apply_rewrites(graph: Graph, rewrites: Sequence[str]) -> Graph:
    """The graph after some rewrites, in order.

    Args:
        graph: as it was captured.
        rewrites: names; one that is made at some places only is followed by a colon and their names, with commas between.

    Raises:
        PlanError: there is no such rewrite, or no such place.
    """
    for text in rewrites:
        name, _, listed = text.partition(":")
        rewrite, places = REWRITES.get(name), frozenset(listed.split(",") if listed else ())
        if rewrite is None:
            raise PlanError(f"no rewrite is called {name!r}; make the plan again with this version")
        if odd := sorted(places - set(rewrite.places(graph))) if places else []:
            raise PlanError(f"the rewrite {name} cannot be made at {odd[0]}; make the plan again")
        graph = rewrite.apply(graph, places)
    return graph
