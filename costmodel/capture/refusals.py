"""Calls that cannot be captured: operators of training mode, and operators that need the values of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from costmodel.capture.meta_tensors import has_meta, tensors_of
from costmodel.errors import CaptureError, DataDependentError

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_DROPOUT = {"bernoulli", "bernoulli_", "native_dropout"}
_BATCH_NORM = {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"}


def needs_values(where: str) -> DataDependentError:
    """Error for a module that needs the values of a tensor."""
    return DataDependentError(
        f"{where} needs the values of a tensor (.item(), a branch or a result size that depends on data); "
        "only operations that depend on shapes can be captured"
    )


def refuse_data_dependence(where: str, func: Any, args: Sequence[Any]) -> None:
    """Raise for a call that returns the values of a tensor on the meta device.

    Raises:
        DataDependentError: the call needs data.
    """
    if torch.Tag.data_dependent_output in func.tags and has_meta(args):
        raise needs_values(where)


def refuse_training(
    where: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], in_training_mode: bool
) -> None:
    """Raise for a call that only a module in training mode makes.

    Args:
        where: name of the running module.
        func: an OpOverload.
        args: its positional arguments.
        kwargs: its keyword arguments.
        in_training_mode: whether the running module is.

    Raises:
        CaptureError: batch norm updates statistics, or dropout is active.
    """
    name = func._schema.name.partition("::")[2]
    updates = name in _BATCH_NORM and len(args) > 5 and args[3] is not None and args[5] is True
    draws = name in _DROPOUT and in_training_mode
    drops = func is ATTENTION and kwargs.get("dropout_p", 0.0) > 0
    if updates or draws or drops:
        raise CaptureError(f"{where} is in training mode; call .eval() on the model")


def refuse_packed_weights(where: str, func: Any) -> None:
    """Raise for an operator of `torch.ao`'s quantised modules, which has no kernel on a GPU and no meta kernel.

    Raises:
        CaptureError: the operator takes packed weights.
    """
    if func.namespace in ("quantized", "_quantized"):
        raise CaptureError(
            f"{where} calls {func}, which takes packed weights and runs on CPUs only; "
            "give the model before its conversion, or quantised by tensor subclasses as torchao does"
        )


def refuse_sparse(where: str, func: Any) -> None:
    """Raise for an operator that makes or reads a sparse tensor, which has no meta kernel.

    Raises:
        CaptureError: the operator is of sparse tensors.
    """
    if any(part in func._schema.name for part in ("to_sparse", "sparse_coo", "sparse_compressed", "sparse_csr")):
        raise CaptureError(f"{where} calls {func}, which is of sparse tensors and not captured; use dense ones")


def refuse_mixed_devices(
    where: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: RuntimeError
) -> None:
    """Raise unless a failed call can be repeated with all its tensors on the meta device.

    Args:
        where: name of the running module.
        func: an OpOverload.
        args: its positional arguments.
        kwargs: its keyword arguments.
        error: error of the call.

    Raises:
        RuntimeError: the error itself, if devices are not its reason.
        DataDependentError: the size of the result depends on data.
        CaptureError: the call writes into a tensor on another device.
    """
    tensors = tensors_of((args, kwargs))
    elsewhere = [tensor for tensor in tensors if not tensor.is_meta]
    if not elsewhere or len(elsewhere) == len(tensors):
        dynamic = torch.Tag.dynamic_output_shape in func.tags and elsewhere != tensors
        raise (needs_values(where) if dynamic else error)
    if func._schema.is_mutable and not tensors[0].is_meta:
        raise CaptureError(
            f"{where} writes into a tensor on {tensors[0].device}; make it where the input is, device=x.device"
        )


def refuse_impure(where: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise for an operator that may have side effects, unless it maps tensors to tensors on the meta device.

    Raises:
        CaptureError: running it could open files or run code of a package.
    """
    if not tensors_of((args, kwargs)) or func._schema.is_mutable:
        raise CaptureError(f"{where} calls {func}, which is not run while a model is captured; call it before")
