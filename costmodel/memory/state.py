"""State of a module that is always in memory: parameters, buffers and inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.meta_tensors import named_parts
from costmodel.memory.storages import rounded


@dataclass(frozen=True, slots=True)
class State:
    """Bytes as the allocator counts them, tied tensors once, and names of the parameters that get a gradient."""

    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    trainable_bytes: int
    trainable: frozenset[str]

    @property
    def resident_bytes(self) -> int:
        """Bytes alive before, during and after a forward pass."""
        return self.parameter_bytes + self.buffer_bytes + self.input_bytes


def state_of(module: nn.Module, inputs: Inputs, *, all_trainable: bool = False) -> State:
    """Measure the state of a module and its inputs; tensors may be real, meta or fake.

    Args:
        module: parameters with `requires_grad` are trained.
        inputs: positional or keyword inputs, tensors also inside lists, tuples and dicts.
        all_trainable: whether to count every parameter as trained, for a module built only to be captured.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    trained = {name: tensor for name, tensor in named.items() if all_trainable or tensor.requires_grad}
    tensors = Arguments.of(inputs).tensors()
    return State(
        parameter_bytes=_nbytes(named.values()),
        buffer_bytes=_nbytes(module.buffers()),
        input_bytes=_nbytes(tensors),
        trainable_bytes=_nbytes(trained.values()),
        trainable=frozenset(trained),
    )


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of distinct tensors; of one that wraps others, as quantised weights, those of what it wraps."""
    held = {id(part): part for tensor in tensors for _, part in named_parts("", tensor)}
    return sum(rounded(tensor.nbytes) for tensor in held.values())
