"""Graph, units and stream tree as JSON, for other programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.prediction.layers import Unit
from costmodel.report.to_json import json_text
from costmodel.streams import Dag, Leaf, Node, Pipeline, children_of, unit_dependencies, unit_tree

SCHEMA = 1


def to_json(graph: Graph, units: Sequence[Unit]) -> str:
    """Write one JSON object, schema 1; leaves of the tree are indices of units."""
    before, _ = unit_dependencies(graph, units)
    place = {id(unit): index for index, unit in enumerate(units)}
    record = {
        "schema": SCHEMA,
        "name": graph.name,
        "module_calls": graph.calls.modules,
        "view_calls": graph.calls.views,
        "idle_calls": graph.calls.idle,
        "queries": graph.calls.queries,
        "writes": graph.calls.writes,
        "checked_modules": graph.checked_modules,
        "values": [{"name": value.name, "role": value.role, "type": _type(value.type)} for value in graph.values],
        "ops": [_op(op) for op in graph.ops],
        "outputs": [_arg(ref) for ref in graph.outputs],
        "units": [
            {
                "name": unit.name,
                "kind": unit.kind,
                "ops": [op.name for op in unit.ops],
                "position": unit.position,
                "reads": sorted(found),
            }
            for unit, found in zip(units, before, strict=True)
        ],
        "tree": _tree(unit_tree(graph, units), place),
    }
    return json_text(record, indent=1)


def _op(op: Op) -> dict[str, Any]:
    return {
        "name": op.name,
        "op": op.op,
        "args": {key: _arg(value) for key, value in op.args},
        "types": [_type(kind) for kind in op.types],
        "module": op.module,
    }


def _type(kind: TensorType) -> dict[str, Any]:
    return {"dtype": kind.dtype, "shape": list(kind.shape), "layout": kind.layout}


def _arg(arg: Arg) -> Any:
    """Convert an argument to JSON types; a reference becomes an object, a non-finite number its name."""
    if isinstance(arg, Ref):
        return {"value": arg.name, "index": arg.index}
    if isinstance(arg, tuple):
        return [_arg(item) for item in arg]
    return str(arg) if isinstance(arg, float) and not math.isfinite(arg) else arg


def _tree(node: Node[Unit], place: dict[int, int]) -> Any:
    if isinstance(node, Leaf):
        return place[id(node.item)]
    children = [_tree(child, place) for child in children_of(node)]
    if isinstance(node, Dag):
        return {"dag": children, "edges": [list(edge) for edge in node.edges]}
    return {"pipeline" if isinstance(node, Pipeline) else "split_join": children}
