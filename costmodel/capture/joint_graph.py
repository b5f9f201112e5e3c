"""Joint graph of a training step, divided into a forward and a backward graph as torch.compile divides it.

The recorded forward pass is traced with its gradients by AOTAutograd, after Inductor's decompositions, on meta tensors.
Torch's own min-cut partitioner then decides which values are saved and which are computed again in the backward pass.
Users compile the module: the loss and the optimizer run eagerly.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from costmodel import ir
from costmodel.capture.aliasing import type_of
from costmodel.capture.module_facts import written_path
from costmodel.capture.step_recording import Phase, RecordedStep, results_of
from costmodel.capture.trace import argument, named_arguments, operator_name
from costmodel.errors import CaptureError, first_line, text_of
from costmodel.ir.passes import drop_dead_code

_STACK = "nn_module_stack"
"""Key of a node's modules, which AOTAutograd copies to the nodes of its gradient."""
_RENAMED = {
    "prims_convert_element_type": "_to_copy",
    "prims_iota": "arange",
    "prims_rev": "flip",
    "rand_like": "bernoulli",
    "rand": "bernoulli",
}
"""Operators of torch's compiler that cost what operators of ATen do: conversions, ranges, random numbers."""


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """Graphs that torch.compile makes of a module in training.

    Attributes:
        forward: forward graph; its outputs are the results, the values saved for the backward pass, and the buffers
            that it updates.
        backward: backward graph; its outputs are the gradients.
        saved: values of the backward graph that the forward graph computes, by their places among its outputs; it also
            reads parameters, buffers and inputs of the forward graph.
    """

    forward: ir.Graph
    backward: ir.Graph
    saved: Mapping[str, int]


def compiled_step(step: RecordedStep, name: str) -> CompiledStep:
    """Divide a recorded step as torch.compile divides it; nothing is run.

    Raises:
        CaptureError: AOTAutograd or the partitioner fails on it; the message quotes the error.
    """
    program, arguments = _forward_program(step)
    static = [index for index, node in enumerate(program.graph.find_nodes(op="placeholder")) if node.meta["static"]]
    forward, backward = _partitioned(program, arguments, static, name)
    names = _static_names(program)
    first, places = lower_compiled(forward, f"{name} forward", names)
    second, _ = lower_compiled(backward, f"{name} backward", names)
    given = {value.name for value in second.values}
    return CompiledStep(first, second, {saved: place for saved, place in places.items() if saved in given})


def _forward_program(step: RecordedStep) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """The recorded forward pass as a module of ATen calls that takes parameters and buffers, and its arguments."""
    made = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    arguments: list[torch.Tensor] = []
    needed = _needed(step)
    given = [node for node in step.graph.nodes if node.op in ("get_attr", "placeholder") and node in needed]
    given.sort(key=lambda node: node.op == "placeholder")
    trained = set(step.trainable)
    for index, node in enumerate(given):
        copies[node] = made.placeholder(f"v{index}")
        is_static = node.op == "get_attr"
        copies[node].meta.update(static=is_static, value_name=str(node.target))
        value = node.meta["value"]
        argument = value.detach() if value.is_meta else torch.empty_like(value, device="meta")
        arguments.append(argument.requires_grad_() if str(node.target) in trained and is_static else argument)
    differentiates = True
    for node in step.graph.nodes:
        if node.op == "call_function" and node in needed:
            if node.meta.get("is_differentiated", True) is not differentiates:
                differentiates = not differentiates
                made.call_function(torch._C._set_grad_enabled, (differentiates,))
            copies[node] = made.node_copy(node, copies.__getitem__)
            path = node.meta.get("module", "")
            copies[node].meta = {_STACK: {path: (path, torch.nn.Module)}}
    made.output(tuple(copies[node] for node in step.results))
    return fx.GraphModule({}, made), arguments


def _needed(step: RecordedStep) -> set[fx.Node]:
    """Nodes of the forward pass that its results, or its writes into memory, depend on."""
    forward: list[fx.Node] = []
    for node in step.graph.nodes:
        if node.meta.get("phase", Phase.FORWARD) is not Phase.FORWARD:
            break
        forward.append(node)
    needed = set(step.results)
    for node in reversed(forward):
        writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if node in needed or writes:
            needed.update((node, *node.all_input_nodes))
    return needed


def _partitioned(
    program: fx.GraphModule, arguments: Sequence[torch.Tensor], static: list[int], name: str
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward graph."""
    found: list[tuple[fx.GraphModule, fx.GraphModule]] = []

    def partition(joint: fx.GraphModule, joint_inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        from torch._functorch.partitioners import min_cut_rematerialization_partition
        from torch._inductor import config
        from torch._inductor.fx_passes.joint_graph import joint_graph_passes

        options["static_lifetime_input_indices"] = static
        with config.patch(joint_graph_constant_folding=False):  # it would run operators on meta tensors
            joint_graph_passes(joint)
        made = min_cut_rematerialization_partition(joint, joint_inputs, compiler="inductor", **options)
        found.append(made)
        return made

    def compiled(gm: fx.GraphModule, example_inputs: Any) -> Any:
        from torch._functorch._aot_autograd.utils import make_boxed_func

        del example_inputs  # a graph is kept, not run
        return make_boxed_func(gm.forward)

    with _quiet():
        import torch._inductor.lowering  # noqa: F401 - decompositions look it up as an attribute
        from torch._functorch.aot_autograd import aot_module_simplified
        from torch._inductor.decomposition import select_decomp_table

        try:
            aot_module_simplified(
                program,
                tuple(arguments),
                fw_compiler=compiled,
                bw_compiler=compiled,
                partition_fn=partition,
                decompositions=select_decomp_table(),
                keep_inference_input_mutations=True,
            )
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(text_of(error))}"
            raise CaptureError(f"{name}: AOTAutograd fails on the training step: {reason}") from error
    if not found:
        raise CaptureError(f"{name}: AOTAutograd makes no joint graph of the training step")
    return found[0]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress logs and warnings of torch's compiler."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _static_names(program: fx.GraphModule) -> dict[str, str]:
    """Names of the placeholders that are parameters or buffers; torch numbers them in order (`primals_1`)."""
    order = enumerate(program.graph.find_nodes(op="placeholder"), 1)
    return {f"primals_{index}": node.meta["value_name"] for index, node in order if node.meta["static"]}


def lower_compiled(module: fx.GraphModule, name: str, names: Mapping[str, str]) -> tuple[ir.Graph, dict[str, int]]:
    """Convert a graph of AOTAutograd to an ir.Graph, and the places of its nodes among the outputs, by their names.

    Buffers that it updates are further outputs.

    Args:
        module: forward or backward graph.
        name: name of the graph.
        names: names in the model of its placeholders that are parameters or buffers.
    """
    values: list[ir.Value] = []
    ops: list[ir.Op] = []
    refs: dict[fx.Node, ir.Ref] = {}
    updated: list[ir.Ref] = []
    outputs: list[ir.Ref] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            if isinstance(node.meta.get("val"), torch.Tensor):
                refs[node] = ir.Ref(node.name)
                role = "param" if node.name in names else "input"
                values.append(ir.Value(node.name, type_of(node.meta["val"]), role))
        elif node.op == "output":
            outputs = [refs[item] for item in node.args[0] if isinstance(item, fx.Node) and item in refs]
        elif node.target is operator.getitem:
            source = node.args[0]
            if source in refs:
                refs[node] = ir.Ref(refs[source].name, node.args[1])
        elif isinstance(node.target, torch._ops.OpOverload) and (op := _lowered(node, str(len(ops)), refs)) is not None:
            refs[node] = ir.Ref(op.name)
            ops.append(op)
            if node.target is torch.ops.aten.copy_.default:
                updated.append(ir.Ref(op.name))
    unique = tuple(dict.fromkeys((*outputs, *updated)))
    order = {ref: place for place, ref in enumerate(unique)}
    places = {node.name: order[ref] for node, ref in refs.items() if ref in order and node.op == "call_function"}
    return drop_dead_code(ir.Graph(name, tuple(values), tuple(ops), unique)), places


def _lowered(node: fx.Node, name: str, refs: dict[fx.Node, ir.Ref]) -> ir.Op | None:
    """Operator of a node; None for one that makes no tensor."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)  # checked by the caller
    kinds = _types(node.meta.get("val"))
    if not kinds:
        return None
    where = _module(node)
    if target is torch.ops.aten.copy_.default:  # the value is written where the buffer is, which is not read
        source = node.args[1]
        assert isinstance(source, fx.Node)
        return ir.Op(name, "clone", (("self", refs[source]),), kinds, where)
    base = operator_name(target._schema.name)
    if base in _RENAMED:
        return _renamed(node, name, _RENAMED[base], kinds, where, refs)
    overload = "" if target._overloadname == "default" else f".{target._overloadname}"
    args = tuple((key, argument(value, refs)) for key, value in named_arguments(node))
    return ir.Op(name, base + overload, args, kinds, where)


def _renamed(
    node: fx.Node, name: str, base: str, kinds: tuple[ir.TensorType, ...], where: str, refs: dict[fx.Node, ir.Ref]
) -> ir.Op:
    given = [refs[item] for item in node.all_input_nodes if item in refs]
    args: tuple[tuple[str, ir.Arg], ...] = tuple(("self", ref) for ref in given[:1])
    if base == "_to_copy":
        args += (("dtype", f"torch.{kinds[0].dtype}"),)
    return ir.Op(name, base, args, kinds, where)


def _types(value: Any) -> tuple[ir.TensorType, ...]:
    """Types of the results of a node; none if it makes no tensor."""
    if isinstance(value, torch.Tensor):
        return (type_of(value),)
    return results_of(value) if isinstance(value, (tuple, list)) else ()


def _module(node: fx.Node) -> str:
    """Path of the module that an operator serves; of a gradient, the module of the operator that it belongs to."""
    stack = node.meta.get(_STACK) or node.meta.get(f"fwd_{_STACK}") or {}
    path = next(reversed(stack), "") if stack else ""
    return written_path(str(path))
