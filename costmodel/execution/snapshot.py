"""Snapshot of a module's state, to notice changes: a plan holds tensors computed from the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import torch
from torch import nn
from torch._C._dynamo import guards

from costmodel.capture.shared_module import FORWARD_HOOKS

_HELD = ("_parameters", "_buffers", "_modules", *FORWARD_HOOKS)
"""Attributes of a module whose members are compared too."""
_PLAIN = (torch.Tensor, nn.Parameter)
_END = (object(),)
"""Ends a sequence of members, so that a shorter one differs too."""
_version = attrgetter("_version")
_pointer = torch.Tensor.data_ptr


def _changes_with_every_write(version: Callable[[dict[str, Any]], int]) -> bool:
    """Whether a function that gives versions of dicts gives another one after each way of setting an attribute."""
    module = nn.Identity()
    attributes = vars(module)
    changes: tuple[Callable[[], object], ...] = (
        lambda: setattr(module, "probe", 1.5),
        lambda: setattr(module, "probe", 2.5),
        lambda: attributes.update(probe=3.5),
        lambda: delattr(module, "probe"),
    )
    seen = [version(attributes)]
    for change in changes:
        change()
        seen.append(version(attributes))
    return len(set(seen)) == len(seen)


_dict_version: Callable[[dict[str, Any]], int] | None = getattr(guards, "dict_version", None)
"""Version of a dict, as Dynamo's guards read it: each write changes it. Private to torch; None without it."""
if _dict_version is not None and not _changes_with_every_write(_dict_version):
    _dict_version = None


class Snapshot:
    """Tensors, submodules, attributes and hooks of a module and its submodules.

    A check takes about a quarter of a microsecond for each tensor and submodule. It notices tensors that are replaced,
    moved, cast or written in place, and attributes that are set. It does not notice a write through `tensor.data`, or
    a change inside an attribute, such as an element of a list.
    """

    def __init__(self, module: nn.Module) -> None:
        attributes = [vars(child) for child in module.modules() if not isinstance(child, torch.jit.ScriptModule)]
        held = [found[name] for found in attributes for name in _HELD]
        self._empty = [members for members in held if not members]
        self._member_views = [*(members.values() for members in held if members), _END]
        self._members = list(chain.from_iterable(self._member_views))
        self._attribute_views = [found.values() for found in attributes]
        self._attributes = list(chain.from_iterable(self._attribute_views))
        self._tensors = _plain_tensors([*module.parameters(), *module.buffers(), *self._attributes])
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._versions = list(map(_version, self._counted))
        self._pointers = list(map(_pointer, self._tensors))
        self._dicts = [*attributes, *(members for members in held if members)]
        self._dict_versions: list[int] | None = None
        """Versions of the dicts when their contents were last compared; None before."""

    def has_changed(self) -> bool:
        """Whether the module's state has changed since the snapshot."""
        return (
            any(self._empty)
            or list(map(_version, self._counted)) != self._versions
            or list(map(_pointer, self._tensors)) != self._pointers
            or self._contents_differ()
        )

    def _contents_differ(self) -> bool:
        """Whether a member or an attribute was replaced; contents are compared only where a dict was written."""
        versions = None if _dict_version is None else list(map(_dict_version, self._dicts))
        if versions is not None and versions == self._dict_versions:
            return False
        if self._members_differ() or self._attributes_differ():
            return True
        self._dict_versions = versions  # of before the comparison: a write during it is seen by the next one
        return False

    def _members_differ(self) -> bool:
        """Whether a parameter, buffer, submodule or hook was replaced, added or removed."""
        return not all(map(is_, chain.from_iterable(self._member_views), self._members))

    def _attributes_differ(self) -> bool:
        """Whether an attribute was replaced; list comparison takes identical objects as equal."""
        try:
            return list(chain.from_iterable(self._attribute_views)) != self._attributes
        except Exception:  # noqa: BLE001 - comparing arrays or tensors with others may raise
            return True


def _plain_tensors(found: Iterable[object]) -> list[torch.Tensor]:
    """Dense tensors, each once; subclasses and sparse tensors may have no address."""
    tensors = (item for item in found if isinstance(item, torch.Tensor))
    dense = (tensor for tensor in tensors if type(tensor) in _PLAIN and tensor.layout is torch.strided)
    return list({id(tensor): tensor for tensor in dense}.values())
