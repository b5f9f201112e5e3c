"""Stream program -> StreamIt source text, in the embedded C++ form of Dighe (2024), figures 4.6 to 4.20."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.report.escape import terminal
from costmodel.streamit.types import IDENTITY, Filter, FilterPipeline, FilterSplitJoin, Separator, Stream

_TENSORS = "<tensor_t, tensor_t>"


def streamit(program: Stream) -> str:
    """Write the source text of a program.

    A branch of a duplicate split-join is added with its joiner weight; a branch of a round-robin split-join with its
    splitter and joiner weights. A branch that only carries values is the filter `identity()`.
    """
    whole = program if isinstance(program, FilterPipeline) else FilterPipeline((program,))
    return "\n".join([*_pipeline(whole, "", ");"), ""])


def _pipeline(stream: FilterPipeline, head: str, end: str) -> Iterator[str]:
    yield f"{head}pipeline{_TENSORS}([&](auto pipe) {{"
    for child in stream.children:
        yield from _indented(_added(child))
    yield "}" + end


def _added(stream: Stream) -> Iterator[str]:
    """Stream as a child of a pipeline."""
    if isinstance(stream, FilterSplitJoin):
        kind = "roundRobin" if stream.splitter else "duplicate"
        yield f"pipe->add({kind}SplitJoin{_TENSORS}([&](auto sj) {{"
        for index, branch in enumerate(stream.branches):
            weights = [str(stream.splitter[index])] if stream.splitter else []
            inner = branch if isinstance(branch, FilterPipeline) else FilterPipeline((branch,))
            head = f"sj->add({', '.join([*weights, str(stream.joiner[index])])}, "
            yield from _indented(_pipeline(inner, head, "));"))
        yield "}));"
    elif isinstance(stream, FilterPipeline):
        yield from _pipeline(stream, "pipe->add(", "));")
    else:
        yield f"pipe->add({_name(stream)});"


def _name(stream: Filter | Separator) -> str:
    if isinstance(stream, Filter):
        return terminal(stream.name)
    return "identity()" if stream == IDENTITY else f"separator({{{', '.join(map(str, stream.weights))}}})"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)
