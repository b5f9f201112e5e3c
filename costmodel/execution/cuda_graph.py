"""A program captured in one CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from costmodel.execution.regions import Program


@contextmanager
def searching(wanted: bool) -> Iterator[None]:
    """Inside, cuDNN times its algorithms for each new convolution and takes the fastest, if wanted."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class Replay:
    """A program captured in one CUDA graph with inputs of its own; a call copies into them, replays, and copies out.

    Attributes:
        program: what was captured; kept, for the graph reads its parameters where they lie.

    Args:
        program: what is captured.
        inputs: of the kind that it is for.
    """

    def __init__(self, program: Program, inputs: Sequence[torch.Tensor]) -> None:
        self.program = program
        self._stream = torch.cuda.current_stream()
        self._inputs = [tensor.clone(memory_format=torch.preserve_format) for tensor in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # the first call compiles and searches; libraries make their workspaces
                program.run(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            if program.lanes > 1:
                others = [torch.cuda.Stream() for _ in range(program.lanes - 1)]
                self._outputs = program.fork(self._inputs, [torch.cuda.current_stream(), *others])
            else:
                self._outputs = program.run(self._inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs of one pass, in memory of their own; after all that was issued to the last call's stream."""
        stream = torch.cuda.current_stream()
        if stream != self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream
        for static, given in zip(self._inputs, inputs, strict=True):
            static.copy_(given)
        self._graph.replay()
        return [output.clone() for output in self._outputs]
