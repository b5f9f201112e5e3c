"""nn.Module -> FX graph of ATen operators -> ir.Graph, on meta tensors: nothing is computed, no weight is needed.

The forward pass runs once under a dispatch mode that sees every ATen operator that eager execution would issue, with
its shapes. Attention is kept whole: on meta tensors it would otherwise decompose into what a device without a fused
kernel runs. Python control flow is followed as it happens; a branch on a tensor's data cannot be, and is refused by
name.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map_only

from costmodel import ir
from costmodel.errors import CaptureError
from costmodel.forward import WholeAttention, scopes, untouched
from costmodel.passes import drop_dead_code
from costmodel.record import Recorder, meta_like

_NOT_ATTRIBUTES = {"device", "pin_memory", "generator"}
"""Arguments that say where a tensor lies or comes from; a graph of the IR is about no device."""
_NOT_IN_NAMES = re.compile(r"[\s,:=()\[\]%#]")


def capture(module: nn.Module, inputs: Sequence[Any], name: str = "model") -> ir.Graph:
    """The graph of ATen operators that one eager forward pass of `module` issues.

    The pass runs on meta tensors in place of the weights; the module is as it was afterwards, also if the pass fails.

    Args:
        module: in evaluation mode; its parameters may be real or meta tensors.
        inputs: positional inputs; of tensors (real, meta or fake, also inside lists, tuples and dicts) only the shapes,
            dtypes and strides are used; anything else is passed as it is.
        name: what the graph is called.

    Raises:
        CaptureError: the forward pass failed; the message names the module and keeps the error's own words.
    """
    return lower(trace(module, inputs), name)


def trace(module: nn.Module, inputs: Sequence[Any]) -> fx.Graph:
    """The FX graph of one forward pass; `meta["types"]` holds result types, `meta["module"]` where a node ran.

    Raises:
        CaptureError: the forward pass failed.
    """
    state = _state_on_meta(module)
    recorder = Recorder(module, {id(tensor): key for key, tensor in state.items()})
    names: list[str] = []

    def placeholder(tensor: torch.Tensor) -> torch.Tensor:
        name = f"x{len(names)}" if names else "x"
        names.append(f"{name}_" if name in state else name)
        twin = meta_like(tensor)
        recorder.placeholder(twin, names[-1])
        return twin

    args = tree_map_only(torch.Tensor, placeholder, tuple(inputs))
    recorder.follow_layout([*state.values(), *(leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor))])
    result = _run(module, state, args, recorder)
    outputs = [recorder.node_of(tensor) for tensor in _tensors_in(result, set())]
    if not outputs:
        raise CaptureError(f"the forward pass of {type(module).__name__} returned no tensor")
    recorder.graph.output(tuple(outputs)).meta["module_calls"] = recorder.module_calls
    return recorder.graph


def _state_on_meta(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, on the meta device; those that are tied stay so."""
    if isinstance(module, torch.jit.ScriptModule):
        raise CaptureError(f"{type(module).__name__} is TorchScript; give the nn.Module that it was made from")
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    unmade = [key for key, tensor in named if is_lazy(tensor)]
    if unmade:
        raise CaptureError(f"the parameter {unmade[0]} is not initialised yet; run the module once before")
    twins = {id(tensor): meta_like(tensor) for _, tensor in named}
    return {key: twins[id(tensor)] for key, tensor in named}


def _run(module: nn.Module, state: dict[str, torch.Tensor], args: tuple[Any, ...], recorder: Recorder) -> Any:
    with torch.no_grad(), untouched(module), scopes(recorder), recorder, WholeAttention(recorder):
        try:
            return torch.func.functional_call(module, state, args, tie_weights=True)
        except CaptureError:
            raise
        except (Exception, SystemExit) as error:
            reason = next(iter(str(error).strip().splitlines()), "")
            raise CaptureError(
                f"the forward pass failed in {recorder.where}: {type(error).__name__}: {reason}"
            ) from error


def _tensors_in(result: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """The tensors of a result, however it is nested: sequences, mappings, dataclasses, plain objects."""
    if isinstance(result, torch.Tensor):
        yield result
        return
    if id(result) in seen:
        return
    seen.add(id(result))
    for item in _items_of(result):
        yield from _tensors_in(item, seen)


def _items_of(result: Any) -> Sequence[Any]:
    if isinstance(result, Mapping):
        return list(result.values())
    if isinstance(result, (tuple, list)):
        return result
    if isinstance(result, (type, nn.Module)):
        return ()
    if dataclasses.is_dataclass(result):
        return [getattr(result, field.name) for field in dataclasses.fields(result)]
    return list(getattr(result, "__dict__", {}).values())


def lower(graph: fx.Graph, name: str = "model") -> ir.Graph:
    """An FX graph of ATen operators as an ir.Graph: dead operators dropped, arguments named by their schema."""
    values: list[ir.Value] = []
    ops: list[ir.Op] = []
    outputs: tuple[ir.Ref, ...] = ()
    module_calls = 0
    refs: dict[fx.Node, ir.Ref] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            refs[node] = ir.Ref(_clean(str(node.target)))
            role = "input" if node.op == "placeholder" else "param"
            values.append(ir.Value(refs[node].name, node.meta["types"][0], role))
        elif node.op == "output":
            outputs = tuple(refs[arg] for arg in node.args[0])
            module_calls = node.meta.get("module_calls", 0)
        elif node.target is operator.getitem:
            refs[node] = ir.Ref(refs[node.args[0]].name, node.args[1])
        else:
            refs[node] = ir.Ref(str(len(ops)))
            ops.append(_lower_node(node, refs[node].name, refs))
    return drop_dead_code(ir.Graph(name, tuple(values), tuple(ops), outputs, module_calls))


def _lower_node(node: fx.Node, name: str, refs: Mapping[fx.Node, ir.Ref]) -> ir.Op:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise CaptureError(f"{node.name}: {target} is not an ATen operator")
    schema = target._schema
    named = [(argument.name, value) for argument, value in zip(schema.arguments, node.args, strict=False)]
    named += node.kwargs.items()
    args = tuple((key, _arg(value, refs)) for key, value in named if key not in _NOT_ATTRIBUTES)
    overload = "" if target._overloadname == "default" else f".{target._overloadname}"
    namespace, _, base = schema.name.partition("::")
    if schema.is_mutable and base.endswith("_") and not base.endswith("__"):
        base = base[:-1]
    if namespace != "aten":
        base = f"{namespace}_{base}"
    return ir.Op(name, base + overload, args, node.meta["types"], re.sub(r"\s", "_", node.meta["module"]))


def _clean(name: str) -> str:
    """A name that the text form can hold: modules may be called anything."""
    return _NOT_IN_NAMES.sub("_", name)


def _arg(value: Any, refs: Mapping[fx.Node, ir.Ref]) -> ir.Arg:
    if isinstance(value, fx.Node):
        return refs[value]
    if isinstance(value, (tuple, list)):
        return tuple(_arg(item, refs) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
