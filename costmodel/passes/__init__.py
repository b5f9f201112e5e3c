"""Graph -> graph, or facts about a graph: one verb a file. A pass never changes its input, and verifies its result."""

from costmodel.passes.common_subexpressions import merge_common_subexpressions
from costmodel.passes.dead_code import drop_dead_code
from costmodel.passes.liveness import live_after

__all__ = ["drop_dead_code", "live_after", "merge_common_subexpressions"]
