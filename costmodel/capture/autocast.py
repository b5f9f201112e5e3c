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

from costmodel.capture.autocast_policies import BANNED, FLOAT32, FLOAT32_NORM, FLOAT32_RESULT, LOWER, WIDEST
from costmodel.errors import CaptureError
from costmodel.ir import HALF_PRECISION

AMP: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in HALF_PRECISION}
"""Precisions of autocast by name."""
QUERIES = ("is_autocast_enabled", "get_autocast_dtype", "is_autocast_cache_enabled")
_KEY = "AutocastIPU"
"""Dispatch key for which torch registers nothing."""
_CUDA = ("cuda", "meta")
_INIT, _ENTER, _EXIT = torch.autocast.__init__, torch.autocast.__enter__, torch.autocast.__exit__
_REGION = "_costmodel_region"
"""Attribute of a region made during a capture: whether it is on, its dtype and whether it keeps casts."""
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
    """

    def __init__(self, where: Callable[[], str], exact: bool = False) -> None:
        self.where, self.exact = where, exact
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
        if dtype is not None and self.exact:
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
        _switch(self.dtype is not None)

    def cast(self, given: Any, dtype: torch.dtype) -> Any:
        """Cast tensors in nested arguments, those of a GPU in floating point of at most 32 bits."""
        return tree_map_only(torch.Tensor, functools.partial(self._cast, dtype=dtype), given)

    def _cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not is_eligible(tensor) or tensor.dtype is dtype:
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
        _register()
        try:
            if dtype is not None:
                self._entered.append((dtype, True))
            self._switch()
            yield
        finally:
            self._entered.clear()
            self._kept.clear()
            _thread.regions = before
            _switch(before is not None and before.dtype is not None)


def _switch(on: bool) -> None:
    """Make the key active on this thread, or not; torch excludes the keys of autocast from the start."""
    torch._C._dispatch_tls_set_dispatch_key_included(_KEY, on)
    torch._C._dispatch_tls_set_dispatch_key_excluded(_KEY, not on)


def is_eligible(tensor: torch.Tensor) -> bool:
    """Whether autocast casts a tensor: one that is on the GPU, in floating point of at most 32 bits."""
    return tensor.is_meta and tensor.is_floating_point() and tensor.dtype is not torch.float64


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
    dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and is_eligible(leaf)}
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
"""Policy of each operator."""


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base, None), overload or "default", None)


@functools.cache
def _register() -> tuple[torch.library.Library, torch.library.Library]:
    """Register the policies for the key, once for the process; without the key they are never called."""
    others, library = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, _KEY)  # operators without a policy
    for name, policy in POLICIES.items():
        if (op := _overload(name)) is not None:
            library.impl(name, functools.partial(_run, op, policy), _KEY)
    return others, library  # the registrations last as long as the cache keeps these


def _run(op: Any, policy: _Policy, *args: Any, **kwargs: Any) -> Any:
    """Run an operator as its policy says, with autocast off within it."""
    off = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
    regions = _thread.regions
    with torch._C._ExcludeDispatchKeyGuard(off), torch._C.DisableTorchFunction():
        if regions is None or regions.dtype is None:
            return op(*args, **kwargs)
        return policy(regions, op, args, kwargs)


def make_region(
    regions: Regions,
    region: torch.autocast,
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    """Initialise a `torch.autocast`: one of a GPU is followed, torch's own state is left alone.

    Raises:
        CaptureError: the region turns on autocast of another device, or of a precision that a GPU has not.
    """
    if enabled and device_type not in _CUDA:
        refuse_autocast(regions.where(), device_type)
    dtype = dtype or torch.float16
    if enabled and dtype not in AMP.values():
        raise CaptureError(f"{regions.where()} enters autocast of {dtype}; a GPU has autocast of float16 and bfloat16")
    _INIT(region, "cpu", None, False, cache_enabled)
    setattr(region, _REGION, (dtype if enabled else None, cache_enabled is not False))
    region.fast_dtype = dtype


def enter_region(regions: Regions, region: torch.autocast) -> Any:
    """Enter a `torch.autocast`, also one that was made before the capture."""
    regions.enter(*getattr(region, _REGION, (region.fast_dtype if region._enabled else None, region._cache_enabled)))
    return region


def leave_region(regions: Regions, _region: torch.autocast, *_: object) -> bool:
    """Leave a `torch.autocast`."""
    regions.leave()
    return False


def answer_of(regions: Regions, name: str, query: Callable[..., Any]) -> Callable[..., Any]:
    """Answer to a question about autocast of a GPU, or of the meta device that stands in for it."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        asked = (*args, *kwargs.values())[:1]
        if name == "is_autocast_cache_enabled" or (asked and asked[0] not in _CUDA):
            return query(*args, **kwargs)
        if name == "is_autocast_enabled":
            return regions.dtype is not None
        return regions.dtype or torch.float16

    return answer


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
