"""Snapshot of a module's state, to notice changes: a plan holds tensors computed from the weights."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, is_, methodcaller

import torch
from torch import nn

from costmodel.capture.shared_module import FORWARD_HOOKS

_MEMBERS = ("_parameters", "_buffers", "_modules")
_PLAIN = (torch.Tensor, nn.Parameter)
_values = methodcaller("values")
_version = attrgetter("_version")
_pointer = torch.Tensor.data_ptr


class Snapshot:
    """Tensors, submodules, attributes and hook counts of a module and its submodules.

    A check takes well under a microsecond for each tensor and submodule. It notices tensors that are replaced, moved,
    cast or written in place, and attributes that are set. It does not notice a write through `tensor.data`, or a
    change inside an attribute, such as an element of a list.
    """

    def __init__(self, module: nn.Module) -> None:
        modules = [child for child in module.modules() if not isinstance(child, torch.jit.ScriptModule)]
        self._attributes = [vars(child) for child in modules]
        self._values = list(map(list, map(_values, self._attributes)))
        self._sized = [found[name] for found in self._attributes for name in (*_MEMBERS, *FORWARD_HOOKS)]
        self._sizes = list(map(len, self._sized))
        self._filled = [found[name] for found in self._attributes for name in _MEMBERS if found[name]]
        self._members = list(chain.from_iterable(map(_values, self._filled)))
        self._tensors = _plain_tensors([*module.parameters(), *module.buffers(), *chain.from_iterable(self._values)])
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._versions = list(map(_version, self._counted))
        self._pointers = list(map(_pointer, self._tensors))

    def has_changed(self) -> bool:
        """Whether the module's state has changed since the snapshot."""
        return (
            list(map(len, self._sized)) != self._sizes
            or not all(map(is_, chain.from_iterable(map(_values, self._filled)), self._members))
            or list(map(_version, self._counted)) != self._versions
            or list(map(_pointer, self._tensors)) != self._pointers
            or self._attributes_differ()
        )

    def _attributes_differ(self) -> bool:
        """Whether an attribute was replaced; list comparison takes identical objects as equal."""
        try:
            return list(map(list, map(_values, self._attributes))) != self._values
        except Exception:  # noqa: BLE001 - comparing arrays or tensors with others may raise
            return True


def _plain_tensors(found: Iterable[object]) -> list[torch.Tensor]:
    """Dense tensors, each once; subclasses and sparse tensors may have no address."""
    tensors = (item for item in found if isinstance(item, torch.Tensor))
    dense = (tensor for tensor in tensors if type(tensor) in _PLAIN and tensor.layout is torch.strided)
    return list({id(tensor): tensor for tensor in dense}.values())
