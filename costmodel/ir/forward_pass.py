"""Facts of a forward pass beside its operators: where it depends on data, its Python calls, and its modules."""

from __future__ import annotations

import re
from dataclasses import dataclass

from costmodel.ir.names import written_name

_QUOTED_IF = re.compile(r"[\s'\"]")
"""Characters for which the operator of a break, which may be a sentence, is quoted."""


@dataclass(frozen=True, slots=True)
class Break:
    """A place where the forward pass depends on the values of a tensor, so that the graph is incomplete.

    Attributes:
        kind: `size`: a result size that depends on data was assumed to be its maximum; `stop`: the graph ends here;
            `cut`: a graph break of Dynamo, which continues in another graph.
        op: the operator; `control_flow` if Python code read the values; for a `cut`, Dynamo's reason.
        module: module that was running.
        source: file and line in the model's code.
        missed: for a `stop`, outermost modules with parameters that did not run.
    """

    kind: str
    op: str
    module: str
    source: str
    missed: tuple[str, ...] = ()

    def __str__(self) -> str:
        missed = f" misses {','.join(map(written_name, self.missed))}" if self.missed else ""
        op = repr(self.op) if _QUOTED_IF.search(self.op) or not self.op.isprintable() else self.op
        return f"break {self.kind} {op} @{written_name(self.module)} {written_name(self.source)}{missed}"


@dataclass(frozen=True, slots=True)
class Calls:
    """Counts of Python calls in one forward pass that compute nothing but take host time in eager execution.

    Attributes:
        modules: calls of submodules.
        views: calls of functions that only make views.
        idle: calls of functions that dispatch nothing: dropout in evaluation mode, conversion to the current dtype.
        queries: queries of a tensor's shape, dtype or device.
        writes: writes of constants into parts of constants, as in building a mask; compilers fold them, so that the
            graph has no operator for them.
    """

    modules: int = 0
    views: int = 0
    idle: int = 0
    queries: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """A module of the captured model, as the user wrote it.

    Attributes:
        name: path in `named_modules()`, written as in operators; empty for the model itself.
        type: name of its class.
        parameters: elements of the parameters that it holds itself; one that modules share counts for the first.
    """

    name: str
    type: str
    parameters: int
