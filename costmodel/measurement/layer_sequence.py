"""Module as a sequence of layers: cut short, with calls between its layers, or with layers compiled one by one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from costmodel.errors import MeasurementError, first_line, text_of

GRANULARITIES = ("leaf", "block")
_CALLS = ("call_module", "call_function", "call_method")


class LayerTracer(fx.Tracer):
    """Tracer whose leaves are layers.

    Args:
        granularity: `leaf` for modules without children; `block` for the children of the module, those of a plain
            `nn.Sequential` in its place.
    """

    def __init__(self, granularity: str) -> None:
        super().__init__()
        self._granularity = granularity

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one layer."""
        if self._granularity == "block":
            return type(m) is not nn.Sequential
        return next(m.children(), None) is None or super().is_leaf_module(m, module_qualified_name)


class Layers:
    """Layers of a module in execution order, by `torch.fx`.

    A layer is a call of a module, or of an operator between modules, such as an addition.

    Attributes:
        names: name of each layer; a further call of a module has a number.

    Args:
        module: module whose forward pass can be traced symbolically.
        granularity: one of GRANULARITIES.

    Raises:
        MeasurementError: unknown granularity, or the module cannot be traced.
    """

    def __init__(self, module: nn.Module, granularity: str = "leaf") -> None:
        if granularity not in GRANULARITIES:
            raise MeasurementError(f"unknown granularity {granularity!r}; choose {' or '.join(GRANULARITIES)}")
        self._module = module
        try:
            self._graph = LayerTracer(granularity).trace(module)
        except Exception as error:  # tracing runs the module's own code, which may raise anything
            reason = first_line(text_of(error))
            raise MeasurementError(
                f"{type(module).__name__} is no sequence of layers: torch.fx cannot trace it ({reason})"
            ) from error
        self._nodes = [node for node in self._graph.nodes if node.op in _CALLS and node.target is not operator.getitem]
        if not self._nodes:
            raise MeasurementError(f"{type(module).__name__} has no layers")
        called: dict[str, int] = {}
        self.names = tuple(_numbered(_name_of(node), called) for node in self._nodes)

    def prefix(self, count: int) -> fx.GraphModule:
        """Module that stops after the first `count` layers, and returns the result of the last of them.

        Raises:
            MeasurementError: there are not so many layers.
        """
        if not 1 <= count <= len(self.names):
            raise MeasurementError(f"the model has 1 to {len(self.names)} layers, not {count}")
        graph, copies = self._copied()
        if count < len(self.names):
            end = graph.output_node()
            end.args = (copies[self._nodes[count - 1]],)
            for node in reversed(list(graph.nodes)):
                if node.op != "placeholder" and node is not end and not node.users:
                    graph.erase_node(node)
        return fx.GraphModule(self._module, graph)

    def with_calls(
        self,
        calls: Sequence[Callable[[], object]] = (),
        compiled: Collection[str] = (),
        mode: str = "default",
    ) -> fx.GraphModule:
        """Module that runs the layers, each eager or compiled by itself, with calls between them.

        Args:
            calls: functions to call before the first layer and after each layer, such as a timer.
            compiled: names of the layers that `torch.compile` compiles, each alone.
            mode: mode of torch.compile.
        """
        graph, copies = self._copied()
        with graph.inserting_before(copies[self._nodes[0]]):
            for function in calls:
                graph.call_function(function)
        for name, node in zip(self.names, self._nodes, strict=True):
            at = copies[node]
            if name in compiled:
                at.target, at.op = compile_alone(_function_of(self._module, node), mode), "call_function"
            for function in calls:
                with graph.inserting_after(at):
                    at = graph.call_function(function)
        return fx.GraphModule(self._module, graph)

    def _copied(self) -> tuple[fx.Graph, Mapping[fx.Node, fx.Node]]:
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        graph.output(graph.graph_copy(self._graph, copies))
        return graph, copies


def compile_alone(function: Callable[..., Any], mode: str = "default") -> Callable[..., Any]:
    """Compile a function with a code object of its own.

    Dynamo keeps compiled graphs by code object and tries their guards in turn. Modules of one class share the code of
    `forward`: each further one would make the calls of all others slower, and above a limit run eagerly.
    """

    def layer(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    layer.__code__ = layer.__code__.replace()
    compiled: Callable[..., Any] = torch.compile(layer, dynamic=False, mode=mode)
    return compiled


def _name_of(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _numbered(name: str, called: dict[str, int]) -> str:
    """Name of a call, with its number unless it is the first."""
    called[name] = called.get(name, 0) + 1
    return name if called[name] == 1 else f"{name}#{called[name]}"


def _function_of(module: nn.Module, node: fx.Node) -> Callable[..., Any]:
    """Callable of a layer."""
    if node.op == "call_module":
        return module.get_submodule(str(node.target))
    if node.op == "call_function":
        return node.target  # type: ignore[return-value]  # a name only for other kinds of nodes
    method = str(node.target)

    def call(item: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(item, method)(*args, **kwargs)

    return call
