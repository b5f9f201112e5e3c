"""Measured peak memory of one forward pass or one training step, the reference for predictions.

On CUDA it is the counter of the allocator. On the CPU, which has none, a dispatch mode tracks the storages of all
results and counts them as CUDA's allocator would: rounded up to `ROUNDING` bytes, and alive until the last tensor or
autograd node that refers to it is gone.
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
    """Count the bytes of live storages while operators run.

    Attributes:
        live_bytes: bytes of the storages alive now.
        peak_bytes: most bytes alive at once.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.live_bytes = 0
        self.peak_bytes = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def watch(self, tensors: Iterable[object]) -> None:
        """Count the storages of tensors, each storage once."""
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
    """Measure the peak of one forward pass under `torch.no_grad()`, with parameters, buffers and inputs.

    Args:
        module: in evaluation mode, on the device to measure.
        inputs: on the same device.
    """
    with torch.no_grad():
        return _peak_bytes(module, inputs, lambda: module(*inputs))


def training_peak_bytes(module: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Measure the peak of one forward and backward pass for the sum of all outputs; gradients start as None and stay.

    Args:
        module: in training mode, on the device to measure.
        inputs: on the same device.
    """

    def step() -> object:
        outputs = floating_outputs(module(*inputs))
        backward_of_sum(outputs)
        return outputs

    for parameter in module.parameters():
        parameter.grad = None
    return _peak_bytes(module, inputs, step)


def saved_activation_bytes(module: nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Measure the memory in use between a forward and a backward pass, beyond parameters, buffers and inputs.

    It holds what the pass saves, what checkpointing keeps, and the outputs.

    Args:
        module: in training mode, on the device to measure.
        inputs: on the same device.
    """
    gc.collect()
    if inputs[0].is_cuda:
        module(*inputs)  # libraries allocate workspaces before the measured pass
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        outputs = module(*inputs)
        torch.cuda.synchronize()
        nbytes = torch.cuda.memory_allocated() - before
        del outputs
        return nbytes
    watch = StorageWatch()
    watch.watch([*module.parameters(), *module.buffers(), *inputs])
    before = watch.live_bytes
    with watch, unrolled_attention():
        outputs = module(*inputs)
        nbytes = watch.live_bytes - before
    del outputs
    return nbytes


def backward_of_sum(outputs: Sequence[torch.Tensor]) -> None:
    """Backward pass of the sum of all outputs, which is not computed itself."""
    torch.autograd.backward(outputs, [torch.ones((), device=item.device).expand_as(item) for item in outputs])


def floating_outputs(result: object) -> list[torch.Tensor]:
    """Tensors of a forward pass's result that require gradients."""
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.requires_grad]


def _peak_bytes(module: nn.Module, inputs: Sequence[torch.Tensor], step: Callable[[], object]) -> int:
    gc.collect()
    if inputs[0].is_cuda:
        step()  # libraries allocate workspaces before the measured step
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
