"""nn.Module -> FX graph of ATen operators -> ir.Graph, on meta tensors, without computation or weights.

The forward pass runs under a dispatch mode that sees every ATen operator of eager execution, with its shapes. Attention
stays one operator: on meta tensors torch would decompose it as for a device without a fused kernel. Python control flow
is followed. A branch on a tensor's data is refused with the name of the module, or ends a partial graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from costmodel import ir
from costmodel.capture.autocast import AMP, refuse_surrounding, surrounding
from costmodel.capture.data_dependence import NO_LINE, lacks_data, line_of_error
from costmodel.capture.functional_variants import functional, writes_first
from costmodel.capture.inputs import Arguments, Inputs, inputs_fault, module_fault
from costmodel.capture.intercepts import WholeOperators, forgetful_autograd
from costmodel.capture.meta_tensors import meta_like, named_parts
from costmodel.capture.module_facts import facts_of, written_path
from costmodel.capture.module_state import scopes, state_on_meta, untouched
from costmodel.capture.read_values import ReadValues
from costmodel.capture.recorder import Recorder
from costmodel.capture.recurrent_step import NAMESPACE
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, DataDependentError, first_line, text_of
from costmodel.ir.passes import drop_dead_code

ITERATED = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

_NOT_ATTRIBUTES = {"device", "pin_memory", "generator"}
"""Arguments left out of the IR, which has no devices."""
_NOT_IN_NAMES = re.compile(r"[\s,:=()\[\]%#]")


def capture(
    module: nn.Module,
    inputs: Inputs,
    name: str = "model",
    *,
    training: bool = False,
    partial: bool = False,
    fast_path: bool = True,
    values: ReadValues | None = None,
    amp: str | None = None,
) -> ir.Graph:
    """Capture the graph of ATen operators of one eager forward pass.

    The pass runs on meta tensors in place of the weights. The module is unchanged afterwards, also if the pass fails.

    Args:
        module: module in evaluation mode; its parameters may be real or meta tensors.
        inputs: positional inputs, or a mapping of keyword inputs. Only shapes, dtypes and strides of tensors (real,
            meta or fake, also inside lists, tuples and dicts) are used; other values are passed unchanged.
        name: name of the graph.
        training: whether to record the forward pass of a training step, with every submodule in training mode.
        partial: whether to keep a partial graph of a pass with data-dependent control flow. Data-dependent sizes take
            their maximum, and the graph ends at a data-dependent branch; `Graph.breaks` names the places.
        fast_path: whether multi-head attention may be one operator, its fast path.
        values: values that the pass reads, from a real run; None if it must do without.
        amp: precision of an autocast region around the pass, a key of AMP; None for the region that the caller is in.

    Raises:
        CaptureError: the forward pass failed; the message names the module and quotes the error.
        DataDependentError: it needs the values of a tensor; with `partial`, before any operator.
    """
    traced = trace(module, inputs, training=training, partial=partial, fast_path=fast_path, values=values, amp=amp)
    return lower(traced, name)


@takes_turns
def trace(
    module: nn.Module,
    inputs: Inputs,
    exact: bool = False,
    *,
    training: bool = False,
    partial: bool = False,
    fast_path: bool = True,
    values: ReadValues | None = None,
    amp: str | None = None,
    device: str | None = None,
) -> fx.Graph:
    """Record the FX graph of one forward pass; `meta["types"]` holds result types, `meta["module"]` the module.

    The output node's `meta["result"]` is the result of the pass, `meta["breaks"]` its data-dependent places. An `exact`
    graph computes the result of the first pass, constants included. Otherwise the graph has the operators of a steady
    state: the second pass is recorded if the first one fills a cache in the module. Autocast regions cast as on a GPU,
    or as on the `device` that an exact graph will run on, `cuda` or `cpu`.

    Raises:
        CaptureError: the forward pass failed, or runs under autocast of a CPU.
    """
    for name, fault in (("module", module_fault(module)), ("inputs", inputs_fault(inputs))):
        if fault:
            raise CaptureError(f"{name} {fault}")
    inputs = Arguments.of(inputs)
    for tensor in inputs.tensors():
        if not tensor.numel():
            raise CaptureError(f"an input of shape {'x'.join(map(str, tensor.shape))} is empty; give one with elements")
    around = surrounding(type(module).__name__)
    if exact and around is not None and amp is None:
        refuse_surrounding(type(module).__name__)
    with untouched(module) as has_changed, torch.random.fork_rng(devices=[]):
        how = _How(exact, training, partial, fast_path, values, AMP[amp] if amp else around, device)
        state = state_on_meta(module, training)
        before = dict(state)
        first = _traced(module, state, inputs, how)
        if exact or training or not (has_changed() or _is_other(before, state)):
            return first
        with contextlib.suppress(CaptureError):
            before = dict(state)
            second = _traced(module, state, inputs, how)
            return first if has_changed() or _is_other(before, state) else second
        return first


@dataclasses.dataclass(frozen=True, slots=True)
class _How:
    """Options of `trace`."""

    exact: bool
    training: bool
    partial: bool
    fast_path: bool
    values: ReadValues | None
    amp: torch.dtype | None
    device: str | None = None


def _is_other(before: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> bool:
    """Whether a pass has replaced parameters or buffers."""
    return any(state[key] is not tensor for key, tensor in before.items())


def _traced(module: nn.Module, state: dict[str, torch.Tensor], inputs: Inputs, how: _How) -> fx.Graph:
    """Record one pass with `state` in place of parameters and buffers; the pass may replace entries of `state`."""
    known = {id(part): name for key, tensor in state.items() for name, part in named_parts(key, tensor)}
    values = how.values and how.values.rewound()
    recorder = Recorder(module, known, how.exact, how.training, how.partial, values)
    call = Arguments.of(inputs).like(declaring(recorder, state))
    result, stopped = _run(module, state, call, recorder, how)
    recorder.finish()
    returned = (part for tensor in tensors_in(result) for _, part in named_parts("", tensor))
    outputs = [*stopped, *map(recorder.node_of, returned)]
    if not outputs:
        raise CaptureError(f"the forward pass of {type(module).__name__} returned no tensor")
    recorder.graph.output(tuple(outputs)).meta.update(
        calls=recorder.counts.calls,
        checked_modules=checked_modules(module),
        result=result,
        breaks=tuple(recorder.breaks),
        modules=facts_of(module),
    )
    return recorder.graph


def declaring(recorder: Recorder, state: Mapping[str, torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Function that declares an input of the graph for each tensor that it is given, and returns its twin.

    The twin is the `value` of the input's node.
    """
    names: list[str] = []

    def declare(tensor: torch.Tensor) -> torch.Tensor:
        name = f"x{len(names)}" if names else "x"
        names.append(f"{name}_" if name in state else name)
        twin = meta_like(tensor)
        for part, held in named_parts(names[-1], twin):
            recorder.placeholder(held, part)
            recorder.node_of(held).meta["value"] = held
        return twin

    return declare


def _run(
    module: nn.Module, state: dict[str, torch.Tensor], call: Arguments, recorder: Recorder, how: _How
) -> tuple[Any, list[fx.Node]]:
    """Run the forward pass: its result and no nodes; or None and the unread nodes if it stops for missing data."""
    gradients = forgetful_autograd() if how.training else torch.no_grad()
    with gradients, scopes(recorder), recorder, WholeOperators(recorder, how.fast_path, how.amp, how.device):
        if how.training:
            module.train()
        try:
            result = torch.func.functional_call(module, state, call.args, call.kwargs, tie_weights=True)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an exit too
            lacking = isinstance(error, DataDependentError) or lacks_data(error)
            if how.partial and lacking and (unread := recorder.unread()):
                recorder.stop(error)
                return None, unread
            raise _with_line(error, recorder.where) from error
    return result, []


@contextlib.contextmanager
def explained(recorder: Recorder) -> Iterator[None]:
    """Turn an error of a forward pass into a CaptureError of one line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit too
        raise _with_line(error, recorder.where) from error


def _with_line(error: BaseException, where: str) -> CaptureError:
    """Error of a forward pass in one line, with the line of the model's code that it comes from."""
    line = line_of_error(error)
    place = "" if line == NO_LINE else f" ({line})"
    if isinstance(error, CaptureError):
        return type(error)(f"{error}{place}")
    reason = first_line(text_of(error))
    return CaptureError(f"the forward pass failed in {where}: {type(error).__name__}: {reason}{place}")


def tensors_in(result: Any) -> Iterator[torch.Tensor]:
    """Yield tensors in a result, nested in sequences, mappings, dataclasses and plain objects."""
    waiting, seen = [result], set()
    while waiting:
        found = waiting.pop()
        if isinstance(found, torch.Tensor):
            yield found
        elif id(found) not in seen:
            seen.add(id(found))
            waiting += reversed(_items_of(found))


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
    """Convert an FX graph of ATen operators to an ir.Graph: dead code removed, arguments named by schema."""
    values: list[ir.Value] = []
    ops: list[ir.Op] = []
    outputs: tuple[ir.Ref, ...] = ()
    calls, checked = ir.Calls(), 0
    breaks: tuple[ir.Break, ...] = ()
    modules: tuple[ir.ModuleFacts, ...] = ()
    refs: dict[fx.Node, ir.Ref] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            refs[node] = ir.Ref(_clean(str(node.target)))
            role = "input" if node.op == "placeholder" else "param"
            values.append(ir.Value(refs[node].name, node.meta["types"][0], role))
        elif node.op == "output":
            outputs = tuple(refs[arg] for arg in node.args[0])
            calls = node.meta.get("calls", calls)
            checked = node.meta.get("checked_modules", 0)
            breaks = node.meta.get("breaks", ())
            modules = node.meta.get("modules", ())
        elif node.target is operator.getitem:
            refs[node] = ir.Ref(refs[node.args[0]].name, node.args[1])
        else:
            refs[node] = ir.Ref(str(len(ops)))
            ops.append(_lower_node(node, refs[node].name, refs))
    nodes = [node for node in graph.nodes if node in refs and node.op == "call_function" and "types" in node.meta]
    made = {refs[node].name: node for node in reversed(nodes)}  # the operator itself, not its `getitem` results
    ops = [dataclasses.replace(op, frees=_freed(made[op.name], refs)) for op in ops]
    return drop_dead_code(ir.Graph(name, tuple(values), tuple(ops), outputs, calls, breaks, checked, modules=modules))


def _freed(node: fx.Node, refs: Mapping[fx.Node, ir.Ref]) -> tuple[ir.Ref, ...]:
    return tuple(refs[owner] for owner in node.meta.get("frees", ()) if owner in refs)


def operator_name(schema_name: str) -> str:
    """Name of an operator in the IR: without the namespaces of ATen and of stand-ins for its operators."""
    return schema_name.removeprefix("aten::").removeprefix(f"{NAMESPACE}::").replace("::", "_")


def _lower_node(node: fx.Node, name: str, refs: Mapping[fx.Node, ir.Ref]) -> ir.Op:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise CaptureError(f"{node.name}: {target} is not an ATen operator")
    args = tuple((key, argument(value, refs)) for key, value in named_arguments(node))
    made = functional(target)
    base = operator_name(made._schema.name)
    if made is target and writes_first(target):
        base = base[:-1]  # no functional variant exists; drop the underscore
    overload = "" if made._overloadname == "default" else f".{made._overloadname}"
    where = written_path(node.meta["module"])
    inplace = writes_first(target) or node.meta.get("inplace", False)
    return ir.Op(name, base + overload, args, node.meta["types"], where, inplace, section=node.meta.get("phase", 0))


def named_arguments(node: fx.Node) -> list[tuple[str, Any]]:
    """Arguments of a call of an ATen operator by the names of its schema, without devices and given results."""
    schema = node.target._schema  # type: ignore[union-attr]  # an OpOverload
    named = [(argument.name, value) for argument, value in zip(schema.arguments, node.args, strict=False)]
    named += node.kwargs.items()
    left_out = {argument.name for argument in schema.arguments if argument.is_out} | _NOT_ATTRIBUTES
    return [(key, value) for key, value in named if key not in left_out]


def _clean(name: str) -> str:
    """Replace characters that the text form reserves; modules may have any name."""
    return _NOT_IN_NAMES.sub("_", name)


def argument(value: Any, refs: Mapping[fx.Node, ir.Ref]) -> ir.Arg:
    """An argument of a call in the IR: references in place of nodes; dtypes and the like as text."""
    if isinstance(value, fx.Node):
        return refs[value]
    if isinstance(value, (tuple, list)):
        return tuple(argument(item, refs) for item in value)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return str(value)


def checked_modules(root: nn.Module) -> int:
    """Count modules that guards check one by one: non-empty containers, and modules above a container."""
    paths = {path for path, module in root.named_modules() if isinstance(module, ITERATED) and len(module)}
    holders = {path[:end] for path in paths for end, letter in enumerate(path) if letter == "."}
    return len(paths | holders | {""}) if paths else 0
