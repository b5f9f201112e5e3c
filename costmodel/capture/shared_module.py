"""Copies of a module that share its parameters and buffers and run another forward pass.

The copy has the class of the original, with a mixin in front: `isinstance`, attributes, methods, `repr` and
`state_dict` are those of the original. Both modules share the registries of parameters and buffers, so that replacing a
tensor in one (`load_state_dict(assign=True)`, `.to()`) replaces it in the other.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NoReturn, TypeVar, cast

import torch
from torch import nn

from costmodel.errors import PlanError, first_line, text_of

REGISTRIES = ("_parameters", "_buffers", "_non_persistent_buffers_set")
"""Attributes of a module that hold its tensors, and the names of buffers that are not saved."""
FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OWN_FORWARD = "_costmodel_own_forward"
"""Attribute for a `forward` set on the instance, which would otherwise hide the mixin's."""


class Specialized(nn.Module):
    """Mixin in front of a module's class; it can be copied and pickled if the class can."""

    _costmodel_mixin: ClassVar[type[Specialized]]
    _costmodel_class: ClassVar[type[nn.Module]]

    def _eager_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward pass of the original."""
        own = self.__dict__.get(_OWN_FORWARD)
        return super().forward(*args, **kwargs) if own is None else own(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(max(protocol, 2))
        if tuple(reduced[:2]) != (copyreg.__newobj__, (type(self),)):  # type: ignore[attr-defined]
            raise PlanError(
                f"{type(self).__name__} defines its own pickling; pickle the original, and apply the plan again"
            )
        return restored, (self._costmodel_mixin, self._costmodel_class), *reduced[2:]

    def _refuse_copy(self, _memo: object) -> NoReturn:
        raise PlanError(f"{type(self).__name__} defines its own copying; copy the original, and apply the plan again")

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse `torch.jit.script`."""
        raise PlanError(f"{type(self).__name__} runs a plan, which TorchScript cannot; script the original module")


AnySpecialized = TypeVar("AnySpecialized", bound=Specialized)


def shared_copy(module: nn.Module) -> nn.Module:
    """Copy a module and its submodules, sharing parameters and buffers, under the original's class.

    Raises:
        PlanError: the module holds something that cannot be copied.
    """
    originals = dict(module.named_modules(remove_duplicate=False))
    memo = {id(kept): kept for original in originals.values() for kept in _not_copied(original)}
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as error:
        raise PlanError(f"{type(module).__name__} cannot be copied: {first_line(text_of(error))}") from error
    for name, child in twin.named_modules(remove_duplicate=False):
        original = originals.get(name, child)
        if original is not child:
            vars(child).update({key: vars(original)[key] for key in REGISTRIES})
    return twin


def _not_copied(module: nn.Module) -> Iterator[object]:
    """Yield objects to share: tensors, also in plain attributes, and TorchScript submodules, which have no registry."""
    if isinstance(module, torch.jit.ScriptModule):
        yield module
        return
    held = (vars(module), module._parameters, module._buffers)
    yield from (kept for values in held for kept in values.values() if isinstance(kept, torch.Tensor))


def specialize(module: nn.Module, mixin: type[AnySpecialized]) -> AnySpecialized:
    """Change the class of a module so that the mixin's methods come first, and return the module."""
    attributes = vars(module)
    if "forward" in attributes:
        attributes[_OWN_FORWARD] = attributes.pop("forward")
    module.__class__ = _specialized_class(mixin, type(module))  # type: ignore[arg-type]  # classes have a hash
    return cast("AnySpecialized", module)


def plain(module: Specialized, without: str = "") -> nn.Module:
    """Make a module of the original class with the same tensors and submodules, without forward hooks.

    Args:
        module: specialized module; its attributes are shared, not the dictionary that holds them.
        without: name of an attribute to leave out.
    """
    view = object.__new__(module._costmodel_class)
    attributes = {key: value for key, value in vars(module).items() if key != without}
    if _OWN_FORWARD in attributes:
        attributes["forward"] = attributes.pop(_OWN_FORWARD)
    vars(view).update(attributes | {name: type(attributes[name])() for name in FORWARD_HOOKS})
    return view


def is_transformed(arguments: Iterable[Any]) -> bool:
    """Whether a tracer or a transform of `torch.func` runs the current call."""
    return (
        torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or torch._C._functorch.peek_interpreter_stack() is not None
        or any(isinstance(argument, torch.fx.Proxy) for argument in arguments)
    )


def restored(mixin: type[Specialized], base: type[nn.Module]) -> Specialized:
    """Make a module without attributes, the start of unpickling and copying."""
    return cast("Specialized", object.__new__(_specialized_class(mixin, base)))  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _specialized_class(mixin: type[Specialized], base: type[nn.Module]) -> type[nn.Module]:
    @functools.wraps(base.forward)  # tracers and callers ask for the signature
    def forward(self: Specialized, *args: Any, **kwargs: Any) -> Any:
        return mixin.forward(self, *args, **kwargs)

    body: dict[str, Any] = {
        "forward": forward,
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "_costmodel_mixin": mixin,
        "_costmodel_class": base,
    }
    if issubclass(base, torch.fx.GraphModule):  # its copies have new classes, generated from the graph
        body["__deepcopy__"] = mixin._refuse_copy
    return types.new_class(base.__name__, (mixin, base), {}, lambda namespace: namespace.update(body))
