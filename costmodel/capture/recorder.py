"""Records what a forward pass does: every ATen operator that it issues becomes a node of an FX graph.

An FX graph is made of values, torch's tensors of memory that may be written. An operator that writes in place makes a
new value of its tensor; other tensors on the same memory take what was written into account when they are next read.
"""

from __future__ import annotations

import operator
import sys
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn
from torch._prims_common import suggest_memory_format
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from costmodel import ir
from costmodel.capture.aliasing import Memory, geometry_of, type_of
from costmodel.capture.constant_values import Constants, memory_of
from costmodel.capture.data_dependence import largest, not_reached, plain_name, source_line
from costmodel.capture.functional_variants import functional
from costmodel.capture.module_stack import ModuleStack
from costmodel.concurrency import is_recording
from costmodel.errors import CaptureError, DataDependentError
from costmodel.ir import op_table, operators
from costmodel.ir.pure_operators import PURE

aten = torch.ops.aten
ATTENTION = aten.scaled_dot_product_attention.default
_DROPOUT = {"bernoulli", "bernoulli_", "native_dropout"}
_BATCH_NORM = {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"}
_ASKING = {aten._local_scalar_dense.default, aten.is_nonzero.default}
CONSTANT = "constant"
"""How the names of tensors begin that are neither inputs nor parameters."""


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same type and strides without data."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class Recorder(TorchDispatchMode):
    """Records each dispatched operator as a node of an FX graph.

    Tensors are not kept alive: what the program lets go of is noted, as eager execution would free it then.

    With `exact`, what is written into constants is recorded too: the graph can then be run; without, such writes are
    folded away as a compiler does, and only counted: eager execution issues them.

    Attributes:
        graph: the nodes so far; `meta["types"]` holds what a node returns, `meta["module"]` where it ran,
            `meta["frees"]` the nodes that made what was freed between it and the next one.
        calls: what was called so far beside operators that compute.
        exact: whether the graph is to be run.
        training: whether the pass is that of a training step, which is refused otherwise.
        breaks: where the values of tensors would have been needed.
        constants: the values of those tensors that depend on no data.
    """

    def __init__(
        self,
        root: nn.Module,
        names: Mapping[int, str],
        exact: bool = False,
        training: bool = False,
        partial: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.graph = fx.Graph()
        self.exact = exact
        self.calls = ir.Calls()
        self._issued = self._computing = 0
        self.breaks: list[ir.Break] = []
        self.constants = Constants()
        self._partial = partial
        self._called = {root}
        self._running = ModuleStack(root)
        self._names = names
        self._nodes: dict[int, fx.Node] = {}
        self.training = training
        self._bound = 0
        self._tensors: dict[int, weakref.ref[torch.Tensor]] = {}
        self._freed: list[fx.Node] = []
        self._held: Any = None
        self._memories: dict[int, Memory] = {}
        self._seen: dict[int, int] = {}

    @property
    def where(self) -> str:
        """The module that is running: its path, for the root its class."""
        return self._running.path or type(self._running.root).__name__

    @property
    def running(self) -> nn.Module:
        """The module that is running."""
        return self._running.module

    def enter(self, child: nn.Module) -> None:
        """A submodule starts to run."""
        self._running.enter(child)
        self.count("modules")
        self._called.add(child)

    def leave(self, child: nn.Module) -> None:
        """A submodule has returned, and so have those that it called, be it by an exception that it caught."""
        self._running.leave(child)

    def calling(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function of torch as Python does, and counts it among `calls` if it computes nothing."""
        issued, computing = self._issued, self._computing
        result = function(*args, **kwargs)
        if computing == self._computing:
            views, made = issued < self._issued, any(map(_is_tensor, tree_leaves(result)))
            kind = "views" if views else "idle" if made else "queries"
            self.count(kind)
        return result

    def count(self, kind: str, more: int = 1) -> None:
        """Counts so many more among `calls`: of `modules`, `views`, `idle`, `queries` or `writes`."""
        self.calls = replace(self.calls, **{kind: getattr(self.calls, kind) + more})

    def stop(self, error: BaseException) -> None:
        """The forward pass ended for want of a tensor's values: notes where, and what did not run for it."""
        frames = reversed(list(traceback.walk_tb(error.__traceback__)))
        self._note_break("stop", "control_flow", source_line(frames), not_reached(self._running.paths, self._called))

    def cut(self) -> None:
        """Notes that torch.compile leaves the module that is running as it is, in between two graphs."""
        if self._partial:
            reason = f"Dynamo does not follow nn.{type(self._running.module).__name__}"
            self._note_break("cut", reason, source_line(traceback.walk_stack(sys._getframe())))

    def _note_break(self, kind: str, op: str, source: str, missed: tuple[str, ...] = ()) -> None:
        found = ir.Break(kind, op, plain_name(self._running.path), source, missed)
        if found not in self.breaks:
            self.breaks.append(found)

    def unread(self) -> list[fx.Node]:
        """The values that depend on inputs or parameters and that no operator has read, in order."""
        calls = [node for node in self.graph.nodes if node.op == "call_function" and node.target != operator.getitem]
        found = []
        for node in calls:
            parts = [user for user in node.users if user.target is operator.getitem]
            read = any(part.users for part in parts) if parts else bool(node.users)
            if not read and not _is_constant(node):
                found.append(parts[0] if parts else node)
        return found

    def placeholder(self, tensor: torch.Tensor, name: str) -> None:
        """Declares an input of the graph."""
        self._bind(tensor, self.graph.placeholder(name))

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        """The node that made a tensor's value; a `get_attr` for one that was made elsewhere."""
        if id(tensor) not in self._nodes:
            name = self._names.get(id(tensor), f"{CONSTANT}{self._bound}")
            self._bind(tensor, self.graph.create_node("get_attr", name))
            value = self.constants.value_of(tensor)
            self._nodes[id(tensor)].meta["value"] = tensor if value is None else value
        memory = self._memories[memory_of(tensor)]
        if self._seen[id(tensor)] < len(memory.writes):
            self._bind(tensor, memory.read(tensor, self.graph, self._running.path))
        return self._nodes[id(tensor)]

    def record(self, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Adds the node of a call that has been made; a call with several results gets a `getitem` node for each."""
        self._issued += 1
        self._computing += not target.is_view  # type: ignore[attr-defined]  # an OpOverload
        node = self.graph.create_node(
            "call_function",
            target,
            tree_map_only(torch.Tensor, self.node_of, tuple(args)),
            tree_map_only(torch.Tensor, self.node_of, dict(kwargs)),
        )
        if result is None and target._schema.is_mutable:  # type: ignore[attr-defined]  # an OpOverload
            result = args[0]  # what `_foreach_add_` writes and does not return
        several = isinstance(result, (tuple, list))
        tensors = [(index, item) for index, item in enumerate(result if several else (result,)) if _is_tensor(item)]
        self._freed = []
        types = tuple(type_of(item) for _, item in tensors)
        node.meta.update(types=types, module=self._running.path, frees=self._freed)
        if self.exact and isinstance(result, torch.Tensor):
            node = self._converted(node, args, kwargs, result)
        for index, item in tensors:
            self._bind(item, self.graph.call_function(operator.getitem, (node, index)) if several else node)
        if target._schema.is_mutable:  # type: ignore[attr-defined]  # an OpOverload
            self._note_writes(args, kwargs, [item for _, item in tensors])

    def _converted(
        self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
    ) -> fx.Node:
        """A result as the tensor holds it that it was written into, where that is of another type than is computed."""
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

    def own(self, tensor: torch.Tensor) -> None:
        """Says that a tensor's memory was made by the operator recorded as its maker, whatever stood in for it."""
        self._memories[memory_of(tensor)].own(tensor, self._nodes[id(tensor)])

    def finish(self) -> None:
        """The pass is over: what is let go of from now on is the recorder's own."""
        self._held = None
        self._freed = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_recording(self):
            return func(*args, **kwargs)
        self._held = None
        value = self.constants.value_of(args[0]) if func in _ASKING and args[0].is_meta else None
        if value is not None:
            return func(value)
        self.refuse(func, args, kwargs)
        if self.exact and func._schema.is_mutable:
            self._keep_constants((args, kwargs))
        result = largest(func, args)
        if result is not None:
            self._assume_size(func)
        else:
            args, kwargs, result = self._call(func, args, kwargs)
            self.constants.follow(func, args, kwargs, result)
        if func is aten.convolution.default and any(map(_is_channels_last, args[:2])):  # as cuDNN; meta: by version
            result = torch.empty_like(result, memory_format=torch.channels_last)
        self.record(func, args, kwargs, result)
        self._held = result  # until the next call: a factory function of torch detaches a result that others refer to
        return result

    def _keep_constants(self, given: Any) -> None:
        """What constants hold before a call that may write into them: the graph starts from that, and writes too."""
        for tensor in tree_leaves(given):
            if _is_tensor(tensor):
                self.node_of(tensor)
                meta = self._memories[memory_of(tensor)].owner.meta
                if "value" in meta and "kept" not in meta:
                    meta.update(value=meta["value"].clone(), kept=True)

    def _call(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        if str(func) not in PURE and not _has_meta((args, kwargs)):
            args, kwargs = self._without_computing(func, args, kwargs)
        try:
            return args, kwargs, func(*args, **kwargs)
        except RuntimeError as error:
            args, kwargs = self._without_data(func, args, kwargs, error)
            return args, kwargs, func(*args, **kwargs)

    def _assume_size(self, func: Any) -> None:
        if not self._partial:
            raise self._needs_values()
        frames = traceback.walk_stack(sys._getframe())
        self._note_break("size", func._schema.name.partition("::")[2], source_line(frames))

    def _bind(self, tensor: torch.Tensor, node: fx.Node) -> None:
        node.meta.setdefault("types", (type_of(tensor),))
        key, place = id(tensor), memory_of(tensor)
        self._bound += 1
        self._tensors[key] = weakref.ref(tensor, lambda _: self._forget(key))
        self._nodes[key] = node
        if place not in self._memories:
            storage = weakref.ref(tensor.untyped_storage(), lambda _: self._free(place))
            self._memories[place] = Memory(node, storage, node, geometry_of(tensor), tensor.dtype, [])
        self._seen[key] = len(self._memories[place].writes)

    def _forget(self, key: int) -> None:
        """A tensor is gone: its identity may be another's next."""
        del self._tensors[key], self._nodes[key], self._seen[key]

    def _free(self, place: int) -> None:
        self._freed.append(self._memories.pop(place).owner)

    def _note_writes(self, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[torch.Tensor]) -> None:
        """Notes that results which are arguments were written; constants written into constants are folded away."""
        given = {id(leaf) for leaf in tree_leaves((args, kwargs))}
        for tensor in results:
            node = self._nodes[id(tensor)]
            if id(tensor) not in given:
                continue
            memory = self._memories[memory_of(tensor)]
            if not self.exact and _is_constant(node):
                apart = geometry_of(tensor) != memory.geometry  # else the graph goes on with what was written
                self.count("writes", apart)
                continue
            memory.writes.append((geometry_of(tensor), tensor.dtype, node))
            self._seen[id(tensor)] = len(memory.writes)

    def refuse(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Stops at what cannot be known without data, and at what only training does, unless that is recorded."""
        name = func._schema.name.partition("::")[2]
        if torch.Tag.data_dependent_output in func.tags and _has_meta(args):
            raise self._needs_values()
        updates = name in _BATCH_NORM and len(args) > 5 and args[3] is not None and args[5] is True
        draws = name in _DROPOUT and self._running.module.training
        drops = func is ATTENTION and kwargs.get("dropout_p", 0.0) > 0
        if (updates or draws or drops) and not self.training:
            raise CaptureError(f"{self.where} is in training mode; call .eval() on the model")

    def _needs_values(self) -> DataDependentError:
        return DataDependentError(
            f"{self.where} needs the values of a tensor (.item(), a branch or a result size that depends on data); "
            "only what depends on shapes alone can be captured"
        )

    def _without_data(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: RuntimeError
    ) -> tuple[Any, Any]:
        """Arguments on the meta device, for a call that failed because it mixes them with constants elsewhere."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        elsewhere = [tensor for tensor in tensors if not tensor.is_meta]
        if not elsewhere or len(elsewhere) == len(tensors):
            dynamic = torch.Tag.dynamic_output_shape in func.tags and elsewhere != tensors
            raise (self._needs_values() if dynamic else error)
        if func._schema.is_mutable and not tensors[0].is_meta:
            raise CaptureError(
                f"{self.where} writes into a tensor on {tensors[0].device}; make it where the input is, device=x.device"
            )
        return tree_map_only(torch.Tensor, self._twin, (args, kwargs))  # type: ignore[no-any-return]

    def _without_computing(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Arguments on the meta device, for a call that may do more than compute: open files, run a package's code."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if not tensors or func._schema.is_mutable:
            raise CaptureError(f"{self.where} calls {func}, which is not run while a model is captured; call it before")
        return tree_map_only(torch.Tensor, self._twin, (args, kwargs))  # type: ignore[no-any-return]

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor
        twin = meta_like(tensor)
        self._bind(twin, self.node_of(tensor))
        self.constants.remember(twin, tensor)
        return twin


def _is_tensor(item: object) -> bool:
    return isinstance(item, torch.Tensor)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether a tensor's strides are those of channels-last order, and of no other."""
    return tensor.dim() == 4 and suggest_memory_format(tensor) is torch.channels_last


def _has_meta(args: Sequence[Any]) -> bool:
    """Whether a call is given the meta device, or a tensor on it."""
    leaves = tree_leaves(args)
    return any(leaf.is_meta if isinstance(leaf, torch.Tensor) else leaf == torch.device("meta") for leaf in leaves)


def _is_constant(node: fx.Node) -> bool:
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
