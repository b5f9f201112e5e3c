"""Work that Dynamo does for compilers and for its own logs, and that a trace without compilation does not need."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from torch import fx


@contextmanager
def spared_work(backend: Callable[..., Any]) -> Iterator[None]:
    """Trace for a backend without importing other backends, the minifier and Inductor, and without a structured log.

    The log is kept where the user has asked for one (`TORCH_TRACE`).
    """
    import torch._dynamo as dynamo

    with ExitStack() as patches:
        for owner, name, instead in (*_imports(backend), *_records()):
            if hasattr(owner, name):  # private to torch
                patches.enter_context(patch.object(owner, name, instead(getattr(owner, name))))
        if hasattr(dynamo.config, "run_gc_after_compile"):
            patches.enter_context(dynamo.config.patch(run_gc_after_compile=False))
        yield


def _imports(backend: Callable[..., Any]) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """Yield functions that import compilers, each with its owner, name, and what makes its replacement of it."""
    import torch._dynamo as dynamo
    from torch._dynamo import convert_frame, eval_frame, graph_region_tracker, output_graph

    config: Any = dynamo.config
    yield eval_frame, "get_compiler_fn", lambda find: lambda given: backend if given == backend else find(given)
    yield convert_frame, "_is_registered_backend", lambda holds: lambda given: given != backend and holds(given)
    if "torch._dynamo.backends.debugging" not in sys.modules:
        yield dynamo, "lookup_backend", lambda find: lambda given: _eager if given == "eager" else find(given)
    yield output_graph, "uninteresting_files", lambda _: frozenset  # left out of the stacks of a graph's nodes
    yield output_graph.OutputGraph, "get_replayed_side_effect_source_refs", _only_on_demand
    if not (config.use_graph_deduplication or getattr(config, "track_nodes_for_deduplication", True)):
        yield graph_region_tracker, "InputPickler", lambda _: object


def _records() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """Yield what serves logs only, as `_imports` does: the structured trace, names of functions, times of guards."""
    from torch._dynamo import guards, symbolic_convert
    from torch.utils import _traceback

    log = logging.getLogger("torch.__trace")
    yield log, "handlers", lambda handlers: [item for item in handlers if getattr(item, "root_dir", None)]
    yield symbolic_convert, "get_funcname", lambda _: lambda *_place: None  # found by reading source files
    yield guards, "profile_guard_manager", lambda _: lambda *_guards: 0.0
    yield _traceback, "shorten_filename", functools.cache


def _eager(graph: fx.GraphModule, _inputs: Any, **_options: Any) -> Callable[..., Any]:
    """Torch's backend `eager`, whose module imports the partitioner."""
    return graph.forward


def _only_on_demand(find: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Dynamo's function that names what a frame changes besides tensors, which only options of a user ask for."""
    return lambda graph, **options: find(graph, **options) if options else []
