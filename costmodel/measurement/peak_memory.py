"""Peak memory of one forward pass or one training step, measured: the reference that predictions are held against.

On CUDA the allocator's own counter is read. On the CPU, which has none, a dispatch mode watches the storages of all
tensors that operators make and counts them as CUDA's allocator would: each rounded up to `ROUNDING` bytes, alive until
the last tensor on it, or the last node of autograd that saved it, lets go.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costmodel.capture.intercepts import unrolled_attention
from costmodel.memory.storages import rounded


class StorageWatch(TorchDispatchMode):
    """Counts the bytes of live storages while operators run.

    Attributes:
        live_bytes: of the storages now alive.
        peak_bytes: the most that were alive at once.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.live_bytes = 0
        self.peak_bytes = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def watch(self, tensors: Iterable[object]) -> None:
        """Counts the storages of these tensors, those that are not counted yet."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._alive:
            return
        nbytes = rounded(storage.nbytes())
        self.live_bytes += nbytes

        def forget(_: object) -> None:
            del self._alive[key]
            self.live_bytes -= nbytes

        self._alive[key] = weakref.ref(storage, forget)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.watch(tree_leaves(result))
        return result


def inference_peak_bytes(module: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """The peak of one forward pass under `torch.no_grad()`: parameters, buffers and inputs included.

    Args:
        module: in evaluation mode, on the device that is measured.
        inputs: on the same device.
    """
    with torch.no_grad():
        return _peak_bytes(module, inputs, lambda: module(*inputs))


def training_peak_bytes(module: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """The peak of one forward and backward pass of the sum of all outputs; gradients start as None and stay.

    Args:
        module: in training mode, on the device that is measured.
        inputs: on the same device.
    """

    def step() -> object:
        outputs = floating_outputs(module(*inputs))
        torch.autograd.backward(outputs, [torch.ones((), device=item.device).expand_as(item) for item in outputs])
        return outputs

    for parameter in module.parameters():
        parameter.grad = None
    return _peak_bytes(module, inputs, step)


def floating_outputs(result: object) -> list[torch.Tensor]:
    """The tensors of a forward pass's result that a loss can be made of."""
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.requires_grad]


def _peak_bytes(module: nn.Module, inputs: Sequence[torch.Tensor], step: Callable[[], object]) -> int:
    gc.collect()
    if inputs[0].is_cuda:
        step()  # libraries make their workspaces, and the measured step finds them
        for parameter in module.parameters():
            parameter.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()
    watch = StorageWatch()
    watch.watch([*module.parameters(), *module.buffers(), *inputs])
    with watch, unrolled_attention():
        step()
    return watch.peak_bytes
