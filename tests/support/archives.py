"""Archives of `torch.export.save` with other records or other graphs than torch would write."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

Record = dict[str, Any]
"""A record of JSON, such as an exported program."""


def exported(path: Path, module: nn.Module, *inputs: torch.Tensor, **options: Any) -> Path:
    """Write a module as torch.export.save does."""
    torch.export.save(torch.export.export(module.eval(), inputs, **options), path)
    return path


def rewritten(source: Path, target: Path, change: Callable[[str, bytes], bytes], **extra: bytes) -> Path:
    """Copy an archive, with each record changed and others added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
        for name, data in extra.items():
            new.writestr(f"{old.namelist()[0].partition('/')[0]}/{name}", data)
    return target


def edited(source: Path, target: Path, edit: Callable[[Record], object]) -> Path:
    """Copy an archive whose exported program is edited in place."""

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        program = json.loads(data)
        edit(program)
        return json.dumps(program).encode()

    return rewritten(source, target, change)


def nodes_of(program: Record) -> list[Record]:
    """Nodes of an exported program's graph."""
    nodes: list[Record] = program["graph_module"]["graph"]["nodes"]
    return nodes


def node(target: str, name: str, /, **inputs: Record) -> Record:
    """A node of a graph that returns one tensor of its own name."""
    given = [{"name": key, "arg": value, "kind": 1} for key, value in inputs.items()]
    outputs = [{"as_tensor": {"name": name}}]
    return {"target": target, "name": name, "inputs": given, "outputs": outputs, "metadata": {}}


def tensor(name: str) -> Record:
    """An argument of a node: the tensor that another made."""
    return {"as_tensor": {"name": name}}


def float_type(size: int) -> Mapping[str, object]:
    """A vector of 32-bit floats, as the graph's `tensor_values` has it."""
    return {
        "dtype": 7,
        "layout": 7,
        "sizes": [{"as_int": size}],
        "strides": [{"as_int": 1}],
        "storage_offset": {"as_int": 0},
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
    }


def with_nodes(source: Path, target: Path, added: list[Record], size: int) -> Path:
    """Copy an archive whose graph begins with other nodes; each returns a vector of that size."""

    def edit(program: Record) -> None:
        graph = program["graph_module"]["graph"]
        graph["nodes"] = [*added, *graph["nodes"]]
        graph["tensor_values"].update({one["name"]: float_type(size) for one in added})

    return edited(source, target, edit)
