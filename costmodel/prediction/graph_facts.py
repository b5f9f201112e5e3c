"""Facts of a captured graph in its report, which no hardware changes."""

from __future__ import annotations

from typing import Any

from costmodel.ir import Graph
from costmodel.report.types import Module
from costmodel.timeline.issue_trace import layout_of, main_input


def graph_facts(graph: Graph) -> dict[str, Any]:
    """Fields of `Report`: model, main input, parameters and modules."""
    main = main_input(graph)
    return {
        "model": graph.name,
        "input_shape": main.shape,
        "precision": main.dtype,
        "layout": layout_of(graph),
        "parameters": sum(module.parameters for module in graph.modules) if graph.modules else None,
        "modules": tuple(Module(module.name, module.type, module.parameters) for module in graph.modules),
    }


def images_of(graph: Graph) -> int:
    """First size of the main input, or 1."""
    return next(iter(main_input(graph).shape), 1)
