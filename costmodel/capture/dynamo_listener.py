"""Listener to Dynamo while a module runs: graphs and operators by section, graph breaks, repeated compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from costmodel.capture.break_reasons import in_plain_words, is_consequence, is_recompile_limit
from costmodel.capture.data_dependence import NO_LINE, source_line_in, source_line_of
from costmodel.capture.fake_gpu import as_fake
from costmodel.capture.guard_reasons import what_changes
from costmodel.capture.meta_runs import MetaRuns
from costmodel.capture.meta_tensors import RECURRENT, RECURRENT_ARGUMENTS, recurrent_results, tensors_of
from costmodel.ir import Break
from costmodel.zoo.placement import wraps_others


@dataclass(frozen=True, slots=True)
class Section:
    """ATen operators that ran together, by their names without overloads: in one compiled graph, or eagerly."""

    graph: int | None
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DynamoTrace:
    """Dynamo's view of one forward pass.

    Attributes:
        sections: graphs and eager operators of a call that compiles nothing, in order.
        compiled: number of graphs compiled in all calls.
        breaks: graph breaks and frames given up, each once, with line and reason.
        recompiled: what makes Dynamo compile again in later calls, each once, with its line.
        reads_kept: whether a call reads a tensor that a compiled graph of an earlier call made.
    """

    sections: tuple[Section, ...]
    compiled: int
    breaks: tuple[Break, ...]
    recompiled: tuple[str, ...] = ()
    reads_kept: bool = False


@dataclass(frozen=True, slots=True)
class _Heard:
    """Reason that Dynamo gives at a line: of a graph that ends there, or of an error that it handles itself."""

    reason: str
    source: str
    is_break: bool


class Listener(TorchDispatchMode):
    """Backend of Dynamo that runs graphs as they are, and dispatch mode that logs operators by graph.

    Attributes:
        compiled: number of graphs compiled so far.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        self.compiled = 0
        self._heard: list[_Heard] = []
        self._sections: list[tuple[int | None, list[str]]] = [(None, [])]
        self._recompiled: dict[tuple[str, str], None] = {}
        self._kept = _KeptResults()
        self._runs = MetaRuns()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Tell Dynamo that it may run compiled code under this mode."""
        return True

    def backend(self, graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph to itself; the signature of a backend of torch.compile."""
        number, self.compiled = self.compiled, self.compiled + 1
        reason: Any = graph.compile_subgraph_reason
        if reason.graph_break:
            self._heard.append(_Heard(reason.reason, _source(reason), is_break=True))

        def run(*args: Any) -> Any:
            ops: list[str] = []
            self._sections.append((number, ops))
            self._kept.read(args)
            try:
                given = tree_map_only(torch.Tensor, as_fake, args)
                result = self._runs.result(number, given, ops, lambda: graph.forward(*given))
            finally:
                self._sections.append((None, []))
            self._kept.keep(result, args)
            return result

        return run

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Hear Dynamo's errors and recompilations, and keep recurrent layers whole."""
        import torch._dynamo as dynamo
        from torch._dynamo import convert_frame

        with ExitStack() as patches:
            initialise = self._hearing_errors(dynamo.exc.Unsupported.__init__)
            patches.enter_context(patch.object(dynamo.exc.Unsupported, "__init__", initialise))
            name = "get_and_maybe_log_recompilation_reasons"
            if hasattr(convert_frame, name):  # private to torch
                reasons = self._hearing_recompilations(getattr(convert_frame, name))
                patches.enter_context(patch.object(convert_frame, name, reasons))
            patches.enter_context(self._whole_recurrent_layers())
            yield

    def _hearing_errors(self, initialise: Callable[..., None]) -> Callable[..., None]:
        """Initialiser of Dynamo's `Unsupported` that also keeps the message."""

        def init(error: Any, *args: Any, **kwargs: Any) -> None:
            initialise(error, *args, **kwargs)
            if is_recompile_limit(error.msg) and self._recompiled:
                source, reason = next(reversed(self._recompiled))
                self._heard.append(_Heard(f"{reason} in each call{_UNTIL_LIMIT}", source, is_break=True))
            else:
                self._heard.append(_Heard(error.msg, _source(error), is_break=False))

        return init

    def _hearing_recompilations(self, reasons_of: Callable[..., list[str]]) -> Callable[..., list[str]]:
        """Dynamo's function that finds which checks of compiled code failed, and that keeps the last one."""

        def reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> list[str]:
            found = reasons_of(entries, frame, *args, **kwargs)
            if found:
                self._recompiled[_line_of(found[0], frame.f_code), what_changes(found[0])] = None
            return found

        return reasons

    @contextmanager
    def _whole_recurrent_layers(self) -> Iterator[None]:
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

    def begin_call(self) -> None:
        """Start the log anew."""
        self._sections = [(None, [])]
        self._kept.calls += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._kept.read((args, kwargs))
        if isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs or {})
        if func.namespace != "prim":  # a question, such as for the device of a fake tensor
            self._sections[-1][1].append(base_name(func))
        return func(*args, **kwargs) if kwargs else self._runs.result(func, args, [], lambda: func(*args))

    def _higher_order(self, func: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
        """Run an operator on functions; of `torch.cond`, log the branch that is taken."""
        if func is not torch.ops.higher_order.cond:
            return func(*args, **kwargs)
        self._sections[-1][1].append("_local_scalar_dense")
        pred, true_fn, false_fn, operands = args
        with self:
            return (true_fn if pred else false_fn)(*operands)

    def trace(self) -> DynamoTrace:
        """Dynamo's view of the logged call."""
        sections = tuple(Section(number, tuple(ops)) for number, ops in self._sections if number is not None or ops)
        is_divided = len(sections) > 1 or all(section.graph is None for section in sections)
        recompiled = tuple(f"{reason} ({source})" for source, reason in self._recompiled)
        return DynamoTrace(sections, self.compiled, self._breaks(is_divided), recompiled, self._kept.were_read)

    def _breaks(self, is_divided: bool) -> tuple[Break, ...]:
        """Breaks in the order in which Dynamo met them, each line once.

        A break right after another one ends no graph, and neither does one where a function is given up: there is only
        the error that Dynamo raised inside. Where a break says only that what follows is given up, the error says why.
        """
        known = {item.source for item in self._heard if item.is_break}
        is_divided = is_divided or not self.compiled
        causes: dict[str, str] = {}
        for item in self._heard:
            if not is_consequence(item.reason):
                causes.setdefault(item.source, item.reason)
        found: dict[str, Break] = {}
        for item in self._heard:
            if item.is_break or (is_divided and item.source not in known and not is_consequence(item.reason)):
                reason = causes.get(item.source, item.reason) if is_consequence(item.reason) else item.reason
                found.setdefault(item.source, Break("cut", in_plain_words(reason), "", item.source))
        return tuple(found.values())


_UNTIL_LIMIT = ": compiled up to torch._dynamo.config.recompile_limit, then run eagerly"


class _KeptResults:
    """Results of compiled graphs, which a later call may read where the module keeps them.

    Attributes:
        calls: calls so far.
        were_read: whether a call has read a result of an earlier call.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.were_read = False
        self._made: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(self, result: Any, given: Any) -> None:
        """Note the tensors that a graph made; those on the memory of its arguments are not made by it."""
        outside = set(map(_memory_of, tensors_of(given)))
        for tensor in tensors_of(result):
            if (memory := _memory_of(tensor)) not in outside:
                self._made[memory] = self.calls, tensor

    def read(self, given: Any) -> None:
        """Note whether tensors that are read are results of an earlier call."""
        for tensor in tensors_of(given) if self._made and not self.were_read else ():
            made, _ = self._made.get(_memory_of(tensor), (self.calls, None))
            self.were_read |= made < self.calls


def _memory_of(tensor: torch.Tensor) -> int:
    """Identity of the memory of a tensor that is alive."""
    return id(tensor) if wraps_others(tensor) or tensor.layout is not torch.strided else tensor.untyped_storage()._cdata


def _source(cause: Any) -> str:
    """Line of the model's code that an error or reason of Dynamo is about."""
    return source_line_of(getattr(cause, "real_stack", None) or getattr(cause, "user_stack", None) or ())


def _line_of(reason: str, code: CodeType) -> str:
    """Line of the model's code that a failed check is about; the function's first line if it is not known."""
    line = source_line_in(reason)
    return source_line_in(f'File "{code.co_filename}", line {code.co_firstlineno}') if line == NO_LINE else line


def base_name(func: Any) -> str:
    """Name of an operator in the IR, without overload and without the underscore of an in-place variant."""
    name: str = func._schema.name.removeprefix("aten::").replace("::", "_")
    return name.removesuffix("_")
