"""Capture of a planned program in one CUDA graph, and its replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from costmodel.execution.regions import PlannedProgram


@contextmanager
def searching(wanted: bool) -> Iterator[None]:
    """Let cuDNN time its algorithms for each new convolution and take the fastest, if wanted."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class Replay:
    """CUDA graph of a program, with its own inputs; a call copies inputs in, replays, and copies outputs out.

    Attributes:
        program: captured program; kept alive, for the graph reads its parameters in place.

    Args:
        program: program to capture.
        inputs: inputs of the shapes and types to capture for.
    """

    def __init__(self, program: PlannedProgram, inputs: Sequence[torch.Tensor]) -> None:
        self.program = program
        self._stream = torch.cuda.current_stream()
        self._inputs = [tensor.clone(memory_format=torch.preserve_format) for tensor in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # the first call compiles and searches algorithms; libraries allocate workspaces
                program.run(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            if program.streams > 1:
                others = [torch.cuda.Stream() for _ in range(program.streams - 1)]
                self._outputs = program.fork(self._inputs, [torch.cuda.current_stream(), *others])
            else:
                self._outputs = program.run(self._inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Replay the graph, and return copies of its outputs; waits for the stream of the last call."""
        stream = torch.cuda.current_stream()
        if stream != self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream
        for static, given in zip(self._inputs, inputs, strict=True):
            static.copy_(given)
        self._graph.replay()
        return [output.clone() for output in self._outputs]
