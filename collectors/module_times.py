"""What each module of a model takes the host in eager execution, in the model and in its order.

A whole model's latency is one number, which a few dozen causes share. Here every module's `forward` is wrapped by a
clock: what it takes beyond the modules that it calls is told of one layer, or of the few operators that a block
applies itself. What the clock adds to a call is measured and taken off.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from collectors.whole_model import synchronize
from costmodel.python_stack import with_room

if TYPE_CHECKING:
    import torch

Event = tuple[int, int, int]
"""Which module was called, and when its call began and ended, nanoseconds. Events are in the order that calls end."""
PASSES, WARM = 20, 3
OVERHEAD_CALLS = 2000


@with_room
def module_times(module: torch.nn.Module, x: torch.Tensor, device: str) -> dict[str, tuple[str, float]]:
    """By module name: its class, and its host time in one pass beyond the modules that it calls, microseconds.

    The model's own name is empty. A module that is called several times has the sum. It is the median of PASSES
    passes, each of which finds the device idle.
    """
    modules = list(module.named_modules())
    passes: list[dict[int, float]] = []
    events: list[Event] = []
    overhead_us = _overhead_us()
    with _clocks(module, events):
        for index in range(WARM + PASSES):
            synchronize(device)
            events.clear()
            module(x)
            if index >= WARM:
                passes.append(own_times(events, overhead_us))
    synchronize(device)
    found = {}
    for index in sorted({index for one in passes for index in one}):
        name, one = modules[index]
        found[name] = type(one).__name__, round(statistics.median(own.get(index, 0.0) for own in passes), 3)
    return found


def own_times(events: Sequence[Event], overhead_us: float) -> dict[int, float]:
    """Microseconds of each module beyond the calls that it makes; of events that nest, in the order that they end.

    Args:
        events: calls, nanoseconds.
        overhead_us: what a clock adds to the module that calls it.
    """
    own: dict[int, float] = defaultdict(float)
    open_calls: list[tuple[int, int]] = []  # those ended whose caller has not: when each began, and how long it took
    for index, begin, end in events:
        inside = 0.0
        while open_calls and open_calls[-1][0] >= begin:
            inside += open_calls.pop()[1] / 1e3 + overhead_us
        own[index] += (end - begin) / 1e3 - inside
        open_calls.append((begin, end - begin))
    return dict(own)


@contextmanager
def _clocks(module: torch.nn.Module, events: list[Event]) -> Iterator[None]:
    """Every module's calls noted in a list, as long as the context lasts."""
    wrapped = [(one, _timed(one.forward, index, events)) for index, one in enumerate(module.modules())]
    for one, forward in wrapped:
        one.forward = forward
    try:
        yield
    finally:
        for one, _ in wrapped:
            del one.forward  # the class's is found again


def _timed(forward: Callable[..., Any], index: int, events: list[Event]) -> Callable[..., Any]:
    clock, note = time.perf_counter_ns, events.append

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = clock()
        result = forward(*args, **kwargs)
        note((index, begin, clock()))
        return result

    return timed


def _overhead_us() -> float:
    """What a clock adds to its caller beyond the call that it times, microseconds: found on a call of nothing."""
    events: list[Event] = []
    timed = _timed(_nothing, 0, events)
    begin = time.perf_counter_ns()
    for _ in range(OVERHEAD_CALLS):
        timed(None)
    took = time.perf_counter_ns() - begin
    plain = time.perf_counter_ns()
    for _ in range(OVERHEAD_CALLS):
        _nothing(None)
    took -= time.perf_counter_ns() - plain
    inside = sum(end - begin for _, begin, end in events)
    return max(0.0, took - inside) / OVERHEAD_CALLS / 1e3


def _nothing(_x: object) -> None:
    """Does nothing."""
