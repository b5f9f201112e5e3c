"""Tensors on meta, or on the CPU, in place of tensors on a GPU, for model code that asks for `cuda`.

Calls that would make a tensor on a GPU, or move one there, make it on the device that stands in. A meta tensor says
that it is on `cuda:0`, and `torch.cuda` answers as on a machine with a GPU. Code of torch itself gets true answers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device as default_device

from costmodel.torch_patches import replaced
from costmodel.zoo.source_files import is_installed

GPU = torch.device("cuda", 0)
META = torch.device("meta")
_NOT_MODELS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
"""Directories of code that needs true answers: torch and this package."""

_PASSING_ON = (__file__, str(Path(torch.__file__).parent / "utils" / "_device.py"))
"""Files of function modes, which pass on calls of a model: this one's, and that of a default device."""

_ANSWERS: Mapping[Any, Any] = {
    torch.Tensor.device.__get__: GPU,
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]  # a descriptor of C
    torch.Tensor.is_meta.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: 0,
}
"""Answers of a meta tensor that stands for one on a GPU."""


class _Idle:
    """Stream or event of a GPU that is not there: a context manager whose methods do nothing and return 0."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> _Idle:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, _name: str) -> Callable[..., int]:
        return lambda *_, **__: 0


_OBJECTS = ("Event", "Stream", "current_stream", "default_stream", "stream", "device")
_NOTHING = ("empty_cache", "init", "ipc_collect", "reset_peak_memory_stats", "set_device", "synchronize")
_NUMBERS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_CUDA: Mapping[str, Any] = {
    "is_available": True,
    "is_bf16_supported": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_capability": (9, 0),
    "get_device_name": "GPU",
    **dict.fromkeys(_NUMBERS, 0),
    **dict.fromkeys(_NOTHING),
}
_ACCELERATOR: Mapping[str, Any] = {
    "is_available": True,
    "device_count": 1,
    "current_device_index": 0,
    "current_accelerator": torch.device("cuda"),
    "synchronize": None,
}
"""Answers of `torch.cuda` and `torch.accelerator` on a machine with one GPU; None where a call only acts."""


class GpuStandIn(TorchFunctionMode):
    """Function mode in which `stand_in` is the GPU."""

    def __init__(self, stand_in: torch.device = META) -> None:
        super().__init__()
        self._stand_in = stand_in

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if pretends(func, args, sys._getframe(1)):
            return _ANSWERS[func]
        func, args, kwargs = redirected(func, args, kwargs or {}, self._stand_in)
        return func(*args, **kwargs)


def pretends(func: Any, args: Sequence[Any], caller: FrameType) -> bool:
    """Whether a call asks a meta tensor for its device, from code of a model."""
    if func not in _ANSWERS or args[0].device.type != "meta":
        return False
    while caller.f_code.co_filename in _PASSING_ON and caller.f_back is not None:
        caller = caller.f_back
    return not caller.f_code.co_filename.startswith(_NOT_MODELS)


def answer(func: Any) -> Any:
    """Answer of a tensor on a GPU to a call for which `pretends` holds."""
    return _ANSWERS[func]


def redirected(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], stand_in: torch.device = META
) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """Call with a device that stands in for a GPU: the function, its positional and its keyword arguments."""
    if func is torch.Tensor.cuda:
        options = {key: value for key, value in kwargs.items() if key != "device"}
        return torch.Tensor.to, (args[0], stand_in), options
    if func in (torch.Tensor.pin_memory, torch.Tensor.record_stream):
        return _first, args, kwargs
    if any(isinstance(arg, torch.device) and arg.type == "cuda" for arg in args):
        args = [stand_in if isinstance(arg, torch.device) and arg.type == "cuda" else arg for arg in args]
    elif func is torch.Tensor.to and len(args) > 1 and _is_gpu(args[1]):
        args = (args[0], stand_in, *args[2:])
    if _is_gpu(kwargs.get("device")) or _defaults_to_gpu(func, kwargs):
        kwargs = {**kwargs, "device": stand_in}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    return func, args, kwargs


@contextmanager
def cuda_answers(*, with_streams: bool = False) -> Iterator[None]:
    """Answer questions to `torch.cuda` as on a machine with a GPU: on this thread, and to no installed package.

    Args:
        with_streams: whether streams and events do nothing, too. Their classes are hidden then, so no code may be
            imported that derives from them.
    """
    cuda = {**_CUDA, **dict.fromkeys(_OBJECTS, _Idle())} if with_streams else _CUDA
    with ExitStack() as patches:
        for module, answers in ((torch.cuda, cuda), (getattr(torch, "accelerator", None), _ACCELERATOR)):
            for name, value in answers.items():
                if module is not None and hasattr(module, name):
                    patches.enter_context(replaced(module, name, _answering(module, name, value)))
        yield


def _answering(module: ModuleType, name: str, value: Any) -> Callable[..., Any]:
    original, owner = getattr(module, name), threading.get_ident()

    def answered(*args: Any, **kwargs: Any) -> Any:
        installed = is_installed(sys._getframe(1).f_code.co_filename)  # what it imports must not depend on this
        if installed or threading.get_ident() != owner:
            return original(*args, **kwargs)
        return value

    return answered


def _first(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return tensor


def _is_gpu(device: object) -> bool:
    """Whether a device is a GPU: `cuda`, `cuda:0`, or an index."""
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _defaults_to_gpu(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function makes a tensor on the default device, which is a GPU (`torch.set_default_device`)."""
    current = default_device.CURRENT_DEVICE
    if current is None or current.type != "cuda" or kwargs.get("device") is not None:
        return False
    return func in default_device._device_constructors()
