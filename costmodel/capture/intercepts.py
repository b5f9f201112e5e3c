"""Intercepts of torch functions during recording: operators kept whole, the device a GPU, autograd without memory."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from costmodel.capture.attention_calls import differentiable_attention
from costmodel.capture.autocast import CPU, Regions, lowered, refuse_casts_within
from costmodel.capture.autocast_regions import QUERIES, answer_of, enter_region, leave_region, make_region
from costmodel.capture.meta_tensors import RECURRENT, RECURRENT_ARGUMENTS, is_plain_meta, recurrent_results
from costmodel.capture.read_values import READ_FUNCTIONS, ReadValues, chosen_branch, moves_to_cpu
from costmodel.capture.recorder import Recorder
from costmodel.capture.recurrent_step import differentiable_cell, differentiable_recurrent
from costmodel.capture.refusals import ATTENTION
from costmodel.concurrency import is_recording
from costmodel.torch_patches import replaced
from costmodel.zoo.gpu_stand_in import answer, cuda_answers, pretends, redirected

_PYTHON_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_PYTHON_DROPOUT = torch.nn.functional.dropout
_ATTENTION = (_PYTHON_ATTENTION, ATTENTION)
"""Attention called by modules, and by exported programs."""

_FUSED = (torch.float32, torch.float16, torch.bfloat16)
"""Precisions in which a GPU has fused attention."""
LARGEST_FLASH_HEAD = 256
_FROM_PYTHON = (torch.tensor, torch.as_tensor)
_INDEXED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_RECURRENT = {name: getattr(torch.ops.aten, name).input for name in RECURRENT}
_WHOLE = {name: getattr(torch.ops.aten, name).default for name in ("rms_norm", "lstm_cell", "gru_cell")}
"""Composite operators by the names of torch's functions; `costmodel.kernels.composites` divides them for a device."""
_CELLS = (_WHOLE["lstm_cell"], _WHOLE["gru_cell"])
"""Those that autocast runs in the precision of its region; it runs the others in float32."""


class WholeOperators(TorchFunctionMode):
    """Function mode that records attention, dropout and recurrent layers as one operator each, as on a GPU.

    The model runs as on a GPU: its tensors say that they are on one, and tensors that it makes there are on meta.
    The mode sees direct calls. Functions of libraries, which torch runs with the mode off, are patched; a patch acts
    only on the recording thread.

    Args:
        recorder: recorder of the operators.
        fast_path: whether multi-head attention may be one operator, its fast path.
        amp: precision of the autocast region around the pass; None for none.
        device: type of the device whose regions cast; see `Regions`.
    """

    def __init__(
        self,
        recorder: Recorder,
        fast_path: bool = True,
        amp: torch.dtype | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        self._recorder = recorder
        self._regions = regions = Regions(lambda: recorder.where, recorder.exact, device)
        self._recorded = {**dict.fromkeys(_ATTENTION, self._attention), _PYTHON_DROPOUT: self._dropout}
        functions = torch.nn.functional
        self._patches = [
            _patched(recorder, functions, "scaled_dot_product_attention", self._attention),
            _patched(recorder, torch, "cond", chosen_branch),
            _patched(recorder, torch.autocast, "__init__", functools.partial(make_region, regions)),
            _patched(recorder, torch.autocast, "__enter__", functools.partial(enter_region, regions)),
            _patched(recorder, torch.autocast, "__exit__", functools.partial(leave_region, regions)),
            *(_patched(recorder, torch, name, answer_of(regions, name, getattr(torch, name))) for name in QUERIES),
            cuda_answers(with_streams=True),
            regions.active(amp),
        ]
        if fast_path and not recorder.training:
            heads = functools.partial(_multi_head, recorder, regions)
            self._patches.append(_patched(recorder, nn.MultiheadAttention, "forward", heads))
        self._inside = ExitStack()

    def _attention(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        bound = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
        self._recorder.refuse(ATTENTION, (), bound)
        bound = lowered(self._regions, bound)
        query, value = bound["query"], bound["value"]
        if not _has_fused_kernel(query, bound["key"], value, bound.get("attn_mask")):
            return _PYTHON_ATTENTION(**bound)
        if self._recorder.differentiates:
            return differentiable_attention(bound)
        batch, heads, length, _ = query.shape
        written = _needing_gradient(
            query.new_empty((batch, length, heads, value.shape[-1])),  # the layout that fused kernels write
            query.requires_grad,
        )
        result = written.transpose(1, 2)
        self._recorder.record(ATTENTION, (), bound, result)
        self._recorder.own(result)
        return result

    def _dropout(
        self,
        input: torch.Tensor,  # noqa: A002 - torch's name, for callers by keyword
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        if not self._recorder.training or not training or inplace or not 0.0 < p < 1.0:
            return _PYTHON_DROPOUT(input, p, training, inplace)
        if self._recorder.differentiates:
            return torch.native_dropout(input, p, True)[0]
        kept = _needing_gradient(torch.empty_like(input), input.requires_grad)
        results = kept, torch.empty_like(input, dtype=torch.bool)
        self._recorder.record(torch.ops.aten.native_dropout.default, (input, p, True), {}, results)
        for result in results:
            self._recorder.own(result)
        return results[0]

    def _from_python(self, func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a meta tensor from Python numbers, and remember its values."""
        result: torch.Tensor = func(*args, **kwargs)
        if result.is_meta and args and not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(args[0])):
            self._recorder.constants.remember(result, torch.tensor(args[0], dtype=result.dtype, device="cpu"))
        return result

    def _recurrent(self, target: Any, *args: Any) -> tuple[torch.Tensor, ...]:
        """Record an LSTM or GRU as one operator, as cuDNN runs it; on meta tensors torch would unroll its steps."""
        if isinstance(self._recorder.running, nn.RNNBase):
            self._recorder.cut()
        if self._recorder.differentiates:
            return differentiable_recurrent(target._schema.name.removeprefix("aten::"))(*args)
        dropout, training = args[5:7]
        self._recorder.refuse(target, (), {"dropout_p": dropout if training else 0.0})
        result = recurrent_results(args)
        self._recorder.record(target, args, {}, result)
        for item in result:
            self._recorder.own(item)
        return result

    def _composite(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a composite operator whole: its parts on meta tensors are not those on a GPU."""
        with torch._C._DisableTorchDispatch():
            result = target(*args, **kwargs)
        self._recorder.record(target, args, kwargs, result)
        for item in result if isinstance(result, tuple) else (result,):
            self._recorder.own(item)
        return result

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_recording(self._recorder):
            return func(*args, **(kwargs or {}))
        if pretends(func, args, sys._getframe(1)):
            self._recorder.counts.count("queries")
            return answer(func)
        func, args, kwargs = redirected(func, args, kwargs or {})
        return self._recorder.counts.calling(self._called, func, *args, **kwargs)

    def _read(self, values: ReadValues, func: Any, args: Any) -> Any:
        """Values of a tensor that Python reads, from a real run."""
        self._recorder.read(args)
        return values.take(func.__name__) if func in READ_FUNCTIONS else values.take("cpu").clone()

    def _called(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a call from Python, or record its operator as a whole."""
        if func is torch._C._set_grad_enabled and (args[0] or torch.is_grad_enabled()):
            self._recorder.wants_gradient = args[0]  # within an autograd.Function gradients are disabled without it
        if (recorded := self._recorded.get(func)) is not None:
            return recorded(*args, **kwargs)
        if func in _FROM_PYTHON:
            return self._from_python(func, *args, **kwargs)
        if self._recorder.values is not None and (func in READ_FUNCTIONS or moves_to_cpu(func, args, kwargs)):
            return self._read(self._recorder.values, func, args)
        if func in _INDEXED:
            return func(args[0], _without_lists(args[1]), *args[2:])
        return self._whole(func, *args, **kwargs)

    def _whole(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a recurrent layer or a composite operator as one operator; run any other call."""
        target = func if func in _RECURRENT.values() else _RECURRENT.get(getattr(func, "__name__", ""))
        if target is not None and len(args) == RECURRENT_ARGUMENTS and not kwargs:
            refuse_casts_within(self._regions, func.__name__)
            return self._recurrent(target, *lowered(self._regions, args))
        target = func if func in _WHOLE.values() else _WHOLE.get(getattr(func, "__name__", ""))
        if target in _CELLS and self._recorder.differentiates and not kwargs and is_plain_meta(args):
            return differentiable_cell(func.__name__, *lowered(self._regions, args))
        if target is not None and not self._recorder.training and is_plain_meta((args, kwargs)):
            if target in _CELLS:
                refuse_casts_within(self._regions, func.__name__)
                args, kwargs = lowered(self._regions, (args, kwargs))
            elif self._regions.dtype is not None and self._regions.device != CPU:
                args, kwargs = self._regions.cast((args, kwargs), torch.float32)
            return self._composite(target, *args, **kwargs)
        return func(*args, **kwargs)

    def __enter__(self) -> WholeOperators:
        with ExitStack() as entering:
            for one in self._patches:
                entering.enter_context(one)
            super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
            entering.push(super().__exit__)
            self._inside = entering.pop_all()
        return self

    def __exit__(self, *details: Any) -> None:
        self._inside.__exit__(*details)


def _patched(
    recorder: Recorder, owner: object, name: str, instead: Callable[..., Any]
) -> AbstractContextManager[object]:
    """Patch a function for the recording thread; other threads call the original."""
    original = getattr(owner, name)

    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (instead if is_recording(recorder) else original)(*args, **kwargs)

    return replaced(owner, name, chosen)


def _has_fused_kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether a GPU has a fused kernel for attention on these tensors; else it runs matmuls and a softmax.

    ATen's `sdp_utils`: at most 32 bits a number, four dimensions, the last one contiguous, also of the mask. In half
    precision flash attention pads rows; it takes no mask, and one head size of at most 256. Elsewhere rows must begin
    at multiples of 16 bytes.
    """
    sizes = query.shape[-1], value.shape[-1]
    given = (query, key, value) if mask is None else (query, key, value, mask)
    if query.dtype not in _FUSED or query.dim() != 4 or any(tensor.stride(-1) != 1 for tensor in given):
        return False
    flash = query.dtype != torch.float32 and mask is None and sizes[0] == sizes[1] <= LARGEST_FLASH_HEAD
    return flash or all(size * query.element_size() % 16 == 0 for size in sizes)


_MULTI_HEAD = nn.MultiheadAttention.forward
_MULTI_HEAD_ARGUMENTS = inspect.signature(_MULTI_HEAD)
_NATIVE_ATTENTION = torch.ops.aten._native_multi_head_attention.default
_FAST_PATH_VIEWS = 9
"""Views counted for the fast path: chunk, view and transpose for each of query, key and value.

The unrolled forward pass makes as many views and takes as much host time (67 us against 68 at width 768, H200): the
fast path saves Python calls and spends as much on its checks.
"""


def _multi_head(recorder: Recorder, regions: Regions, module: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> Any:
    """Record multi-head attention as the operator of its fast path, which torch does not take on meta tensors.

    Nor does it take it under autocast.
    """
    with torch._C.DisableTorchFunction():  # the checks below must not be counted
        if regions.dtype is None and _takes_fast_path(
            module, _MULTI_HEAD_ARGUMENTS.bind(module, *args, **kwargs).arguments
        ):
            return _native_multi_head(module, recorder, args[0] if args else kwargs["query"]), None
    return _MULTI_HEAD(module, *args, **kwargs)


def _native_multi_head(module: nn.MultiheadAttention, recorder: Recorder, x: torch.Tensor) -> torch.Tensor:
    """Result of the fast path.

    An executable graph gets the operators that it runs on a GPU: linear layers around fused attention.
    """
    recorder.counts.count("views", _FAST_PATH_VIEWS)
    weights = (module.in_proj_weight, module.in_proj_bias, module.out_proj.weight, module.out_proj.bias)
    if recorder.exact:
        heads = (*x.shape[:2], module.num_heads, module.head_dim)
        packed = torch.nn.functional.linear(x, *weights[:2])
        query, key, value = (part.view(heads).transpose(1, 2) for part in packed.chunk(3, dim=-1))
        made = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        return torch.nn.functional.linear(made.transpose(1, 2).reshape(x.shape), *weights[2:])
    results = torch.empty(x.shape, dtype=x.dtype, device=x.device), x.new_empty(0)
    call = (x, x, x, module.embed_dim, module.num_heads, *weights, None, False)
    recorder.record(_NATIVE_ATTENTION, call, {}, results)
    for result in results:
        recorder.own(result)
    return results[0]


def _without_lists(index: Any) -> Any:
    """Convert lists of numbers in an index to CPU tensors: torch would move them to meta, where values are lost.

    A list of slices or tensors stays a list.
    """
    if isinstance(index, tuple):
        return tuple(map(_without_lists, index))
    numbers = isinstance(index, list) and all(isinstance(leaf, int) for leaf in tree_leaves(index))
    return torch.tensor(index, dtype=None if index else torch.int64, device="cpu") if numbers else index


@contextmanager
def unrolled_attention() -> Iterator[None]:
    """Disable the fast path of multi-head attention, so that each of its operators is recorded."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _takes_fast_path(module: nn.MultiheadAttention, given: Mapping[str, Any]) -> bool:
    """Whether `MultiheadAttention.forward` takes its fast path and fused attention in inference."""
    query = given["query"]
    masked = any(given.get(name) is not None for name in ("key_padding_mask", "attn_mask"))
    biased = module.in_proj_bias is not None and module.bias_k is None and module.bias_v is None
    return (
        query is given["key"] is given["value"]
        and query.dim() == 3
        and not (masked or given.get("need_weights", True))
        and not (module.training or torch.is_grad_enabled())
        and module.batch_first
        and module.in_proj_weight is not None
        and biased
        and not module.add_zero_attn
        and module.num_heads % 2 == 0
        and module.head_dim % 8 == 0
        and query.dtype == module.in_proj_weight.dtype
        and torch.backends.mha.get_fastpath_enabled()
    )


def _needing_gradient(tensor: torch.Tensor, needed: bool) -> torch.Tensor:
    """Make a tensor require a gradient as a computed value, if needed and enabled."""
    return tensor.requires_grad_().clone() if needed and torch.is_grad_enabled() else tensor


@contextmanager
def forgetful_autograd() -> Iterator[None]:
    """Enable autograd without saving tensors: only references from Python keep tensors alive."""
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: None, _forgotten):
        yield


def _forgotten(_: object) -> torch.Tensor:
    raise AssertionError("no backward pass is run while a forward pass is recorded")
