"""Graphs that Dynamo makes of a forward pass: where it breaks, what it gives up, and what runs eagerly in between.

The module runs under `torch._dynamo` with a backend that compiles nothing, on meta tensors where it reads no values. A
last call, which compiles no further graph, runs under a dispatch mode that logs ATen operators by the graph that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch.nn.utils import stateless
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costmodel.capture.break_reasons import in_plain_words, is_consequence
from costmodel.capture.data_dependence import source_line_of
from costmodel.capture.dynamo_caches import apart, unchanged_caches
from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.meta_tensors import RECURRENT, RECURRENT_ARGUMENTS, meta_like, recurrent_results
from costmodel.capture.model_output import muted
from costmodel.capture.module_state import untouched, without_scopes
from costmodel.concurrency import takes_turns
from costmodel.ir import Break

WARM_UP = 2
"""Calls until no further graph is compiled: a module that caches tensors compiles again at the second call."""
_MODE_FLAGS = (
    "_is_in_torch_dispatch_mode",
    "_is_in_non_infra_torch_dispatch_mode",
    "_is_in_any_mode_without_ignore_compile_internals",
)


@dataclass(frozen=True, slots=True)
class Section:
    """ATen operators that ran together, by their names without overloads: in one compiled graph, or eagerly."""

    graph: int | None
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DynamoTrace:
    """Dynamo's view of one forward pass.

    Attributes:
        sections: graphs and eager operators of a call after warm-up, in order.
        compiled: number of graphs compiled in all calls.
        breaks: graph breaks and frames given up, each once, with line and reason.
        keeps_tensors: whether the module keeps a tensor that a call computed.
    """

    sections: tuple[Section, ...]
    compiled: int
    breaks: tuple[Break, ...]
    keeps_tensors: bool = False


@takes_turns
def trace_with_dynamo(module: nn.Module, inputs: Inputs, *, on_meta: bool = True) -> DynamoTrace:
    """Run a module under Dynamo, without compiling its graphs. The module and Dynamo's caches are unchanged afterwards.

    Args:
        module: module in evaluation mode, whose eager forward pass succeeds.
        inputs: positional inputs, or a mapping of keyword inputs.
        on_meta: whether meta tensors replace parameters and inputs; else they are used, with copies of what may be
            written.

    Raises:
        Exception: any error that compilation raises, or the forward pass on meta tensors.
    """
    call = Arguments.of(inputs).like(meta_like if on_meta else torch.clone)
    state = _state(module, on_meta)
    with ExitStack() as around:
        for context in (
            unchanged_caches(),
            untouched(module),
            without_scopes(),
            _without_modes(),
            muted(),
            torch.no_grad(),
        ):
            around.enter_context(context)
        around.enter_context(torch.random.fork_rng(devices=[]))
        around.enter_context(stateless._reparametrize_module(module, state, tie_weights=True))
        before = set(map(id, _kept_tensors(module)))
        found = _listened(Listener(), module, call)
        return replace(found, keeps_tensors=any(id(kept) not in before for kept in _kept_tensors(module)))


@contextmanager
def _without_modes() -> Iterator[None]:
    """Context without the dispatch modes of outer calls, such as the one that records a module that predicts another.

    Torch's flags of modes are of the whole process, and stay set in one forked while another thread is in a mode.
    """
    with ExitStack() as around:
        around.enter_context(_python_dispatch._disable_current_modes())
        for flag in _MODE_FLAGS:
            if hasattr(_python_dispatch, flag):  # private to torch
                around.enter_context(patch.object(_python_dispatch, flag, False))
        yield


def _state(module: nn.Module, on_meta: bool) -> dict[str, torch.Tensor]:
    """Stand-ins for parameters and buffers: meta tensors, or the parameters themselves and copies of buffers."""
    made: dict[int, torch.Tensor] = {}
    for parameter in module.parameters():
        made[id(parameter)] = nn.Parameter(meta_like(parameter), parameter.requires_grad) if on_meta else parameter
    for buffer in module.buffers():
        made[id(buffer)] = meta_like(buffer) if on_meta else buffer.clone()
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: made[id(tensor)] for name, tensor in named}


def _kept_tensors(module: nn.Module) -> list[torch.Tensor]:
    """Tensors in plain attributes of modules, also inside lists, tuples and dicts."""
    registries = ("_parameters", "_buffers", "_modules")
    attributes = [value for child in module.modules() for name, value in vars(child).items() if name not in registries]
    return [leaf for leaf in tree_leaves(attributes) if isinstance(leaf, torch.Tensor)]


def _listened(listener: Listener, module: nn.Module, call: Arguments) -> DynamoTrace:
    """Call a module under Dynamo until it compiles nothing new, then once more for the log."""
    import torch._dynamo as dynamo

    compiled = dynamo.optimize(listener.backend, **apart())(module)
    hearing = listener.hearing(dynamo.exc.Unsupported.__init__)
    with patch.object(dynamo.exc.Unsupported, "__init__", hearing), listener.whole_recurrent_layers():
        for _ in range(WARM_UP):
            call.passed_to(compiled)
        with listener:
            call.passed_to(compiled)
    return listener.trace()


class Listener(TorchDispatchMode):
    """Backend of Dynamo that runs graphs as they are, and dispatch mode that logs operators by graph."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self._heard: list[_Heard] = []
        self._sections: list[tuple[int | None, list[str]]] = [(None, [])]
        self._compiled = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell Dynamo that it may run compiled code under this mode."""
        return True

    def backend(self, graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph to itself; the signature of a backend of torch.compile."""
        number, self._compiled = self._compiled, self._compiled + 1
        reason: Any = graph.compile_subgraph_reason
        if reason.graph_break:
            self._heard.append(_Heard(reason.reason, reason, is_break=True))

        def run(*args: Any) -> Any:
            self._sections.append((number, []))
            try:
                return graph.forward(*args)
            finally:
                self._sections.append((None, []))

        return run

    def hearing(self, initialise: Callable[..., None]) -> Callable[..., None]:
        """Initialiser of Dynamo's `Unsupported` that also keeps the exception."""

        def init(error: Any, *args: Any, **kwargs: Any) -> None:
            initialise(error, *args, **kwargs)
            self._heard.append(_Heard(error.msg, error, is_break=False))

        return init

    @contextmanager
    def whole_recurrent_layers(self) -> Iterator[None]:
        """Run recurrent layers, which Dynamo leaves out of its graphs, as one operator each on meta tensors.

        Torch would unroll their steps there.
        """
        with ExitStack() as patches:
            for name in () if getattr(torch._dynamo.config, "allow_rnn", False) else RECURRENT:
                layer = torch.compiler.disable(self._whole(name))
                patches.enter_context(patch.object(torch._VF, name, layer))
            yield

    def _whole(self, name: str) -> Callable[..., Any]:
        original = getattr(torch._VF, name)

        def layer(*args: Any) -> Any:
            if not args[0].is_meta or len(args) != RECURRENT_ARGUMENTS:
                return original(*args)
            self._sections[-1][1].append(name)
            with torch._C._DisableTorchDispatch():
                return recurrent_results(args)

        return layer

    def __enter__(self) -> Listener:
        self._sections = [(None, [])]
        super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._sections[-1][1].append(base_name(func))
        return func(*args, **(kwargs or {}))

    def trace(self) -> DynamoTrace:
        """Dynamo's view of the logged call."""
        sections = tuple(Section(number, tuple(ops)) for number, ops in self._sections if number is not None or ops)
        return DynamoTrace(sections, self._compiled, self._breaks(len(sections) > 1))

    def _breaks(self, is_divided: bool) -> tuple[Break, ...]:
        """Breaks in the order in which Dynamo met them, each line once.

        A break right after another one ends no graph, and neither does one where a function is given up: there is only
        the error that Dynamo raised inside.
        """
        known = {item.source for item in self._heard if item.is_break}
        is_divided = is_divided or not self._compiled
        found: dict[str, Break] = {}
        for item in self._heard:
            if item.is_break or (is_divided and item.source not in known and not is_consequence(item.reason)):
                found.setdefault(item.source, Break("cut", in_plain_words(item.reason), "", item.source))
        return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Heard:
    """Reason that Dynamo gives at a line: of a graph that ends there, or of an error that it handles itself."""

    reason: str
    cause: Any
    is_break: bool

    @property
    def source(self) -> str:
        """Line of the model's code."""
        return source_line_of(getattr(self.cause, "real_stack", None) or getattr(self.cause, "user_stack", None) or ())


def base_name(func: Any) -> str:
    """Name of an operator in the IR, without overload and without the underscore of an in-place variant."""
    name: str = func._schema.name.removeprefix("aten::").replace("::", "_")
    return name.removesuffix("_")
