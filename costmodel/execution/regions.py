"""Regions of a plan -> callables, and the program that runs them in order.

Each region becomes a callable; equal regions share one. Values that depend on parameters alone are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from costmodel.capture.executable import Exact
from costmodel.errors import PlanError
from costmodel.execution.fx_module import build_module
from costmodel.execution.inductor_compile import compile_module
from costmodel.execution.numerics import allowed_error, worst_error
from costmodel.execution.shared_parameters import prepare_once
from costmodel.ir import Graph, Ref
from costmodel.ir.subgraph import Cutter, Part, fused_part
from costmodel.planning.plan import Region
from costmodel.planning.stream_assignment import barriers
from costmodel.rewrites.hoist_constants import HoistedGraph

Call = Callable[..., Sequence[torch.Tensor]]
REGION_ERROR = 5e-4
"""Relative difference allowed between two backends of a region, before `numerics.FACTOR`: a rounding to TF32."""


@dataclass(frozen=True, slots=True)
class Step:
    """Region as a callable that reads and writes values by name.

    Attributes:
        region: region of the plan.
        call: callable that runs it.
        inputs: values that it reads, in order.
        outputs: values that it computes, in order.
        last: values that no later step reads.
        after: numbers of the steps whose outputs it reads.
    """

    region: Region
    call: Call
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    last: tuple[Ref, ...]
    after: tuple[int, ...]


class PlannedProgram:
    """Regions of a plan as callables, for inputs of one signature on one device.

    Attributes:
        steps: steps in execution order.
        streams: number of CUDA streams.
    """

    def __init__(
        self, main: Graph, regions: Sequence[Region], params: Mapping[str, torch.Tensor], calls: dict[str, Call]
    ) -> None:
        self._main = main
        self._params = {Ref(value.name): params[value.name] for value in main.values if value.role == "param"}
        self._calls = calls
        self.steps = self._steps(regions)
        self.streams = 1 + max((region.stream for region in regions), default=0)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run one pass step by step, and return the outputs."""
        values = self._values(inputs)
        for step in self.steps:
            values.update(zip(step.outputs, step.call(*[values[ref] for ref in step.inputs]), strict=True))
            for ref in step.last:
                del values[ref]
        return [values[ref] for ref in self._main.outputs]

    def _values(self, inputs: Sequence[torch.Tensor]) -> dict[Ref, torch.Tensor]:
        """Parameters and inputs by name."""
        return self._params | {Ref(value.name): x for value, x in zip(self._main.inputs, inputs, strict=True)}

    def fork(self, inputs: Sequence[torch.Tensor], streams: Sequence[torch.cuda.Stream]) -> list[torch.Tensor]:
        """Run one pass with each region on its CUDA stream, and return the outputs.

        The allocator reuses a stream's memory for later work on that stream, while another stream may still read it.
        So values are freed only after a step beside which nothing runs.

        Args:
            inputs: of the pass.
            streams: one for each of `self.streams`; the first is the current stream.
        """
        values = self._values(inputs)
        start = streams[0].record_event()
        ended: list[torch.cuda.Event] = []
        started = {0}
        alone = barriers([step.after for step in self.steps])
        dead: list[Ref] = []
        for number, step in enumerate(self.steps):
            index = step.region.stream
            stream = streams[index]
            if index not in started:
                started.add(index)
                stream.wait_event(start)
            for before in step.after:
                if self.steps[before].region.stream != index:
                    stream.wait_event(ended[before])
            with torch.cuda.stream(stream):
                values.update(zip(step.outputs, step.call(*[values[ref] for ref in step.inputs]), strict=True))
                ended.append(stream.record_event())
            dead += step.last
            if number in alone:
                for ref in dead:
                    del values[ref]
                dead = []
        for index in started - {0}:
            streams[0].wait_event(streams[index].record_event())
        return [values[ref] for ref in self._main.outputs]

    def faulty(self, inputs: Sequence[torch.Tensor]) -> tuple[tuple[Region, float], ...]:
        """Find regions whose results differ from eager execution on the same operands, with the relative error.

        The error is infinite for a region whose backend raises.
        """
        values = self._values(inputs)
        cutter = Cutter(self._main)
        found = []
        for step in self.steps:
            operands = [values[ref] for ref in step.inputs]
            try:
                expected = build_module(cutter.cut(step.region.ops).graph)(*operands)
            except RuntimeError:  # eager execution itself fails: no backend is at fault
                break
            if step.region.backend != "eager":
                error = _error_of(step.call, operands, expected)
                if error > allowed_error(expected, REGION_ERROR, (operand.dtype for operand in operands)):
                    found.append((step.region, error))
            values.update(zip(step.outputs, expected, strict=True))
        return tuple(found)

    def region_times(
        self, inputs: Sequence[torch.Tensor], measure: Callable[[Callable[[], object], Region], float | None]
    ) -> tuple[float | None, ...]:
        """Measure each region alone, on the operands that it has in a pass.

        Args:
            inputs: inputs of the pass.
            measure: takes a call that runs a region, and the region; returns microseconds, or None.
        """
        values = self._values(inputs)
        found = []
        for step in self.steps:
            call = partial(step.call, *[values[ref] for ref in step.inputs])
            found.append(measure(call, step.region))
            values.update(zip(step.outputs, call(), strict=True))
            for ref in step.last:
                del values[ref]
        return tuple(found)

    def _steps(self, regions: Sequence[Region]) -> tuple[Step, ...]:
        cutter = Cutter(self._main)
        parts = [cutter.cut(region.ops) for region in regions]
        makers = {ref.name: number for number, part in enumerate(parts) for ref in part.outputs}
        kept = set(self._main.outputs) | self._params.keys()
        steps: list[Step] = []
        for region, part in zip(reversed(regions), reversed(parts), strict=True):
            last = tuple(ref for ref in dict.fromkeys((*part.inputs, *part.outputs)) if ref not in kept)
            kept.update(last)
            after = tuple(dict.fromkeys(makers[ref.name] for ref in part.inputs if ref.name in makers))
            steps.append(Step(region, self._call(region.backend, part), part.inputs, part.outputs, last, after))
        return tuple(reversed(steps))

    def _call(self, backend: str, part: Part) -> Call:
        key = f"{backend}\n{part.graph}"
        if key not in self._calls:
            self._calls[key] = _made(backend, part)
        return self._calls[key]


def _error_of(call: Call, operands: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    try:
        return worst_error(call(*operands), expected)
    except Exception:  # noqa: BLE001 - a compiler may raise anything; the region can run eagerly
        return math.inf


def _made(backend: str, part: Part) -> Call:
    if backend == "inductor":
        return _Compiled(part.graph)
    fused = fused_part(part) if backend == "cudnn" else None
    return build_module((fused or part).graph)


class _Compiled:
    """Region that Inductor compiles at its first call, for the shapes and strides of that call."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._call: Call | None = None

    def __call__(self, *arguments: torch.Tensor) -> Sequence[torch.Tensor]:
        if self._call is None:
            self._call = compile_module(build_module(self._graph), arguments)
        return self._call(*arguments)


def prepare(
    hoisted: HoistedGraph, exact: Exact, state: Mapping[str, torch.Tensor], device: torch.device
) -> dict[str, Any]:
    """Compute the parameters of a hoisted graph's main part, by name: original ones and hoisted values.

    Programs of the same parameters share hoisted values that are computed alike.

    Args:
        hoisted: graph split by `hoist_constants`.
        exact: captured pass, which holds constant tensors.
        state: parameters and buffers of the module by name.
        device: device of the constants.

    Raises:
        PlanError: a constant has no values.
    """
    if lost := next((key for key, tensor in exact.constants.items() if tensor.is_meta), None):
        raise PlanError(f"{exact.graph.name} reads a tensor ({lost}) that is not a parameter; register it as a buffer")
    known = {key: tensor.detach() for key, tensor in state.items()}
    known |= {key: tensor.to(device) for key, tensor in exact.constants.items()}
    given = [known[value.name] for value in hoisted.preparation.values]
    with torch.no_grad():
        made = prepare_once(
            hoisted.preparation, given, device, lambda: build_module(hoisted.preparation, device)(*given)
        )
    new = [value.name for value in hoisted.main.values if value.role == "param" and value.name not in known]
    return known | dict(zip(new, made, strict=True))
