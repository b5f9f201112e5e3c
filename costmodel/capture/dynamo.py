"""Graphs that Dynamo makes of a forward pass: where it breaks, what it gives up, and what runs eagerly in between.

The module runs under `torch._dynamo` with a backend that compiles nothing, on meta tensors where it reads no values. A
last call, which compiles no further graph, runs under a dispatch mode that logs ATen operators by the graph that runs.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch.nn.utils import stateless
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costmodel.capture.break_reasons import in_plain_words
from costmodel.capture.data_dependence import source_line_of
from costmodel.capture.inputs import Arguments, Inputs
from costmodel.capture.meta_tensors import meta_like
from costmodel.capture.module_state import untouched
from costmodel.concurrency import takes_turns
from costmodel.errors import first_line, text_of
from costmodel.ir import Break

WARM_UP = 2
"""Calls until no further graph is compiled: a module that caches tensors compiles again at the second call."""
ROOMY = 256
"""Dynamo's limit of graphs for one function where the process has compiled models before, which count too."""


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
    """Run a module under Dynamo, without compiling its graphs.

    The module is unchanged afterwards. If the process has compiled nothing yet, Dynamo's caches are empty afterwards.

    Args:
        module: module in evaluation mode, whose eager forward pass succeeds.
        inputs: positional inputs, or a mapping of keyword inputs.
        on_meta: whether meta tensors replace parameters and inputs; else they are used, with copies of what may be
            written.

    Raises:
        Exception: any error that compilation raises, or the forward pass on meta tensors.
    """
    import torch._dynamo as dynamo

    had_compiled = bool(dynamo.convert_frame.output_codes.seen)
    call = Arguments.of(inputs).like(meta_like if on_meta else torch.clone)
    limit = ROOMY if had_compiled else None
    try:
        with untouched(module), _silence(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            with stateless._reparametrize_module(module, _state(module, on_meta), tie_weights=True):
                before = set(map(id, _kept_tensors(module)))
                found = _listened(Listener(), module, call, limit)
                return replace(found, keeps_tensors=any(id(kept) not in before for kept in _kept_tensors(module)))
    finally:
        if not had_compiled:
            dynamo.reset()


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
    attributes = [
        value for child in module.modules() for name, value in vars(child).items() if name not in registries
    ]
    return [leaf for leaf in tree_leaves(attributes) if isinstance(leaf, torch.Tensor)]


def _listened(listener: Listener, module: nn.Module, call: Arguments, limit: int | None) -> DynamoTrace:
    """Call a module under Dynamo until it compiles nothing new, then once more for the log."""
    import torch._dynamo as dynamo

    compiled = dynamo.optimize(listener.backend)(module)
    with patch.object(dynamo.exc.Unsupported, "__init__", listener.hearing(dynamo.exc.Unsupported.__init__)):
        with dynamo.config.patch({} if limit is None else {"cache_size_limit": limit}):
            for _ in range(WARM_UP):
                call.passed_to(compiled)
            with listener:
                call.passed_to(compiled)
    return listener.trace()


class Listener(TorchDispatchMode):
    """Backend of Dynamo that runs graphs as they are, and dispatch mode that logs operators by graph."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self._breaks: list[Break] = []
        self._unsupported: list[Any] = []
        self._sections: list[tuple[int | None, list[str]]] = []
        self._running: int | None = None
        self._compiled = 0
        self._is_logging = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell Dynamo that it may run compiled code under this mode."""
        return True

    def backend(self, graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph to itself; the signature of a backend of torch.compile."""
        number, self._compiled = self._compiled, self._compiled + 1
        reason: Any = graph.compile_subgraph_reason
        if reason.graph_break:
            self._note(reason.reason, reason.user_stack)

        def run(*args: Any) -> Any:
            self._running = number
            self._sections.append((number, []))
            try:
                return graph.forward(*args)
            finally:
                self._running = None
                self._sections.append((None, []))

        return run

    def hearing(self, initialise: Callable[..., None]) -> Callable[..., None]:
        """Initialiser of Dynamo's `Unsupported` that also keeps the exception."""

        def init(error: Any, *args: Any, **kwargs: Any) -> None:
            initialise(error, *args, **kwargs)
            self._unsupported.append(error)

        return init

    def __enter__(self) -> Listener:
        self._sections = [(None, [])]
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._sections[-1][1].append(base_name(func))
        return func(*args, **(kwargs or {}))

    def trace(self) -> DynamoTrace:
        """Dynamo's view of the logged call."""
        sections = tuple(
            Section(number, tuple(ops)) for number, ops in self._sections if number is not None or ops
        )
        if any(section.graph is None for section in sections):
            known = {item.source for item in self._breaks}
            for error in self._unsupported:
                if source_line_of(error.real_stack) not in known:
                    self._note(error.msg, error.real_stack)
        return DynamoTrace(sections, self._compiled, tuple(dict.fromkeys(self._breaks)))

    def _note(self, reason: str, stack: Any) -> None:
        self._breaks.append(Break("cut", in_plain_words(reason), "", source_line_of(stack)))


def base_name(func: Any) -> str:
    """Name of an operator in the IR, without overload and without the underscore of an in-place variant."""
    name: str = func._schema.name.removeprefix("aten::").replace("::", "_")
    return name.removesuffix("_")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Context without output of the model, logs and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    hidden = io.StringIO()
    try:
        with contextlib.redirect_stdout(hidden), contextlib.redirect_stderr(hidden), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
