"""Autocast during a capture: the casts that torch makes on a GPU, recorded as operators.

Torch casts nothing on meta tensors, so the policies of CUDA are registered here for a dispatch key that no device uses.
The key is active on the recording thread within a region, and takes effect where CUDA's would: above autograd, before
composite operators are divided, and not within an operator that it has cast.

As in torch (`cached_cast` in autocast_mode.cpp), the cast of a float32 leaf that requires a gradient to the region's
precision is kept until the outermost region ends, also under `no_grad`: each weight is cast once in each pass.
Under `inference_mode`, which is not predicted, recent versions of torch cast it at each use. Dynamo
traces without that cache and removes repeated casts later, so compiled code casts each weight once too.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_map_only

from costmodel.capture import autocast_cpu_policies
from costmodel.capture.autocast_policies import BANNED, FLOAT32, FLOAT32_NORM, FLOAT32_RESULT, LOWER, WIDEST
from costmodel.errors import CaptureError
from costmodel.ir import HALF_PRECISION

AMP: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in HALF_PRECISION}
"""Precisions of autocast by name."""
_KEY = "AutocastIPU"
_CPU_KEY = "AutocastHPU"
"""Dispatch keys for which torch registers nothing, for the policies of a GPU and of a CPU."""
CPU, CUDA = "cpu", "cuda"
_Policy = Callable[["Regions", Any, Sequence[Any], Mapping[str, Any]], Any]


class _Thread(threading.local):
    """Autocast regions of the pass that this thread records; None if there is none."""

    regions: Regions | None = None


_thread = _Thread()


class Regions:
    """Autocast regions that a recorded pass is in.

    Attributes:
        where: path of the running module, for errors.
        exact: whether the recorded graph will be run, perhaps on a CPU, where regions of a GPU cast nothing.
        device: type of the device that the recorded graph will run on, whose regions cast; None if that is unknown,
            for casts of a GPU, where an exact graph may enter no region.
    """

    def __init__(self, where: Callable[[], str], exact: bool = False, device: str | None = None) -> None:
        self.where, self.exact, self.device = where, exact, device
        self._entered: list[tuple[torch.dtype | None, bool]] = []
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def dtype(self) -> torch.dtype | None:
        """Precision of the innermost region; None outside, and where it is turned off."""
        return self._entered[-1][0] if self._entered else None

    def enter(self, dtype: torch.dtype | None, keeps: bool = True) -> None:
        """Enter a region.

        Args:
            dtype: precision of the region; None turns autocast off.
            keeps: whether casts of weights are cached (`cache_enabled` of `torch.autocast`).

        Raises:
            CaptureError: the graph will be run.
        """
        if dtype is not None and self.exact and self.device is None:
            raise CaptureError(
                f"{self.where()} enters autocast itself, which a plan cannot run; leave the region out and plan for "
                "calls under autocast, as --amp float16 does"
            )
        self._entered.append((dtype, keeps))
        self._switch()

    def leave(self) -> None:
        """Leave the innermost region; the outermost one forgets the casts of weights."""
        self._entered.pop()
        if not self._entered:
            self._kept.clear()
        self._switch()

    def _switch(self) -> None:
        _switch(self.key, self.dtype is not None)

    @property
    def key(self) -> str:
        """Dispatch key for which the device's policies are registered."""
        return _CPU_KEY if self.device == CPU else _KEY

    def cast(self, given: Any, dtype: torch.dtype) -> Any:
        """Cast tensors in nested arguments, those of a GPU in floating point of at most 32 bits."""
        return tree_map_only(torch.Tensor, functools.partial(self._cast, dtype=dtype), given)

    def is_eligible(self, tensor: torch.Tensor) -> bool:
        """Whether the device casts a tensor; a CPU also casts constants, which are recorded with their values."""
        return is_eligible(tensor) or (self.device == CPU and tensor.is_cpu and _is_float(tensor))

    def _cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not self.is_eligible(tensor) or tensor.dtype is dtype:
            return tensor
        is_weight = tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
        if dtype is not self.dtype or not self._entered[-1][1] or tensor.dtype is not torch.float32 or not is_weight:
            return tensor.to(dtype)
        if id(tensor) not in self._kept:
            self._kept[id(tensor)] = tensor, tensor.to(dtype)
        return self._kept[id(tensor)][1]

    @contextmanager
    def active(self, dtype: torch.dtype | None) -> Iterator[None]:
        """Record this thread's casts by these regions, from the start in one of a precision, if any.

        An exact graph may be in that one: a plan of it says so, and runs the casts, which are operators.
        """
        before, _thread.regions = _thread.regions, self
        _register(self.key)
        try:
            if dtype is not None:
                self._entered.append((dtype, True))
            self._switch()
            yield
        finally:
            self._entered.clear()
            self._kept.clear()
            _thread.regions = before
            _switch(self.key, on=False)
            if before is not None:
                before._switch()


def _switch(key: str, on: bool) -> None:
    """Make a key active on this thread, or not; torch excludes the keys of autocast from the start."""
    torch._C._dispatch_tls_set_dispatch_key_included(key, on)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, not on)


def is_eligible(tensor: torch.Tensor) -> bool:
    """Whether autocast casts a tensor: one that is on the GPU, in floating point of at most 32 bits."""
    return tensor.is_meta and _is_float(tensor)


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype is not torch.float64


def refuse_casts_within(regions: Regions, name: str) -> None:
    """Refuse an operator that is recorded whole in a region of a CPU, which casts within it; a GPU's casts before it.

    Raises:
        CaptureError: names it.
    """
    if regions.device == CPU and regions.dtype is not None:
        raise CaptureError(f"{regions.where()} runs {name} under autocast of a CPU, whose casts are not captured")


def lowered(regions: Regions, given: Any) -> Any:
    """Arguments of an operator of LOWER that is recorded whole, cast if the pass is in a region."""
    return given if regions.dtype is None else regions.cast(given, regions.dtype)


def _lower(regions: Regions, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    dtype = regions.dtype
    assert dtype is not None  # the key is active within a region only
    args, kwargs = regions.cast((tuple(args), dict(kwargs)), dtype)
    return op(*args, **kwargs)


def _float32(regions: Regions, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    args, kwargs = regions.cast((tuple(args), dict(kwargs)), torch.float32)
    return op(*args, **kwargs)


def _float32_result(_: Regions, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    names = [argument.name for argument in op._schema.arguments]
    bound = dict(zip(names, args, strict=False)) | dict(kwargs)
    if not (isinstance(args[0], torch.Tensor) and is_eligible(args[0])) or bound.get("dtype") is not None:
        return op(*args, **kwargs)
    if op is torch.ops.aten.softmax.int and args[0].dtype is torch.float16:
        return torch.ops.aten._softmax.default(args[0], bound["dim"], True)  # one kernel on a GPU (ATen's SoftMax.cpp)
    if op is torch.ops.aten.log_softmax.int and args[0].dtype is torch.float16:
        return torch.ops.aten._log_softmax.default(args[0], bound["dim"], True)
    return op(**bound | {"dtype": torch.float32})


def _float32_norm(_: Regions, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if not is_eligible(args[0]):
        return op(*args, **kwargs)
    name = op._schema.overload_name
    other = _overload(FLOAT32_NORM[f"norm.{name}"])
    bound = {argument.name: argument.default_value for argument in op._schema.arguments if argument.has_default_value()}
    bound |= dict(zip((argument.name for argument in op._schema.arguments), args, strict=False)) | dict(kwargs)
    return other(**bound, dtype=torch.float32)


def _widest(regions: Regions, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    leaves = torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs)))
    dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and regions.is_eligible(leaf)}
    if dtypes - {regions.dtype}:
        args, kwargs = regions.cast((tuple(args), dict(kwargs)), torch.float32)
    return op(*args, **kwargs)


def _banned(*_: object) -> NoReturn:
    raise CaptureError(
        "torch refuses binary_cross_entropy under autocast; use binary_cross_entropy_with_logits, without the sigmoid"
    )


POLICIES: Mapping[str, _Policy] = {
    **dict.fromkeys(LOWER, _lower),
    **dict.fromkeys(FLOAT32, _float32),
    **dict.fromkeys(FLOAT32_RESULT, _float32_result),
    **dict.fromkeys(FLOAT32_NORM, _float32_norm),
    **dict.fromkeys(WIDEST, _widest),
    **dict.fromkeys(BANNED, _banned),
}
"""Policy of each operator on a GPU."""
CPU_POLICIES: Mapping[str, _Policy] = {
    **dict.fromkeys(autocast_cpu_policies.LOWER, _lower),
    **dict.fromkeys(autocast_cpu_policies.FLOAT32, _float32),
    **dict.fromkeys(autocast_cpu_policies.WIDEST, _widest),
}
"""Policy of each operator on a CPU."""


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base, None), overload or "default", None)


@functools.cache
def _register(key: str) -> tuple[torch.library.Library, torch.library.Library]:
    """Register the policies for their key, once for the process; without the key they are never called."""
    policies = CPU_POLICIES if key == _CPU_KEY else POLICIES
    others, library = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, key)  # operators without a policy
    for name, policy in policies.items():
        if (op := _overload(name)) is not None:
            library.impl(name, functools.partial(_run, op, policy, key), key)
    return others, library  # the registrations last as long as the cache keeps these


def _run(op: Any, policy: _Policy, key: str, *args: Any, **kwargs: Any) -> Any:
    """Run an operator as its policy says, with autocast off within it."""
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    regions = _thread.regions
    with torch._C._ExcludeDispatchKeyGuard(off), torch._C.DisableTorchFunction():
        if regions is None or regions.dtype is None:
            return op(*args, **kwargs)
        return policy(regions, op, args, kwargs)


def surrounding(where: str) -> torch.dtype | None:
    """Precision of the autocast region of a GPU that the caller is in; None outside of any.

    Raises:
        CaptureError: it is a region of the CPU.
    """
    if torch.is_autocast_enabled("cpu"):
        refuse_autocast(where, "cpu")
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


def refuse_surrounding(where: str) -> NoReturn:
    """Raise the error that a plan is made outside of autocast regions, with the alternative."""
    raise CaptureError(
        f"{where} is called under autocast, where a plan is not made; leave the region, and say which it was by amp, "
        "as --amp float16 does"
    )


def refuse_autocast(where: str, device_type: str) -> NoReturn:
    """Raise the error that autocast of another device cannot be captured, with the alternative."""
    raise CaptureError(
        f"{where} runs under autocast of the device {device_type!r}, whose casts are not captured; use "
        "torch.autocast('cuda'), as --amp does, or convert the model and its inputs, as --precision float16 does"
    )
