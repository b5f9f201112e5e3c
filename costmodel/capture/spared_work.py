"""Work that Dynamo does for compilers and for its own logs, and that a trace without compilation does not need."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import fx

Backend = Callable[..., Any]


@contextmanager
def spared_work(backend: Backend) -> Iterator[None]:
    """Trace for a backend without importing other backends, the minifier and Inductor, and without a structured log.

    The log is kept where the user has asked for one (`TORCH_TRACE`).
    """
    import torch._dynamo as dynamo
    from torch._dynamo import convert_frame, eval_frame, graph_region_tracker, output_graph

    config: Any = dynamo.config
    log = logging.getLogger("torch.__trace")
    asked = [handler for handler in log.handlers if getattr(handler, "root_dir", None)]
    finds_repeats = config.use_graph_deduplication or getattr(config, "track_nodes_for_deduplication", True)
    with ExitStack() as patches:

        def replace(owner: object, name: str, instead: Callable[[Any], Any]) -> None:
            if hasattr(owner, name):  # private to torch
                patches.enter_context(patch.object(owner, name, instead(getattr(owner, name))))

        replace(log, "handlers", lambda _: asked)
        replace(eval_frame, "get_compiler_fn", lambda find: lambda given: backend if given == backend else find(given))
        replace(convert_frame, "_is_registered_backend", lambda holds: lambda given: given != backend and holds(given))
        replace(output_graph, "uninteresting_files", lambda _: frozenset)  # left out of the stacks of a graph's nodes
        replace(output_graph.OutputGraph, "get_replayed_side_effect_source_refs", _only_on_demand)
        if "torch._dynamo.backends.debugging" not in sys.modules:
            replace(dynamo, "lookup_backend", lambda find: lambda given: _eager if given == "eager" else find(given))
        if not finds_repeats:
            replace(graph_region_tracker, "InputPickler", lambda _: object)
        yield


def _eager(graph: fx.GraphModule, _inputs: Any, **_options: Any) -> Callable[..., Any]:
    """Torch's backend `eager`, whose module imports the partitioner."""
    return graph.forward


def _only_on_demand(find: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Dynamo's function that names what a frame changes besides tensors, which only options of a user ask for."""
    return lambda graph, **options: find(graph, **options) if options else []
