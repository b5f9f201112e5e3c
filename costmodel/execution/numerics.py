"""Numerical check of a plan: its outputs must be about as close to float64's as those of eager execution."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from costmodel.capture.inputs import Arguments
from costmodel.capture.trace import tensors_in
from costmodel.execution.torch_settings import present_matmul_precision
from costmodel.prediction.arithmetic import HIGHEST

FACTOR = 4.0
"""Allowed multiple of the error that eager execution has against float64."""
FLOOR: Mapping[torch.dtype, float] = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative error that is always allowed: two units in the last place of the type."""
STRICT_FACTOR = 1.5
"""The same where nothing may reassociate beyond the error of eager execution: the spread of rounding alone."""
FARTHEST = 0.1
"""Largest error of eager execution at which float64 counts as the truth. With a larger one the model computes something
else in float64: it masks with the least number of the type, or rounds on purpose. FACTOR times that error would allow
almost any outputs."""
FLOOR_FLOAT32 = 1e-4
FLOOR_TF32 = 2e-3
"""The same for float32. With TF32 allowed (torch's default on a GPU), cuDNN may round each operand to 2^-11."""


def random_like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Draw normal values with a tensor's type and strides; integers keep their values, or are zero for meta tensors."""
    fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    if tensor.is_floating_point():
        return fresh.normal_()
    return fresh.zero_() if tensor.is_meta else fresh.copy_(tensor)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """||got - expected|| / ||expected||, or ||got|| if `expected` is zero; infinite for NaN or a wrong shape.

    Where `expected` is NaN, infinite or the largest number of its type, as masks are, `got` must be the same; the norms
    are over the other elements.
    """
    if got.shape != expected.shape:
        return math.inf
    found, wide = got.double(), expected.double()
    if expected.is_floating_point():
        masked = ~(wide.abs() < torch.finfo(expected.dtype).max)
        if masked.any():
            if not torch.allclose(found[masked], wide[masked], rtol=0.0, atol=0.0, equal_nan=True):
                return math.inf
            found, wide = found[~masked], wide[~masked]
    size = wide.norm().item()
    error = (found - wide).norm().item()
    error = error / size if size else error
    return error if math.isfinite(error) else math.inf


def worst_error(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Largest relative error over the outputs of a forward pass."""
    return max((relative_error(a, b) for a, b in zip(got, expected, strict=True)), default=0.0)


def allowed_error(
    outputs: Sequence[torch.Tensor], eager_error: float, computed_in: Iterable[torch.dtype] = ()
) -> float:
    """Largest relative error that a plan's outputs may have.

    Args:
        outputs: outputs of eager execution.
        eager_error: their relative error.
        computed_in: further types that values on the way to them have, as under autocast.
    """
    allowed = torch.backends.cudnn.allow_tf32 or present_matmul_precision() != HIGHEST
    float32 = FLOOR_TF32 if allowed and any(output.is_cuda for output in outputs) else FLOOR_FLOAT32
    floors = [FLOOR.get(dtype, float32) for dtype in (*(output.dtype for output in outputs), *computed_in)]
    return max([FACTOR * eager_error, *floors])


def strictly_allowed_error(outputs: Sequence[torch.Tensor], eager_error: float) -> float:
    """Largest relative error where nothing may reassociate beyond eager execution's own: at least one rounding."""
    roundings = [torch.finfo(output.dtype).eps / 2 for output in outputs if output.is_floating_point()]
    return max([STRICT_FACTOR * eager_error, *roundings])


def reference(module: nn.Module, inputs: Arguments) -> list[torch.Tensor] | None:
    """Outputs of the module in float64, also of operators that name a type; None if it cannot run in float64."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False  # algorithms in float64 are used once, and not worth a search
    try:
        wide = copy.deepcopy(module).double()
        with torch.no_grad(), _InFloat64():  # type: ignore[no-untyped-call]
            return list(tensors_in(inputs.like(_widened).passed_to(wide)))
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    finally:
        torch.backends.cudnn.benchmark = before


class _InFloat64(TorchDispatchMode):
    """Context in which operators that would make tensors of another floating-point type make them in float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.view.dtype:
            raise NotImplementedError("the bits of a number are read as another type")
        args, kwargs = tree_map(_widened_type, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, _widened, func(*args, **kwargs))


def _widened_type(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def surely_pass(
    outputs: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], computed_in: Iterable[torch.dtype] = ()
) -> bool:
    """Whether outputs pass whatever float64's are: they differ from eager ones by at most half of the floor.

    With d that difference, e the error of eager execution and F the floor, the error is at most e + d. For e up to
    F / 2 that is at most F; for a larger e it is below 2 e, and FACTOR e is allowed.
    """
    return worst_error(outputs, eager) <= allowed_error(eager, 0.0, computed_in) / 2


def passes(
    run: Callable[[], Sequence[torch.Tensor]],
    eager: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None,
    computed_in: Iterable[torch.dtype] = (),
    strict: bool = False,
) -> bool:
    """Whether a plan's outputs may be used.

    Strictly, they may be no further from float64's than eager outputs are; without float64's, they must be equal. Where
    eager outputs are further than FARTHEST from float64's, these do not count.

    Args:
        run: computes them.
        eager: outputs of eager execution.
        exact: outputs in float64; None to compare with eager execution's.
        computed_in: further types that values on the way to the outputs have.
        strict: whether nothing may reassociate beyond eager execution's own error.
    """
    truth = eager if exact is None or worst_error(eager, exact) > FARTHEST else exact
    error = worst_error(eager, truth)
    allowed = strictly_allowed_error(eager, error) if strict else allowed_error(eager, error, computed_in)
    return worst_error(run(), truth) <= allowed
