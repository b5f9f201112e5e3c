"""Dynamic sizes of a graph -> the sizes of the call that was traced, as guards, for a plan of its own.

After a second batch size Dynamo makes a graph with symbols in place of sizes. A plan is for one shape. So the sizes of
the traced call become guards, as if the model's code had read them as numbers, and the next size is another graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import fx
from torch._guards import CompileContext, TracingContext

NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
MOST_SIZES = 8
"""Most graphs of one code object for some sizes alone: each holds its inputs and outputs in a CUDA graph."""
_MARKS = tuple(f"_dynamo_{kind}_indices" for kind in ("dynamic", "weak_dynamic", "unbacked", "strict_unbacked"))
"""Attributes by which torch marks tensors with dynamic sizes for a user."""
_SETTINGS = ("dynamic_sources", "dynamic_values", "unbacked_sources")
"""Settings in `torch.compiler.config` by which a user names what is dynamic; some releases have them all."""


def are_dynamic(arguments: Sequence[Any]) -> bool:
    """Whether there are symbols in place of sizes among a graph's arguments."""
    return any(isinstance(value, torch.SymInt) for value in arguments)


def have_values(arguments: Sequence[Any]) -> bool:
    """Whether all sizes are known in the traced call; a size that depends on values of tensors is not."""
    return all(value is not None for value in traced_values(arguments))


def reason_to_stay_dynamic(arguments: Sequence[Any]) -> str:
    """Reason to leave the sizes of a graph as they are; empty if none is dynamic or each may become a guard.

    Args:
        arguments: those of the traced call, symbols among them.
    """
    if any(isinstance(value, NUMBERS) and not isinstance(value, torch.SymInt) for value in arguments):
        return "an input is a number that is no size, and a plan is for one value"
    if not are_dynamic(arguments):
        return ""
    _, made = place_of_graph()
    reasons = {
        "as asked for": are_wanted(),
        "and depend on values": not have_values(arguments),
        "and torch._dynamo.config.error_on_recompile forbids a graph for each": torch._dynamo.config.error_on_recompile,
        f"and of one code at most {most_sizes()} graphs are made for one size each": made >= most_sizes(),
    }
    found = next((reason for reason, holds in reasons.items() if holds), "")
    return f"its sizes are dynamic, {found}" if found else ""


def most_sizes() -> int:
    """Most graphs of a code object that may each be for some sizes alone.

    The other half of Dynamo's limit is left for the dynamic graph, for size one, which never is dynamic, and for other
    reasons to compile again, such as another dtype.
    """
    config = torch._dynamo.config
    return int(min(MOST_SIZES, min(config.recompile_limit, config.accumulated_recompile_limit) // 2))


def traced_values(arguments: Sequence[Any]) -> list[Any]:
    """Arguments with numbers in place of symbols, those of the traced call; the sizes stay dynamic."""
    return [value.node.hint if isinstance(value, torch.SymInt) else value for value in arguments]


def make_static(gm: fx.GraphModule, arguments: Sequence[Any]) -> None:
    """Make all sizes of a graph's inputs guards; Dynamo collects guards until the backend returns."""
    for size in chain(arguments, _sizes(gm)):
        if isinstance(size, torch.SymInt):
            int(size)  # reading a symbol as a number is what makes a guard


def _sizes(gm: fx.GraphModule) -> Iterator[int | torch.SymInt]:
    for node in gm.graph.find_nodes(op="placeholder"):
        if isinstance(fake := node.meta.get("example_value"), torch.Tensor):
            yield from (*fake.shape, *fake.stride(), fake.storage_offset())


def are_wanted() -> bool:
    """Whether the user asked for dynamic sizes, by `dynamic=True`, marks on tensors, or names of sources.

    A guard on a size that is marked would be a violated constraint.
    """
    named = any(getattr(torch.compiler.config, setting, "") for setting in _SETTINGS)
    if named or not torch._dynamo.config.assume_static_by_default:
        return True
    context = TracingContext.try_get()
    return context is not None and any(
        any(getattr(tensor, mark, None) for mark in _MARKS) or any(map(_is_binding, _constraints(found)))
        for tensor, found in context.tensor_to_context.items()
    )


def _constraints(context: object) -> Iterator[object]:
    for name in ("constraint_sizes", "constraint_strides"):
        yield from getattr(context, name, None) or ()


def _is_binding(constraint: object) -> bool:
    """Whether a guard would violate a constraint; a dimension that Dynamo alone made dynamic has one that warns."""
    return constraint is not None and not getattr(constraint, "warn_only", False)


def place_of_graph() -> tuple[int, int]:
    """Number of the code object that Dynamo compiles, and of the graphs that it made of it before; -1 outside of it."""
    found = CompileContext.current_compile_id()
    if found is None or found.frame_id is None:
        return -1, 0
    return found.frame_id, found.frame_compile_id or 0
