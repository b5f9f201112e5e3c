"""Capture of a planned program in one CUDA graph, and its replay."""

from __future__ import annotations

import statistics
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import torch

from costmodel.execution.regions import PlannedProgram

TURNS = 15
"""Calls of each of two captures of a program, to choose between them."""


@contextmanager
def searching(wanted: bool) -> Iterator[None]:
    """Let cuDNN time its algorithms for each new convolution and take the fastest, if wanted."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def is_capturing() -> bool:
    """Whether the caller captures a CUDA graph, in which nothing may be compiled, measured or captured."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _free_workspaces() -> None:
    """Let cuBLAS forget the workspaces that it keeps for streams, as torch.compile does around its captures."""
    with suppress(AttributeError):  # private to torch
        torch._C._cuda_clearCublasWorkspaces()


class Pool:
    """Memory that the CUDA graphs of a device share, and the turn to use it.

    A replay copies its inputs in and its outputs out, so intermediate results of one graph may lie where those of
    another do, as long as one runs at a time. They do where they fit: a graph for smaller inputs, captured later, needs
    hardly any memory of its own, one for larger inputs all of it.

    A graph without work keeps the memory from being returned between two captures; when no captured program is left,
    the pool goes and its memory with it.

    Attributes:
        stream: stream on which graphs are captured.
        sides: further streams, for programs on several.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._last: torch.cuda.Stream | None = None
        self.stream = torch.cuda.Stream(device)
        self.sides: list[torch.cuda.Stream] = []
        self._first = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._first, stream=self.stream, capture_error_mode="thread_local"):
            self._held = torch.zeros(1, device=device)

    @contextmanager
    def capturing(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Context that captures a graph in this memory; other threads may use the device meanwhile.

        cuBLAS keeps the workspace of a stream. One that was allocated before would not be the graph's: torch.compile's
        CUDA graphs free it, and replays would write into memory of others. So it is allocated within the capture.
        """
        try:
            _free_workspaces()
            with torch.cuda.graph(graph, self._first.pool(), self.stream, capture_error_mode="thread_local"):
                yield
            _free_workspaces()  # no other call may use the graph's
        except BaseException:
            self._leave_failed_capture()
            raise

    def _leave_failed_capture(self) -> None:
        """End what torch leaves open after a failed capture, so that the process can go on.

        The allocator would go on to use the pool for its stream, and the random generator believe in a capture. Later
        programs get another pool.
        """
        index = self._device.index or 0
        with suppress(RuntimeError, AttributeError):  # private to torch; an error where torch has ended it
            torch._C._cuda_endAllocateToPool(index, self._first.pool())
        with suppress(RuntimeError, AttributeError):
            generator = torch.cuda.default_generators[index]
            generator.graphsafe_set_state(generator.clone_state())
        if _pools.get(self._device) is self:
            del _pools[self._device]

    def streams(self, count: int) -> list[torch.cuda.Stream]:
        """The stream of captures and further ones: `count` in all."""
        while len(self.sides) < count - 1:
            self.sides.append(torch.cuda.Stream(self._device))
        return [self.stream, *self.sides[: count - 1]]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Context in which the current stream alone uses the memory; it first waits for the stream of the last turn."""
        with self._lock:
            stream = torch.cuda.current_stream(self._device)
            if self._last is not None and stream != self._last:
                stream.wait_stream(self._last)
            self._last = stream
            yield


_pools: weakref.WeakValueDictionary[torch.device, Pool] = weakref.WeakValueDictionary()
_making = threading.Lock()


def pool_of(device: torch.device) -> Pool:
    """Pool of a device, made on first use."""
    with _making:
        found = _pools.get(device)
        if found is None:
            found = _pools[device] = Pool(device)
        return found


def quicker(first: Replay, second: Replay, inputs: Sequence[torch.Tensor]) -> Replay:
    """Of two captures of one program, the one with the shorter median time of a call, host and device, by turns."""
    seconds: dict[Replay, list[float]] = {first: [], second: []}
    for _ in range(TURNS):
        for replay, times in seconds.items():
            begin = time.perf_counter()
            replay.run(inputs)
            torch.cuda.synchronize(replay.device)
            times.append(time.perf_counter() - begin)
    return min(seconds, key=lambda replay: statistics.median(seconds[replay]))


class Replay:
    """CUDA graph of a program, with its own inputs; a call copies inputs in, replays, and copies outputs out.

    Attributes:
        program: captured program; kept alive, for the graph reads its parameters in place.
        device: GPU of the graph.

    Args:
        program: program to capture.
        inputs: inputs of the shapes and types to capture for.
        device: GPU to capture on.
    """

    def __init__(self, program: PlannedProgram, inputs: Sequence[torch.Tensor], device: torch.device) -> None:
        self.program = program
        self.device = device
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device):
            self._pool = pool_of(device)
            self._inputs = [tensor.clone(memory_format=torch.preserve_format) for tensor in inputs]
            self._warm_up()
            with self._pool.turn(), self._pool.capturing(self._graph):
                self._outputs = self._recorded()

    def _warm_up(self) -> None:
        """Run the program twice: the first call compiles and searches algorithms, and libraries allocate workspaces."""
        stream = self._pool.stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.program.run(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)

    def _recorded(self) -> list[torch.Tensor]:
        program = self.program
        if program.streams > 1:
            return program.fork(self._inputs, self._pool.streams(program.streams))
        return program.run(self._inputs)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Replay the graph, and return copies of its outputs; inside another capture, run the program itself."""
        with torch.cuda.device(self.device):
            if torch.cuda.is_current_stream_capturing():
                return self.program.run(inputs)
            with self._pool.turn():
                for static, given in zip(self._inputs, inputs, strict=True):
                    static.copy_(given)
                self._graph.replay()
                return [output.clone() for output in self._outputs]
