"""Import of torchvision where its compiled operators do not load.

A wheel built for another torch (CUDA's torchvision beside the CPU's torch) fails on import, because it registers fake
implementations of operators that its library would define. Their schemas are declared here instead.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

from costmodel.errors import RequestError

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "ps_roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
}
"""Schemas of the operators of inference, as torchvision's library defines them."""

_libraries: list[torch.library.Library] = []
"""Library objects kept alive, because their declared operators live as long as they do."""


def load_torchvision() -> ModuleType:
    """Import torchvision, even if its compiled operators do not load.

    Raises:
        RequestError: torchvision is not installed or cannot be imported.
    """
    tolerate_missing_operators()
    try:
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        raise RequestError(f"torchvision cannot be imported: {error}") from error


def tolerate_missing_operators() -> None:
    """Repair later imports of torchvision, by any code of this process, if its compiled operators do not load."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finder of torchvision alone: where others find it, with a loader that declares missing operators."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            repaired = functools.partial(_execute, spec.loader.exec_module)
            spec.loader.exec_module = repaired  # type: ignore[method-assign]  # of this loader only
        return spec


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute torchvision's package, a second time with declared operators if they are missing."""
    try:
        execute(module)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]
        declared, library = _declare()
        execute(module)
        _run_on_meta(declared, library)


def _declare() -> tuple[list[str], torch.library.Library]:
    """Declare operators that neither a library nor the user's code has defined: their names."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    _libraries.append(library)
    missing = [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    for name in missing:
        library.define(f"{name}{_SCHEMAS[name]}")
    return missing, library


def _run_on_meta(names: Sequence[str], library: torch.library.Library) -> None:
    """Register torchvision's meta kernels for declared operators, so that models that call them run on meta."""
    meta = vars(importlib.import_module("torchvision._meta_registrations"))
    for name in names:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "Meta"):
            library.impl(name, meta[f"meta_{name}"], "Meta")
    for module in ("extension", "ops.roi_align"):
        vars(importlib.import_module(f"torchvision.{module}"))["_has_ops"] = lambda: True
