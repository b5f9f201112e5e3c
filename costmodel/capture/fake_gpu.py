"""Fake tensors on a GPU, for models that ask for one, on a machine that may have none.

Torch's fake tensors have a device, and operators on them need none. Only a device without an index, as in
`x.to("cuda")` and `x.cuda()`, makes torch ask the driver for the current one; it gets index 0 here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from costmodel.zoo.gpu_stand_in import GPU


@contextmanager
def fake_gpu() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Context in which models run on fake tensors on a GPU; yields a function that makes one like a given tensor."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def like(tensor: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=GPU)

    with ExitStack() as around:
        for owner, name, function in _REPLACED:
            if owner is FakeTensor or hasattr(owner, name):  # private to torch
                around.enter_context(patch.object(owner, name, function, create=True))
        around.enter_context(mode)
        yield like


def as_fake(tensor: torch.Tensor) -> torch.Tensor:
    """Fake tensor, on its own device, for a real one that meets fake ones, such as a plain attribute of a module."""
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if mode is None or isinstance(tensor, FakeTensor):
        return tensor
    with _disable_current_modes():  # no operator of the model
        fake: torch.Tensor = mode.from_tensor(tensor)
    return fake


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    options = {key: _indexed(value) for key, value in kwargs.items()}
    result: torch.Tensor = torch.Tensor.to(tensor, *map(_indexed, args), **options)
    return result


def _cuda(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return torch.Tensor.to(tensor, GPU)


def _indexed(value: Any) -> Any:
    """The device of a GPU with an index; any other value as it is."""
    return GPU if value in ("cuda", torch.device("cuda")) else value


_REPLACED = (
    (FakeTensor, "to", _to),
    (FakeTensor, "cuda", _cuda),
    (getattr(torch, "accelerator", None), "_get_device_index", lambda *_, **__: 0),
    (torch._C, "_accelerator_synchronizeDevice", lambda *_: None),
    (torch.cuda, "_lazy_init", lambda: None),
    (torch._C, "_cuda_synchronize", lambda: None),
    (torch._C, "_cuda_getDevice", lambda: 0),
    (torch.cuda, "_exchange_device", lambda *_: 0),
    (torch.cuda, "_maybe_exchange_device", lambda *_: 0),
)
"""Methods and functions that would ask the driver, in any build of torch. Dynamo's tables have none of them."""
