"""Values that a forward pass reads from tensors, taken from a real run and used again where tensors have no data.

A meta tensor has no values. Where a pass reads some (`.item()`, `if x.sum() > 0`, `nonzero`, `.tolist()`), the module
runs once with real tensors, and each value and each size that depends on values is noted in order. A capture of the
same pass on meta tensors asks for them in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import stateless
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.meta_tensors import meta_like
from costmodel.capture.module_state import untouched
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, first_line, text_of
from costmodel.torch_patches import replaced
from costmodel.zoo.gpu_stand_in import GpuStandIn, cuda_answers

MOST_SECONDS = 60.0
"""Time of a real run from which it is given up."""

aten = torch.ops.aten
READS = {aten._local_scalar_dense.default, aten.is_nonzero.default, aten.equal.default, aten.allclose.default}
"""Operators that return values of a tensor to Python."""
READ_FUNCTIONS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
"""Functions that return values of a tensor without an operator."""
_SIZED = ("torchvision::nms",)
"""Operators whose results have a size that depends on values, beside those that torch marks."""
_BY_MASK = "aten::index"


class ReadValues:
    """Values in the order in which a pass reads them, each with the name of the call that reads it."""

    def __init__(self, values: Iterable[tuple[str, Any]] = ()) -> None:
        self._values = list(values)
        self._next = 0

    def add(self, name: str, value: Any) -> None:
        """Note the next value."""
        self._values.append((name, value))

    def rewound(self) -> ReadValues:
        """The same values from the first one on, for another pass."""
        return ReadValues(self._values)

    def take(self, name: str) -> Any:
        """The next value.

        Raises:
            LookupError: the pass reads another value than the real run at this place.
        """
        if self._next >= len(self._values) or self._values[self._next][0] != name:
            raise LookupError(f"the real run has no {name} here")
        value = self._values[self._next][1]
        self._next += 1
        return value

    def __len__(self) -> int:
        return len(self._values)


def has_sized_result(func: Any, args: Sequence[Any]) -> bool:
    """Whether the size of an operator's result depends on the values of its arguments."""
    name = func._schema.name
    if name == _BY_MASK:
        indices = args[1] if len(args) > 1 else ()
        return any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices)
    return name in _SIZED or torch.Tag.dynamic_output_shape in func.tags


@takes_turns
def read_values(module: nn.Module, inputs: Inputs) -> ReadValues:
    """Run a module once with real tensors and note what it reads. The module and the inputs are unchanged afterwards.

    Raises:
        CaptureError: the run fails, or takes longer than MOST_SECONDS.
    """
    noted = ReadValues()
    call = Arguments.of(inputs).like(torch.clone)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with ExitStack() as around:
        for context in (untouched(module), torch.no_grad(), torch.random.fork_rng(devices=[])):
            around.enter_context(context)
        around.enter_context(stateless._reparametrize_module(module, buffers))
        if not torch.cuda.is_available():
            around.enter_context(cuda_answers(with_streams=True))
            around.enter_context(GpuStandIn(torch.device("cpu")))
        around.enter_context(replaced(torch, "cond", chosen_branch))
        around.enter_context(_Functions(noted))
        around.enter_context(_Operators(noted))
        try:
            call.passed_to(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an exit too
            raise CaptureError(
                f"{type(module).__name__} reads values of tensors, and a run to get them fails: "
                f"{type(error).__name__}: {first_line(text_of(error))}"
            ) from error
    return noted


def chosen_branch(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """Result of `torch.cond` as Python computes it: the branch that the predicate's value chooses."""
    return (true_fn if pred else false_fn)(*operands)


class _Operators(TorchDispatchMode):
    """Dispatch mode that notes values and sizes that operators return."""

    def __init__(self, noted: ReadValues) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self._noted = noted
        self._deadline = time.monotonic() + MOST_SECONDS

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"the run takes longer than {MOST_SECONDS:.0f} s")
        result = func(*args, **(kwargs or {}))
        if func in READS:
            self._noted.add(func._schema.name, result)
        elif has_sized_result(func, args):
            self._noted.add(func._schema.name, tree_map_only(torch.Tensor, meta_like, result))
        return result


class _Functions(TorchFunctionMode):
    """Function mode that notes values that functions return without an operator."""

    def __init__(self, noted: ReadValues) -> None:
        super().__init__()
        self._noted = noted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in READ_FUNCTIONS:
            kept = np.array(result) if isinstance(result, np.ndarray) else result
            self._noted.add(func.__name__, kept)
        elif moves_to_cpu(func, args, kwargs or {}):
            self._noted.add("cpu", result.detach().clone())
        return result


def moves_to_cpu(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call copies a tensor to the CPU: `.cpu()` or `.to("cpu")`.

    A device object may be the device of another tensor, which is not the CPU where the model is on a GPU.
    """
    return func is torch.Tensor.cpu or (func is torch.Tensor.to and "cpu" in (*args[1:2], kwargs.get("device")))
