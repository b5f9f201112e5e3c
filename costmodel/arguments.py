"""What a module is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from costmodel.errors import RequestError


@dataclass(frozen=True, slots=True)
class Arguments:
    """Positional and keyword arguments of a forward pass."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Inputs) -> Arguments:
        """The call that passes these inputs.

        Raises:
            RequestError: they are no inputs; a tensor alone would be taken apart along its first dimension.
        """
        if isinstance(inputs, Arguments):
            return inputs
        if isinstance(inputs, Mapping):
            return cls((), dict(inputs))
        _check_is_sequence(inputs)
        return cls(tuple(inputs))

    def passed_to(self, function: Callable[..., Any]) -> Any:
        """What a function makes of them."""
        return function(*self.args, **self.kwargs)

    def like(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
        """The same with each tensor, however deep, as `change` makes it; what is no tensor stays."""
        args, kwargs = tree_map_only(torch.Tensor, change, (self.args, self.kwargs))
        return Arguments(args, kwargs)

    def are_tensors(self) -> bool:
        """Whether they are tensors in a row and nothing else, as those of most calls; to flatten them takes longer."""
        return not self.kwargs and all(isinstance(arg, torch.Tensor) for arg in self.args)

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor among them, however deep, in order."""
        if self.are_tensors():
            return list(self.args)
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]


Inputs = Sequence[Any] | Mapping[str, Any] | Arguments
"""Positional inputs, keyword inputs, or both."""


def _check_is_sequence(inputs: object) -> None:
    if isinstance(inputs, torch.Tensor):
        raise RequestError("inputs are a tuple of positional inputs, or a dict; of one tensor write (x,)")
    if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Sequence):
        raise RequestError(f"inputs are a tuple of positional inputs, or a dict; not a {type(inputs).__name__}")
