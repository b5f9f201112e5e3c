"""What surrounds a forward pass while it is recorded: attention kept whole, scopes told, the module left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from costmodel.record import ATTENTION, Recorder

_PYTHON_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_PYTHON_DROPOUT = torch.nn.functional.dropout


class WholeOperators(TorchFunctionMode):
    """Keeps scaled dot-product attention and dropout one operator each, as devices with a fused kernel run them.

    The mode sees direct calls; the patched name serves library functions, which torch runs with the mode off.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self._patch = patch.object(torch.nn.functional, "scaled_dot_product_attention", self._attention)

    def _attention(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        bound = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
        self._recorder.refuse(ATTENTION, (), bound)
        query, value = bound["query"], bound["value"]
        *outer, heads, length, _ = (1, *query.shape) if query.dim() == 3 else query.shape
        written = _needing_gradient(
            query.new_empty((*outer, length, heads, value.shape[-1])),  # as fused kernels write it
            query.requires_grad,
        )
        result: torch.Tensor = written.transpose(-3, -2)
        result = result.reshape((*query.shape[:-1], value.shape[-1])) if query.dim() == 3 else result
        self._recorder.record(ATTENTION, (), bound, result)
        self._recorder.own(result)
        return result

    def _dropout(
        self,
        input: torch.Tensor,  # noqa: A002 - torch's name, for callers that use it
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        if not self._recorder.training or not training or inplace or not 0.0 < p < 1.0:
            return _PYTHON_DROPOUT(input, p, training, inplace)
        kept = _needing_gradient(torch.empty_like(input), input.requires_grad)
        results = kept, torch.empty_like(input, dtype=torch.bool)
        self._recorder.record(torch.ops.aten.native_dropout.default, (input, p, True), {}, results)
        for result in results:
            self._recorder.own(result)
        return results[0]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        whole = {_PYTHON_ATTENTION: self._attention, _PYTHON_DROPOUT: self._dropout}
        call = whole.get(func, func)
        return call(*args, **(kwargs or {}))

    def __enter__(self) -> WholeOperators:
        self._patch.start()
        super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        return self

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)  # type: ignore[no-untyped-call]  # likewise
        self._patch.stop()


def _needing_gradient(tensor: torch.Tensor, needed: bool) -> torch.Tensor:
    """The tensor, as something computed that a gradient flows through, where one does."""
    return tensor.requires_grad_().clone() if needed and torch.is_grad_enabled() else tensor


@contextmanager
def forgetful_autograd() -> Iterator[None]:
    """Gradients are tracked, but nothing is kept for them: what stays alive is what Python holds."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: None, _forgotten):
        yield


def _forgotten(_: object) -> torch.Tensor:
    raise AssertionError("no backward pass is run while a forward pass is recorded")


@contextmanager
def scopes(recorder: Recorder) -> Iterator[None]:
    """Tells a recorder which submodule is running."""
    handles = [
        nn.modules.module.register_module_forward_pre_hook(lambda child, _: recorder.enter(child)),
        nn.modules.module.register_module_forward_hook(lambda child, *_: recorder.leave(child)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Undoes what a forward pass assigns to the attributes, parameters and buffers of its modules."""
    registries = ("_parameters", "_buffers", "_modules")
    saved = [
        (child, dict(vars(child)), [(vars(child)[key], dict(vars(child)[key])) for key in registries])
        for child in module.modules()
    ]
    try:
        yield
    finally:
        for child, attributes, registered in saved:
            vars(child).clear()
            vars(child).update(attributes)
            for registry, entries in registered:
                registry.clear()
                registry.update(entries)
