"""Values of tensors as nodes of an FX graph, across writes in place.

An FX graph consists of values, torch's tensors of memory that may be written. An operator that writes in place makes a
new value of its tensor; other tensors on the same memory include the write when they are next read.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import torch
from torch import fx

from costmodel.capture.aliasing import Memory, geometry_of, type_of
from costmodel.capture.constant_values import Constants, memory_of
from costmodel.ir import op_table, operators

CONSTANT = "constant"
"""Prefix of the names of tensors that are neither inputs nor parameters."""


class TensorValues:
    """Node of each live tensor's current value. Tensors are not kept alive.

    Attributes:
        freed: nodes that made the memory released since this list was last replaced.
    """

    def __init__(self, graph: fx.Graph, names: Mapping[int, str], constants: Constants) -> None:
        """Start with parameter and buffer names by the identity of their tensors, and known values of constants."""
        self.freed: list[fx.Node] = []
        self._graph, self._names, self._constants = graph, names, constants
        self._nodes: dict[int, fx.Node] = {}
        self._tensors: dict[int, weakref.ref[torch.Tensor]] = {}
        self._memories: dict[int, Memory] = {}
        self._seen_writes: dict[int, int] = {}
        self._bound = 0

    def bind(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """Set the node of a tensor's current value."""
        node.meta.setdefault("types", (type_of(tensor),))
        key, place = id(tensor), memory_of(tensor)
        self._bound += 1
        self._tensors[key] = weakref.ref(tensor, lambda _: self._forget(key))
        self._nodes[key] = node
        if place not in self._memories:
            storage = weakref.ref(tensor.untyped_storage(), lambda _: self._free(place))
            self._memories[place] = Memory(node, storage, node, geometry_of(tensor), tensor.dtype, [])
        self._seen_writes[key] = len(self._memories[place].writes)

    def node_of(self, tensor: torch.Tensor, module: str) -> fx.Node:
        """Node of a tensor's current value; a `get_attr` for a tensor made outside the graph.

        Args:
            tensor: the tensor to read.
            module: path of the running module, for nodes that apply earlier writes.
        """
        if id(tensor) not in self._nodes and memory_of(tensor) in self._memories:  # unpacked by autograd
            self.bind(tensor, self.memory(tensor).read(tensor, self._graph, module))
        if id(tensor) not in self._nodes:
            name = self._names.get(id(tensor), f"{CONSTANT}{self._bound}")
            self.bind(tensor, self._graph.create_node("get_attr", name))
            value = self._constants.value_of(tensor)
            self._nodes[id(tensor)].meta["value"] = tensor if value is None else value
        memory = self.memory(tensor)
        if self._seen_writes[id(tensor)] < len(memory.writes):
            self.bind(tensor, memory.read(tensor, self._graph, module))
        return self._nodes[id(tensor)]

    def last_node(self, tensor: torch.Tensor) -> fx.Node:
        """Node that a tensor was last bound to, without later writes to its memory."""
        return self._nodes[id(tensor)]

    def memory(self, tensor: torch.Tensor) -> Memory:
        """Memory of a bound tensor."""
        return self._memories[memory_of(tensor)]

    def own(self, tensor: torch.Tensor) -> None:
        """Declare that the operator that a tensor is bound to allocated its memory."""
        self.memory(tensor).own(tensor, self._nodes[id(tensor)])

    def note_write(self, tensor: torch.Tensor) -> None:
        """Record that the value of a tensor was written into its memory."""
        memory = self.memory(tensor)
        memory.writes.append((geometry_of(tensor), tensor.dtype, self._nodes[id(tensor)]))
        self._seen_writes[id(tensor)] = len(memory.writes)

    def _forget(self, key: int) -> None:
        """Drop a dead tensor, whose identity another tensor may get next."""
        del self._tensors[key], self._nodes[key], self._seen_writes[key]

    def _free(self, place: int) -> None:
        self.freed.append(self._memories.pop(place).owner)


def is_constant(node: fx.Node) -> bool:
    """Whether a value depends on neither inputs nor parameters."""
    pending, seen = [node], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "placeholder" or (node.op == "get_attr" and not str(node.target).startswith(CONSTANT)):
            return False
        if not _is_source(node):
            pending += node.all_input_nodes
    return True


def _is_source(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    row = operators.TABLE.get(schema.name.partition("::")[2]) if schema is not None else None
    return row is not None and row.role is op_table.Role.SOURCE
