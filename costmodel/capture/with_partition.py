"""Capture of a forward pass together with the partition that torch.compile makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from costmodel.capture.dynamo import Place, trace_with_dynamo
from costmodel.capture.dynamo_listener import DynamoTrace
from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.model_output import muted, stdout_to_stderr
from costmodel.capture.read_values import ReadValues, read_values
from costmodel.capture.trace import capture
from costmodel.errors import CaptureError, CostmodelError, DataDependentError, first_line, text_of
from costmodel.ir import Graph, Partition
from costmodel.ir.sections import partitioned

RealCall = Callable[[], tuple[nn.Module, Inputs]]
"""Factory of the module and inputs with real tensors, for a pass that reads their values."""


def capture_with_partition(
    module: nn.Module,
    inputs: Inputs,
    name: str,
    *,
    real: RealCall | None = None,
    check: bool = True,
    is_whole: bool = False,
    fast_path: bool = True,
    compiled: nn.Module | None = None,
    amp: str | None = None,
) -> Graph:
    """Capture a forward pass, and have Dynamo divide it.

    A pass that reads values runs once for real, and Dynamo then works on real tensors too. What the model prints goes
    to standard error, once.

    Args:
        module: module in evaluation mode, with real or meta parameters.
        inputs: positional inputs, or a mapping of keyword inputs.
        name: name of the graph.
        real: factory of the module with real parameters and of real inputs; None if `module` and `inputs` are real or
            there are none.
        check: whether Dynamo divides the pass; else `Graph.partition` is None.
        is_whole: whether the pass is known to be one graph, so that Dynamo is not needed.
        fast_path: whether multi-head attention may be one operator, its fast path.
        compiled: the module that is compiled, where `module` was converted from it and lost its breaks; None if it is
            `module` itself.
        amp: precision of an autocast region around the pass, `float16` or `bfloat16`; None for the caller's, if any.

    Raises:
        CaptureError: the forward pass failed.
    """
    with stdout_to_stderr():
        graph = capture(module, inputs, name, partial=True, fast_path=fast_path, amp=amp)
    values = None
    if lacks_values(graph):
        real = real or given_call(module, inputs)
        values = None if real is None else _values_of(real)
    if values is not None:
        graph = _captured_again(graph, module, inputs, values, fast_path, amp)
    if check and is_whole and not graph.breaks:
        return replace(graph, partition=Partition((0,), 1))
    return _divided(graph, compiled or module, inputs, real, values is not None) if check else graph


def capture_whole(
    module: nn.Module,
    inputs: Inputs,
    name: str,
    *,
    real: RealCall | None = None,
    check: bool = True,
    is_whole: bool = False,
    fast_path: bool = True,
    amp: str | None = None,
) -> Graph:
    """Capture a forward pass as `capture_with_partition`, and refuse it if it needs values that no real run gives.

    Raises:
        DataDependentError: it needs the values of a tensor.
    """
    how: dict[str, Any] = {"fast_path": fast_path, "amp": amp}
    graph = capture_with_partition(module, inputs, name, real=real, check=check, is_whole=is_whole, **how)
    return capture(module, inputs, name, **how) if lacks_values(graph) else graph


def capture_step(module: nn.Module, inputs: Inputs, name: str, real: RealCall | None = None) -> Graph:
    """Capture the forward pass of a training step, with values of a real run in evaluation mode if it reads any.

    Raises:
        CaptureError: the forward pass failed.
        DataDependentError: it needs the values of a tensor, and no real run gives them.
    """
    try:
        with stdout_to_stderr():
            return capture(module, inputs, name, training=True)
    except DataDependentError:
        real = real or given_call(module, inputs)
        values = None if real is None else _values_of(real)
        if values is None:
            raise
        with muted():
            return capture(module, inputs, name, training=True, values=values)


def lacks_values(graph: Graph) -> bool:
    """Whether a captured graph ends at, or guesses, something that depends on the values of tensors."""
    return any(item.kind != "cut" for item in graph.breaks)


def given_call(module: nn.Module, inputs: Inputs) -> RealCall | None:
    """Factory that returns module and inputs themselves; None if a tensor has no data."""
    tensors = [*module.parameters(), *module.buffers(), *Arguments.of(inputs).tensors()]
    return None if any(tensor.is_meta for tensor in tensors) else lambda: (module, inputs)


def _values_of(real: RealCall) -> ReadValues | None:
    """Values that a real run reads; None if it fails."""
    try:
        with muted():
            return read_values(*real())
    except CostmodelError:
        return None


def _captured_again(
    graph: Graph, module: nn.Module, inputs: Inputs, values: ReadValues, fast_path: bool, amp: str | None
) -> Graph:
    """The graph captured with the values of a real run; the given graph if the pass then takes another way."""
    try:
        with muted():
            return capture(module, inputs, graph.name, partial=True, fast_path=fast_path, values=values, amp=amp)
    except CaptureError:
        return graph


def _lacks_gpu(error: BaseException) -> bool:
    """Whether an error is due to a model that asks for a GPU, on a machine without one: Dynamo cannot trace it here."""
    asks = any(word in text_of(error).lower() for word in ("cuda", "nvidia", "accelerator"))
    return not torch.cuda.is_available() and (asks or (error.__cause__ is not None and _lacks_gpu(error.__cause__)))


def _divided(graph: Graph, module: nn.Module, inputs: Inputs, real: RealCall | None, needs_values: bool) -> Graph:
    """The graph with the partition that Dynamo makes; the given graph where Dynamo lacks values or real tensors."""
    if lacks_values(graph):
        return graph
    try:
        found = _dynamo_trace(module, inputs, real, needs_values)
    except CostmodelError:  # no real tensors can be made
        found = None
    except Exception as error:  # noqa: BLE001 - eager execution succeeded, so compilation fails or needs a GPU
        found = _traced_on_fake_gpu(module, inputs)
        if found is None and not _lacks_gpu(error):
            failure = f"{type(error).__name__}: {first_line(text_of(error))}"
            return replace(graph, partition=Partition((), 0, failure))
    if found is None:
        return graph
    numbers = tuple(section.graph for section in found.sections)
    partition = Partition(numbers, found.compiled, recompiled=found.recompiled, reads_kept=found.reads_kept)
    divided = partitioned(graph, _renumbered(partition), [section.ops for section in found.sections])
    return replace(divided, breaks=found.breaks)


def _traced_on_fake_gpu(module: nn.Module, inputs: Inputs) -> DynamoTrace | None:
    """Dynamo's view of a pass that asks for a GPU; None if it needs a true one, such as for an event."""
    if torch.cuda.is_available():
        return None
    try:
        return trace_with_dynamo(module, inputs, Place.FAKE_GPU)
    except Exception:  # noqa: BLE001 - whatever the model does without a GPU
        return None


def _dynamo_trace(module: nn.Module, inputs: Inputs, real: RealCall | None, needs_values: bool) -> DynamoTrace | None:
    """Dynamo's view of the pass; None if it fails on meta tensors and there are no real ones to try.

    A break on meta tensors may be due to them (`torch.is_autocast_enabled(x.device.type)`), so real ones decide.
    """
    if needs_values and real is not None:
        return trace_with_dynamo(*real(), place=Place.GIVEN)
    try:
        found = trace_with_dynamo(module, inputs)
    except Exception:  # noqa: BLE001 - an error of compilation, or of meta tensors
        real = real or given_call(module, inputs)
        return None if real is None else trace_with_dynamo(*real(), place=Place.GIVEN)
    if not found.breaks or (real := real or given_call(module, inputs)) is None:
        return found
    try:
        return trace_with_dynamo(*real(), place=Place.GIVEN)
    except Exception:  # noqa: BLE001 - such as a model that asks for a GPU
        return found


def _renumbered(partition: Partition) -> Partition:
    """The partition with graphs numbered in the order in which the call enters them."""
    order: dict[int, int] = {}
    for number in partition.sections:
        if number is not None:
            order.setdefault(number, len(order))
    sections = tuple(None if number is None else order[number] for number in partition.sections)
    return replace(partition, sections=sections)
