"""State of modules: copied to meta before a forward pass, restored after it; notification of submodule calls."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeGuard

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from costmodel.capture.meta_tensors import meta_like
from costmodel.concurrency import is_recording, recording
from costmodel.errors import CaptureError

Container = dict[Any, Any] | list[Any] | set[Any]


class Scoped(Protocol):
    """Listener for calls of submodules."""

    def enter(self, child: nn.Module) -> None:
        """Note that a submodule starts to run."""

    def leave(self, child: nn.Module) -> None:
        """Note that a submodule has returned; submodules below it may have ended by a caught exception."""


def state_on_meta(module: nn.Module, training: bool) -> dict[str, torch.Tensor]:
    """Copy parameters and buffers to the meta device, by name; tied tensors stay tied.

    Parameters require a gradient if the module's do, in training always: torch chooses operators by that even without
    autograd (`matmul` folds its batch).

    Raises:
        CaptureError: a parameter has no shape yet.
    """
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    unmade = [key for key, tensor in named if is_lazy(tensor)]
    if unmade:
        raise CaptureError(f"the parameter {unmade[0]} is not initialised yet; run the module once before")
    twins = {id(tensor): meta_like(tensor) for _, tensor in named}
    for parameter in module.parameters():
        needed = parameter.is_floating_point() and (training or parameter.requires_grad)
        twins[id(parameter)].requires_grad_(needed)
    return {key: twins[id(tensor)] for key, tensor in named}


@contextmanager
def scopes(recorder: Scoped) -> Iterator[None]:
    """Record this thread with `recorder`, and notify it of each submodule that starts or returns."""

    def entered(child: nn.Module, *_: object) -> None:
        if is_recording(recorder):
            recorder.enter(child)

    def left(child: nn.Module, *_: object) -> None:
        if is_recording(recorder):
            recorder.leave(child)

    with recording(recorder), ExitStack() as hooks:
        hooks.callback(nn.modules.module.register_module_forward_pre_hook(entered).remove)
        hooks.callback(nn.modules.module.register_module_forward_hook(left).remove)
        yield


@contextmanager
def without_scopes() -> Iterator[None]:
    """Context without the hooks of `scopes`, which Dynamo would trace; those of others stay.

    They are registered while a module predicts another in its forward pass, and in a process forked during a capture.
    """
    registries = (nn.modules.module._global_forward_pre_hooks, nn.modules.module._global_forward_hooks)
    with ExitStack() as restored:
        for hooks in registries:
            for key in [key for key, hook in hooks.items() if getattr(hook, "__module__", "") == __name__]:
                restored.callback(hooks.__setitem__, key, hooks.pop(key))
        yield


@contextmanager
def untouched(module: nn.Module) -> Iterator[Callable[[], bool]]:
    """Restore attributes, parameters, buffers, dicts and lists of modules after a forward pass.

    A module that caches computed tensors would otherwise keep tensors without data for later passes. The yielded
    function returns whether anything was assigned since its last call. Modules compiled in place (`module.compile()`)
    run as they were written.
    """
    before = _held_by(module)
    for child in module.modules():
        vars(child).pop("_compiled_call_impl", None)
    latest = _held_by(module)

    def has_changed() -> bool:
        nonlocal latest
        last, latest = latest, _held_by(module)
        return len(last) != len(latest) or not all(map(_is_same, last, latest))

    try:
        yield has_changed
    finally:
        for container, contents in before:
            _refill(container, contents)


def _held_by(module: nn.Module) -> list[tuple[Container, Container]]:
    """Containers of modules, attributes first, with copies of their contents."""
    holders: list[Container] = []
    for child in module.modules():
        holders += [vars(child), *filter(_is_container, vars(child).values())]
    return [(holder, holder.copy()) for holder in holders]


def _is_container(value: object) -> TypeGuard[Container]:
    return type(value) in (dict, OrderedDict, list, set)


def _is_same(one: tuple[Container, Container], other: tuple[Container, Container]) -> bool:
    """Whether two snapshots are of one container with the same objects."""
    (first, then), (second, now) = one, other
    return first is second and list(map(id, _items(then))) == list(map(id, _items(now)))


def _items(container: Container) -> Iterable[Any]:
    return itertools.chain(*container.items()) if isinstance(container, dict) else container


def _refill(container: Container, contents: Any) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(contents)
    else:
        container.update(contents)
