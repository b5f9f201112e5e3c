"""Graphs that Dynamo makes of a forward pass: where it breaks, what it gives up, and what runs eagerly in between.

The module runs under `torch._dynamo` with a backend that compiles nothing, on meta tensors where it reads no values,
until a call compiles no further graph. A dispatch mode logs the ATen operators of each call by the graph that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import TypeAlias
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.utils import stateless
from torch.utils import _python_dispatch

from costmodel.capture.dynamo_caches import apart, unchanged_caches
from costmodel.capture.dynamo_listener import DynamoTrace, Listener
from costmodel.capture.fake_gpu import fake_gpu
from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.meta_tensors import meta_like
from costmodel.capture.model_output import muted
from costmodel.capture.module_state import untouched, without_scopes
from costmodel.capture.spared_work import spared_work
from costmodel.concurrency import takes_turns
from costmodel.torch_patches import originals

MOST_CALLS = 10
"""Calls in which a module must come to rest: Dynamo compiles a function at most 8 times, then leaves it as it is."""
_MODE_FLAGS = (
    "_is_in_torch_dispatch_mode",
    "_is_in_non_infra_torch_dispatch_mode",
    "_is_in_any_mode_without_ignore_compile_internals",
)
_Like: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


class Place(Enum):
    """Tensors that a traced module runs on: on meta, on a GPU that is not there, or those that are given."""

    META = "meta"
    FAKE_GPU = "fake GPU"
    GIVEN = "given"


@takes_turns
def trace_with_dynamo(module: nn.Module, inputs: Inputs, place: Place = Place.META) -> DynamoTrace:
    """Run a module under Dynamo, without compiling its graphs. The module and Dynamo's caches are unchanged afterwards.

    Args:
        module: module in evaluation mode, whose eager forward pass succeeds.
        inputs: positional inputs, or a mapping of keyword inputs.
        place: tensors to run on; given ones are copied where they may be written.

    Raises:
        Exception: any error that compilation raises, or the forward pass on these tensors.
    """
    with ExitStack() as around:
        for context in (
            originals(),
            unchanged_caches(),
            untouched(module),
            without_scopes(),
            _without_modes(),
            muted(),
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
        ):
            around.enter_context(context)
        like = around.enter_context(fake_gpu()) if place is Place.FAKE_GPU else meta_like
        state = _state(module, None if place is Place.GIVEN else like)
        call = Arguments.of(inputs).like(torch.clone if place is Place.GIVEN else like)
        around.enter_context(stateless._reparametrize_module(module, state, tie_weights=True))
        return _listened(Listener(), module, call)


@contextmanager
def _without_modes() -> Iterator[None]:
    """Context without the dispatch modes of outer calls, such as the one that records a module that predicts another.

    Torch's flags of modes are of the whole process, and stay set in one forked while another thread is in a mode.
    """
    with ExitStack() as around:
        around.enter_context(_python_dispatch._disable_current_modes())
        for flag in _MODE_FLAGS:
            if hasattr(_python_dispatch, flag):  # private to torch
                around.enter_context(patch.object(_python_dispatch, flag, False))
        yield


def _state(module: nn.Module, like: _Like | None) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name: twins made by `like`, or the parameters themselves and copies of buffers."""
    made: dict[int, torch.Tensor] = {}
    for parameter in module.parameters():
        made[id(parameter)] = nn.Parameter(like(parameter), parameter.requires_grad) if like else parameter
    for buffer in module.buffers():
        made[id(buffer)] = like(buffer) if like else buffer.clone()
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: made[id(tensor)] for name, tensor in named}


def _listened(listener: Listener, module: nn.Module, call: Arguments) -> DynamoTrace:
    """Call a module under Dynamo until a call compiles nothing, which is the one that is logged."""
    import torch._dynamo as dynamo

    with spared_work(listener.backend), listener.hearing():
        compiled = dynamo.optimize(listener.backend, **apart())(module)
        for number in range(MOST_CALLS):
            before = listener.compiled
            listener.begin_call()
            with listener:
                call.passed_to(compiled)
            if number and listener.compiled == before:
                break
    return listener.trace()
