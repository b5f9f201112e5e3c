"""Device, precision and layout of a module and its inputs, as requested and not otherwise."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_map_only

from costmodel.errors import RequestError
from costmodel.zoo.request import Inputs, Request

CONVERTED = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
"""Dtypes that a requested precision replaces. Complex numbers, integers and 8-bit floats are the model's own."""


def wraps_others(tensor: torch.Tensor) -> bool:
    """Whether a tensor consists of tensors that its class lists, as quantised weights do (`__tensor_flatten__`)."""
    return bool(is_traceable_wrapper_subclass(tensor))


def own_precision(module: nn.Module) -> torch.dtype:
    """Dtype of the first parameter or buffer that a precision could convert; float32 without any."""
    tensors = (tensor for held in (module.parameters(), module.buffers()) for tensor in held)
    return next((tensor.dtype for tensor in tensors if tensor.dtype in CONVERTED), torch.float32)


def moved(module: nn.Module, device: torch.device, request: Request) -> nn.Module:
    """Move a module's tensors to a device, in place, with the requested precision and layout.

    `Module.to` would make real numbers of complex ones. Tensors that wrap others, such as quantised weights, keep their
    precision, and stay where they are if the device is meta: a capture reads no values.

    Raises:
        RequestError: a precision is requested for a module with such tensors.
    """
    wrapped = _first_wrapped(module)
    if wrapped and request.dtype is not None:
        raise RequestError(
            f"{wrapped} keeps its own precision, which --precision {request.precision} cannot convert; leave it out"
        )

    def on_device(tensor: torch.Tensor) -> torch.Tensor:
        if wraps_others(tensor):
            return tensor if device.type == "meta" else tensor.to(device)
        return tensor.to(device, _converted(tensor, request))

    if not (wrapped and device.type == "meta"):
        module = module._apply(on_device)
    if request.channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def moved_inputs(inputs: Inputs, request: Request) -> Inputs:
    """Copy inputs to the meta device, with the requested precision and layout."""

    def on_meta(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach().to("meta", _converted(tensor, request))
        images = request.channels_last and tensor.dim() == 4
        return tensor.contiguous(memory_format=torch.channels_last) if images else tensor

    return tree_map_only(torch.Tensor, on_meta, inputs)  # type: ignore[no-any-return]


def _converted(tensor: torch.Tensor, request: Request) -> torch.dtype:
    return request.dtype if request.dtype is not None and tensor.dtype in CONVERTED else tensor.dtype


def _first_wrapped(module: nn.Module) -> str:
    """Name and class of the first tensor that wraps others; empty without any."""
    named = (pair for held in (module.named_parameters(), module.named_buffers()) for pair in held)
    return next((f"{name} ({type(tensor).__name__})" for name, tensor in named if wraps_others(tensor)), "")


def is_compiled(module: object) -> bool:
    """Whether an object is what torch.compile makes of a module, which is its attribute `_orig_mod`."""
    return type(module).__name__ == "OptimizedModule" and "_orig_mod" in getattr(module, "_modules", ())


def as_written(module: nn.Module) -> nn.Module:
    """The module that torch.compile was given; parts that were compiled in place (`module.compile()`) no longer are."""
    if is_compiled(module):
        module = vars(module)["_modules"]["_orig_mod"]
    for part in module.modules():
        vars(part).pop("_compiled_call_impl", None)
    return module
