"""Ways to run a graph: by its plan, by Inductor, eagerly; each as a callable, or the reason why it does not work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._guards import tracing

from costmodel.concurrency import turn_within
from costmodel.errors import own_words
from costmodel.execution.out_of_memory import shortage_behind
from costmodel.execution.torch_settings import without_autocast

Run = Callable[..., Any]
PATIENCE_S = 20.0
"""Longest wait for another thread that captures: it may itself wait for Dynamo, which waits for the backend."""


class BusyError(RuntimeError):
    """Another thread captures or applies a module for longer than PATIENCE_S."""


@dataclass(frozen=True, slots=True)
class Built:
    """Result of building one way to run a graph.

    Attributes:
        run: takes the arguments of the graph; None if building failed.
        build_s: seconds that building took.
        fault: reason of a failure in words.
        short: whether memory was short.
    """

    run: Run | None
    build_s: float
    fault: str = ""
    short: bool = False


def built(make: Callable[[], Run]) -> Built:
    """Build one way; an exception of whatever kind becomes a fault, except one by which Dynamo traces again."""
    begin = time.perf_counter()
    try:
        run = make()
    except TensorifyScalarRestartAnalysis:
        raise
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything; another way runs the graph
        return Built(None, time.perf_counter() - begin, own_words(error), shortage_behind(error) is not None)
    return Built(run, time.perf_counter() - begin)


def by_inductor(gm: fx.GraphModule, arguments: Sequence[Any]) -> Run:
    """Compile a graph as torch.compile does by default; Inductor takes the graph over and may change it."""
    from torch._inductor.compile_fx import compile_fx

    from costmodel.execution.inductor_compile import share_cache

    share_cache()
    compiled: Any = compile_fx(gm, list(arguments))  # typed as a union; a callable here
    return compiled  # type: ignore[no-any-return]


@contextlib.contextmanager
def apart_from_dynamo() -> Iterator[None]:
    """Context to capture and compile within a call of the backend: a turn, without Dynamo's fake tensors and autocast.

    Raises:
        BusyError: there was no turn within PATIENCE_S.
    """
    with turn_within(PATIENCE_S) as mine:
        if not mine:
            raise BusyError("another thread was capturing a module all the while")
        with tracing(None), without_autocast():
            yield
