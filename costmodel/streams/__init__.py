"""Graph -> stream tree: pipelines, split-joins, and general nodes where a graph is not series-parallel."""

from costmodel.streams.build import operator_tree, stream_tree, unit_dependencies, unit_tree
from costmodel.streams.types import Dag, Leaf, Node, Pipeline, SplitJoin, children_of, format_tree, leaves, nodes

__all__ = [
    "Dag",
    "Leaf",
    "Node",
    "Pipeline",
    "SplitJoin",
    "children_of",
    "format_tree",
    "leaves",
    "nodes",
    "operator_tree",
    "stream_tree",
    "unit_dependencies",
    "unit_tree",
]
