"""Recorder of a forward pass: every ATen operator that it dispatches becomes a node of an FX graph."""

from __future__ import annotations

import operator
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from costmodel import ir
from costmodel.capture.aliasing import geometry_of, type_of
from costmodel.capture.aten_operators import parts_of
from costmodel.capture.call_counts import CallCounts
from costmodel.capture.constant_values import Constants
from costmodel.capture.data_dependence import largest, not_reached, plain_name, source_line
from costmodel.capture.functional_variants import functional
from costmodel.capture.meta_tensors import batch_norm_results, has_meta, is_channels_last, meta_like, tensors_of
from costmodel.capture.module_stack import ModuleStack
from costmodel.capture.read_values import READS, ReadValues, has_sized_result
from costmodel.capture.refusals import (
    needs_values,
    refuse_data_dependence,
    refuse_impure,
    refuse_mixed_devices,
    refuse_packed_weights,
    refuse_sparse,
    refuse_training,
)
from costmodel.capture.tensor_values import TensorValues, is_constant
from costmodel.concurrency import is_recording
from costmodel.ir.pure_operators import PURE

aten = torch.ops.aten
_VALUE_QUERIES = {aten._local_scalar_dense.default, aten.is_nonzero.default}


class Recorder(TorchDispatchMode):
    """Dispatch mode that records each operator as a node of an FX graph.

    Memory that the program releases is noted, as eager execution would free it then. In an exact graph, writes into
    constants are recorded, so that it can be run. Otherwise they are folded, as in a compiler, and only counted.

    Attributes:
        graph: nodes so far; `meta["types"]` holds result types, `meta["module"]` the running module, `meta["frees"]`
            the nodes that made the memory released between it and the next node.
        counts: counts of Python calls that compute nothing.
        exact: whether the graph will be run.
        training: whether the pass is the forward pass of a training step, which is refused otherwise.
        differentiates: whether a backward pass follows, so that autograd must know every operator.
        wants_gradient: whether the model computes with gradients now, outside of `torch.no_grad()`.
        breaks: places that need the values of tensors.
        constants: values of constants that depend on no data.
        values: values that the pass reads, from a real run; None without one.
    """

    def __init__(
        self,
        root: nn.Module,
        names: Mapping[int, str],
        exact: bool = False,
        training: bool = False,
        partial: bool = False,
        values: ReadValues | None = None,
        differentiates: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.graph = fx.Graph()
        self.exact, self.training, self._partial = exact, training, partial
        self.differentiates = differentiates
        self.wants_gradient = True
        self.counts = CallCounts()
        self.breaks: list[ir.Break] = []
        self.constants = Constants()
        self.values = values
        self._values = TensorValues(self.graph, names, self.constants)
        self._called = {root}
        self._running = ModuleStack(root)
        self._held: Any = None

    @property
    def where(self) -> str:
        """Path of the running module; its class for the root."""
        return self._running.path or type(self._running.root).__name__

    @property
    def running(self) -> nn.Module:
        """The running module."""
        return self._running.module

    def enter(self, child: nn.Module) -> None:
        """Note that a submodule starts to run."""
        self._running.enter(child)
        self.counts.count("modules")
        self._called.add(child)

    def leave(self, child: nn.Module) -> None:
        """Note that a submodule has returned; submodules below it have ended too, by an exception that it caught."""
        self._running.leave(child)

    def stop(self, error: BaseException) -> None:
        """Note where the forward pass ended because it needs a tensor's values, and modules that did not run."""
        frames = reversed(list(traceback.walk_tb(error.__traceback__)))
        self._note_break("stop", "control_flow", source_line(frames), not_reached(self._running.paths, self._called))

    def cut(self) -> None:
        """Note a graph break: torch.compile runs the current module eagerly between two graphs."""
        if self._partial:
            reason = f"Dynamo does not follow nn.{type(self._running.module).__name__}"
            self._note_break("cut", reason, source_line(traceback.walk_stack(sys._getframe())))

    def _note_break(self, kind: str, op: str, source: str, missed: tuple[str, ...] = ()) -> None:
        found = ir.Break(kind, op, plain_name(self._running.path), source, missed)
        if found not in self.breaks:
            self.breaks.append(found)

    def unread(self) -> list[fx.Node]:
        """Values that depend on inputs or parameters and that no operator has read, in order."""
        calls = [node for node in self.graph.nodes if node.op == "call_function" and node.target != operator.getitem]
        found = []
        for node in calls:
            parts = [user for user in node.users if user.target is operator.getitem]
            read = any(part.users for part in parts) if parts else bool(node.users)
            if not read and not is_constant(node):
                found.append(parts[0] if parts else node)
        return found

    def placeholder(self, tensor: torch.Tensor, name: str) -> None:
        """Declare an input of the graph."""
        self._values.bind(tensor, self.graph.placeholder(name))

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        """Node of a tensor's current value; a `get_attr` for a tensor made outside the graph."""
        return self._values.node_of(tensor, self._running.path)

    def own(self, tensor: torch.Tensor) -> None:
        """Declare that the operator recorded for a tensor allocated its memory."""
        self._values.own(tensor)

    def read(self, given: Any) -> None:
        """Record that Python reads the values of tensors."""
        for tensor in tensors_of(given):
            if tensor.is_meta and self.constants.value_of(tensor) is None:
                node = self.graph.call_function(aten._local_scalar_dense.default, (self.node_of(tensor),))
                node.meta.update(types=(type_of(tensor),), module=self._running.path, frees=[])

    def finish(self) -> None:
        """End the pass: memory released from now on belongs to the recorder."""
        self._held = None
        self._values.freed = []

    def record(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Add the node of a finished call; a call with several results gets a `getitem` node for each."""
        self.counts.dispatched(target.is_view)  # type: ignore[attr-defined]  # an OpOverload
        node = self.graph.create_node(
            "call_function",
            target,
            tuple(map(self._as_nodes, args)),
            {key: self._as_nodes(value) for key, value in kwargs.items()},
        )
        if result is None and target._schema.is_mutable:  # type: ignore[attr-defined]  # an OpOverload
            result = args[0]  # written and not returned, as by `_foreach_add_`
        several = isinstance(result, (tuple, list))
        results = enumerate(result if several else (result,))
        tensors = [(index, item) for index, item in results if isinstance(item, torch.Tensor)]
        self._values.freed = []
        types = tuple(type_of(item) for _, item in tensors)
        node.meta.update(types=types, module=self._running.path, frees=self._values.freed)
        if self.exact and isinstance(result, torch.Tensor):
            node = self._converted(node, args, kwargs, result)
        for index, item in tensors:
            self._values.bind(item, self.graph.call_function(operator.getitem, (node, index)) if several else node)
        if target._schema.is_mutable:  # type: ignore[attr-defined]  # an OpOverload
            self._note_writes(args, kwargs, [item for _, item in tensors])

    def _as_nodes(self, value: Any) -> Any:
        """An argument of an ATen operator, which is no deeper than a list, with nodes in place of tensors."""
        if isinstance(value, torch.Tensor):
            return self.node_of(value)
        return type(value)(map(self._as_nodes, value)) if type(value) in (list, tuple) else value

    def _converted(
        self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
    ) -> fx.Node:
        """Convert a computed value to the dtype of the tensor that it was written into, if they differ."""
        made = functional(node.target)  # type: ignore[arg-type]  # an OpOverload
        if made is node.target:
            return node
        known = {argument.name for argument in made._schema.arguments}
        kind = made(*args, **{key: value for key, value in kwargs.items() if key in known}).dtype
        if kind is result.dtype:
            return node
        node.meta["types"] = (type_of(torch.empty_like(result, dtype=kind, device="meta")),)
        converted = self.graph.call_function(aten._to_copy.default, (node,), {"dtype": result.dtype})
        converted.meta.update(types=(type_of(result),), module=node.meta["module"], frees=node.meta.pop("frees"))
        return converted

    def _note_writes(self, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[torch.Tensor]) -> None:
        """Record writes into arguments that a call returned; writes of constants into constants are folded."""
        given = {id(leaf) for leaf in tree_leaves((args, kwargs))}
        for tensor in results:
            if id(tensor) not in given:
                continue
            if not self.exact and is_constant(self._values.last_node(tensor)):
                partly = geometry_of(tensor) != self._values.memory(tensor).geometry  # else the written value is bound
                self.counts.count("writes", partly)
            else:
                self._values.note_write(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_recording(self) or func.namespace == "profiler":  # a label for a profiler computes nothing
            return func(*args, **kwargs)
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the class runs it by operators on the tensors that it wraps
        self._held = None
        if (parts := parts_of(func)) is not None:  # called below autograd, which divides it elsewhere: by such a class
            with self:
                return parts(*args, **kwargs)
        if func in READS and (known := self._value_read(func, args)) is not None:
            return known[0]
        self.refuse(func, args, kwargs)
        if self.exact and func._schema.is_mutable:
            self._keep_constants((args, kwargs))
        result = self._sized(func, args)
        if result is not None:
            pass
        elif (result := largest(func, args)) is not None:
            self._assume_size(func)
        else:
            args, kwargs, result = self._call(func, args, kwargs)
            self.constants.follow(func, args, kwargs, result)
        # cuDNN returns channels_last then; the meta kernel's layout depends on the version of torch
        if func is aten.convolution.default and any(map(is_channels_last, args[:2])):
            result = torch.empty_like(result, memory_format=torch.channels_last)
        self.record(func, args, kwargs, result)
        self._held = result  # until the next call: a factory function of torch detaches a result that others refer to
        return result

    def _value_read(self, func: Any, args: Sequence[Any]) -> tuple[Any] | None:
        """The value that a call returns to Python: of a real run, or of a constant, which the host has; else None."""
        if self.values is not None:
            self.read(args)
            return (self.values.take(func._schema.name),)
        if func not in _VALUE_QUERIES:
            return None
        value = self.constants.value_of(args[0])  # a tensor that is no meta tensor is its own value
        return None if value is None else (func(value),)

    def _sized(self, func: Any, args: Sequence[Any]) -> Any:
        """Result whose size depends on values, as the real run made it; None for any other call, and without a run."""
        if self.values is None or not has_sized_result(func, args):
            return None
        result = self.values.take(func._schema.name)
        meta = any(tensor.is_meta for tensor in tensors_of(args))
        return tree_map_only(torch.Tensor, torch.empty_like, result) if meta else None

    def refuse(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise for calls that need data, and for calls of training mode unless training is recorded."""
        refuse_data_dependence(self.where, func, args)
        refuse_packed_weights(self.where, func)
        refuse_sparse(self.where, func)
        if not self.training:
            refuse_training(self.where, func, args, kwargs, self._running.module.training)

    def _keep_constants(self, given: Any) -> None:
        """Keep the values of constants from before a call that may write into them: the graph starts from them."""
        for tensor in tensors_of(given):
            self.node_of(tensor)
            meta = self._values.memory(tensor).owner.meta
            if "value" in meta and "kept" not in meta:
                meta.update(value=meta["value"].clone(), kept=True)

    def _call(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """Run a call, with all tensors on the meta device if it mixes devices or may have side effects."""
        if str(func) not in PURE and not has_meta((args, kwargs)):
            refuse_impure(self.where, func, args, kwargs)
            args, kwargs = self._on_meta(args, kwargs)
        if func is aten.native_batch_norm.default and (known := batch_norm_results(args)) is not None:
            return args, kwargs, known
        try:
            return args, kwargs, func(*args, **kwargs)
        except RuntimeError as error:
            refuse_mixed_devices(self.where, func, args, kwargs, error)
            args, kwargs = self._on_meta(args, kwargs)
            return args, kwargs, func(*args, **kwargs)

    def _assume_size(self, func: Any) -> None:
        if not self._partial:
            raise needs_values(self.where)
        frames = traceback.walk_stack(sys._getframe())
        self._note_break("size", func._schema.name.partition("::")[2], source_line(frames))

    def _on_meta(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        return tree_map_only(torch.Tensor, self._twin, (args, kwargs))  # type: ignore[no-any-return]

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor
        twin = meta_like(tensor)
        self._values.bind(twin, self.node_of(tensor))
        self.constants.remember(twin, tensor)
        return twin
