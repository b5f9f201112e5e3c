"""Inputs of a module: arguments of a forward pass, and checks of modules and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils._pytree import keystr, tree_leaves, tree_leaves_with_path, tree_map_only

from costmodel.capture.meta_tensors import acts_on_operators
from costmodel.checks import shown
from costmodel.errors import RequestError
from costmodel.zoo.placement import is_compiled, wraps_others


@dataclass(frozen=True, slots=True)
class Arguments:
    """Positional and keyword arguments of a forward pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Inputs) -> Arguments:
        """Convert inputs to the arguments of a call.

        Raises:
            RequestError: not a sequence or mapping; a single tensor would be split along its first dimension.
        """
        if isinstance(inputs, Arguments):
            return inputs
        if isinstance(inputs, Mapping):
            return cls((), dict(inputs))
        if fault := _container_fault(inputs):
            raise RequestError(f"inputs {fault}")
        return cls(tuple(inputs))

    def passed_to(self, function: Callable[..., Any]) -> Any:
        """Call a function with these arguments."""
        return function(*self.args, **self.kwargs)

    def like(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
        """Replace each tensor, at any depth, by the result of `change`; other values stay."""
        args, kwargs = tree_map_only(torch.Tensor, change, (self.args, self.kwargs))
        return Arguments(args, kwargs)

    def are_tensors(self) -> bool:
        """Whether all arguments are positional tensors, which need no flattening."""
        return not self.kwargs and all(isinstance(arg, torch.Tensor) for arg in self.args)

    def tensors(self) -> list[torch.Tensor]:
        """Tensors in the arguments, at any depth, in order."""
        if self.are_tensors():
            return list(self.args)
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]


Inputs = Sequence[Any] | Mapping[str, Any] | Arguments
"""Positional inputs, keyword inputs, or both."""


def module_fault(module: object) -> str | None:
    """Describe why an argument is no model with dense parameters and buffers; None if it is."""
    if not isinstance(module, nn.Module):
        return f"must be an instance of nn.Module, not {shown(module)}"
    if fault := _wrapper_fault(module):
        return fault
    if not {"_parameters", "_buffers", "_modules"} <= vars(module).keys():
        return f"is a {type(module).__name__} that was not initialised; call super().__init__() in its __init__"
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if special := _special(tensor):
            return f"has {name}, a {special} tensor, which is not captured; convert it to a dense one"
    return None


def _wrapper_fault(module: nn.Module) -> str | None:
    """Describe what was made of a module that should be given itself; None if it is the module."""
    kind = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        return f"is TorchScript ({kind}); give the nn.Module that it was made from"
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return f"is a {kind}, which runs on several devices; give the nn.Module in it, its attribute .module"
    if is_compiled(module):
        return "was compiled by torch.compile; give the nn.Module that it was made from, its attribute ._orig_mod"
    return None


def inputs_fault(inputs: Any) -> str | None:
    """Describe why an argument is no tuple or mapping of inputs with dense tensors; None if it is."""
    if isinstance(inputs, Arguments):
        inputs = (inputs.args, inputs.kwargs)
    if fault := None if isinstance(inputs, Mapping) else _container_fault(inputs):
        return fault
    if isinstance(inputs, Mapping) and (odd := [key for key in inputs if not isinstance(key, str)]):
        return f"are keyword inputs by name; {shown(odd[0])} is no name"
    try:
        places = tree_leaves_with_path(dict(inputs) if isinstance(inputs, Mapping) else tuple(inputs))
    except RecursionError:
        return "are nested too deep"
    return next((f"{keystr(place)} {fault}" for place, leaf in places if (fault := _leaf_fault(leaf))), None)


def inputs_in_a_row_fault(inputs: object) -> str | None:
    """Describe why an argument is no tuple of positional inputs; None if it is."""
    if isinstance(inputs, (Mapping, Arguments)):
        return f"must be a tuple of positional inputs, not {shown(inputs)}"
    return inputs_fault(inputs)


def _container_fault(inputs: object) -> str | None:
    if isinstance(inputs, torch.Tensor):
        return "are a tuple of positional inputs, or a dict; write (x,) for one tensor"
    if isinstance(inputs, (str, bytes, bytearray)) or not isinstance(inputs, Sequence):
        return f"are a tuple of positional inputs, or a dict; not a {type(inputs).__name__}"
    return None


def _leaf_fault(leaf: object) -> str | None:
    if isinstance(leaf, np.ndarray):
        return "is a NumPy array; convert it with torch.from_numpy"
    special = _special(leaf) if isinstance(leaf, torch.Tensor) else ""
    return f"is a {special} tensor, which is not captured; convert it to a dense one" if special else None


def _special(tensor: torch.Tensor) -> str:
    """Kind of a tensor that is quantized, nested, sparse, or of a class that hides its operators; empty if dense."""
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.").lstrip("_")
    hidden = acts_on_operators(type(tensor)) and not wraps_others(tensor) and not is_fake(tensor)
    return type(tensor).__name__ if hidden else ""
