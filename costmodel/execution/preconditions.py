"""Preconditions of running a plan: one device, the module's own parameters, and no foreign forward hooks."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.shared_module import FORWARD_HOOKS
from costmodel.errors import PlanError


def device_of(module: nn.Module, inputs: Inputs) -> torch.device:
    """Device of a module's parameters and buffers; of its inputs if it has none.

    Raises:
        PlanError: there are several devices, or only the meta device.
    """
    held = [*module.parameters(), *module.buffers()]
    devices = {tensor.device for tensor in held or Arguments.of(inputs).tensors()}
    if len(devices) != 1 or torch.device("meta") in devices:
        found = ", ".join(sorted(map(str, devices))) or "no device"
        raise PlanError(f"the module's parameters must be on one device to run there; they are on {found}")
    return devices.pop()


def named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by each of their names."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def has_substitutes(module: nn.Module) -> bool:
    """Whether plain tensors replace parameters, as during a `torch.func.functional_call`."""
    return any(not isinstance(tensor, nn.Parameter) for tensor in module.parameters())


def refuse_hooks(module: nn.Module) -> None:
    """Refuse forward hooks that are not part of the model, for a plan calls no submodule and would not run them.

    Hooks of torch (`weight_norm`, `prune`) and methods of the model's modules are part of the model.
    """
    own = set(map(id, module.modules()))
    for name, child in module.named_modules():
        for hook in (hook for kind in FORWARD_HOOKS for hook in getattr(child, kind).values()):
            if not _is_of_the_model(hook, own):
                raise PlanError(f"{name or 'the module'} has a forward hook, which a plan would not run; remove it")


def _is_of_the_model(hook: Any, modules: set[int]) -> bool:
    while isinstance(hook, functools.partial):
        hook = hook.func
    origin = getattr(hook, "__module__", None) or ""
    return id(getattr(hook, "__self__", None)) in modules or origin.partition(".")[0] == "torch"
