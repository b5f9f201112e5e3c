"""Plan -> nn.Module. On a GPU one CUDA graph replays the whole plan; on a CPU call follows call.

The module is captured once more, exactly; the plan's moves rewrite that graph; what depends on parameters alone is
computed once; each region becomes a callable, equal regions the same one. The module itself is never changed.
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
from costmodel.ir import Graph, Ref
from costmodel.ir.subgraph import Cutter, Part, fused_part
from costmodel.planning.plan import Region
from costmodel.planning.stream_assignment import barriers
from costmodel.rewrites.hoist_constants import Frozen

Call = Callable[..., Sequence[torch.Tensor]]
REGION_ERROR = 5e-4
"""What two ways of running a region may differ by, before the gate's factor: a rounding to TF32."""


@dataclass(frozen=True, slots=True)
class Step:
    """One region made ready: it reads and writes values by name.

    Attributes:
        region: what it runs.
        call: runs it.
        inputs: what it reads, in order.
        outputs: what it makes, in order.
        last: values that nothing reads after it.
        after: numbers of the steps whose outputs it reads.
    """

    region: Region
    call: Call
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    last: tuple[Ref, ...]
    after: tuple[int, ...]


class Program:
    """The regions of a plan made ready for inputs of one kind, on one device.

    Attributes:
        steps: in the order in which they run.
        lanes: how many streams they are issued to.
    """

    def __init__(
        self, main: Graph, regions: Sequence[Region], params: Mapping[str, torch.Tensor], calls: dict[str, Call]
    ) -> None:
        self._main = main
        self._params = {Ref(value.name): params[value.name] for value in main.values if value.role == "param"}
        self._calls = calls
        self.steps = self._steps(regions)
        self.lanes = 1 + max((region.lane for region in regions), default=0)

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs of one pass, call after call."""
        values = self._values(inputs)
        for step in self.steps:
            values.update(zip(step.outputs, step.call(*[values[ref] for ref in step.inputs]), strict=True))
            for ref in step.last:
                del values[ref]
        return [values[ref] for ref in self._main.outputs]

    def _values(self, inputs: Sequence[torch.Tensor]) -> dict[Ref, torch.Tensor]:
        """What is there when a pass begins."""
        return self._params | {Ref(value.name): x for value, x in zip(self._main.inputs, inputs, strict=True)}

    def fork(self, inputs: Sequence[torch.Tensor], streams: Sequence[torch.cuda.Stream]) -> list[torch.Tensor]:
        """The outputs of one pass whose lanes are issued to streams, the first of them the current one.

        A stream's memory may be taken again for what is issued to it later, while another stream still reads; so
        nothing is given back before a step beside which nothing runs.
        """
        values = self._values(inputs)
        start = streams[0].record_event()
        ended: list[torch.cuda.Event] = []
        begun = {0}
        alone = barriers([step.after for step in self.steps])
        dead: list[Ref] = []
        for number, step in enumerate(self.steps):
            lane = step.region.lane
            stream = streams[lane]
            if lane not in begun:
                begun.add(lane)
                stream.wait_event(start)
            for before in step.after:
                if self.steps[before].region.lane != lane:
                    stream.wait_event(ended[before])
            with torch.cuda.stream(stream):
                values.update(zip(step.outputs, step.call(*[values[ref] for ref in step.inputs]), strict=True))
                ended.append(stream.record_event())
            dead += step.last
            if number in alone:
                for ref in dead:
                    del values[ref]
                dead = []
        for lane in begun - {0}:
            streams[0].wait_event(streams[lane].record_event())
        return [values[ref] for ref in self._main.outputs]

    def faulty(self, inputs: Sequence[torch.Tensor]) -> tuple[tuple[Region, float], ...]:
        """Regions whose results differ from those of the same operators run eagerly, on the same operands; how much.

        A region that cannot run, because its backend fails on it, differs infinitely.
        """
        values = self._values(inputs)
        cutter = Cutter(self._main)
        found = []
        for step in self.steps:
            operands = [values[ref] for ref in step.inputs]
            try:
                expected = build_module(cutter.cut(step.region.ops).graph)(*operands)
            except RuntimeError:  # what fails even so is not for a region to mend
                break
            if step.region.backend != "eager":
                error = _error_of(step.call, operands, expected)
                if error > allowed_error(expected, REGION_ERROR):
                    found.append((step.region, error))
            values.update(zip(step.outputs, expected, strict=True))
        return tuple(found)

    def region_times(
        self, inputs: Sequence[torch.Tensor], measure: Callable[[Callable[[], object], Region], float | None]
    ) -> tuple[float | None, ...]:
        """What `measure` says of each region, given a call that runs it on what it reads in a pass."""
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
    except Exception:  # noqa: BLE001 - a compiler may fail in any way, and the region can run eagerly
        return math.inf


def _made(backend: str, part: Part) -> Call:
    if backend == "inductor":
        return _Compiled(part.graph)
    fused = fused_part(part) if backend == "cudnn" else None
    return build_module((fused or part).graph)


class _Compiled:
    """A region that Inductor compiles when it is first called, for arguments like those of that call."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._call: Call | None = None

    def __call__(self, *arguments: torch.Tensor) -> Sequence[torch.Tensor]:
        if self._call is None:
            self._call = compile_module(build_module(self._graph), arguments)
        return self._call(*arguments)


def prepare(frozen: Frozen, exact: Exact, state: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, Any]:
    """The parameters of a frozen graph's main part, by name: original ones, and those computed of them now.

    Args:
        frozen: the graph, split.
        exact: where its constants are.
        state: parameters and buffers of the module by name.
        device: where constants are made.

    Raises:
        PlanError: a constant has no values.
    """
    if lost := next((key for key, tensor in exact.constants.items() if tensor.is_meta), None):
        raise PlanError(f"{exact.graph.name} reads a tensor ({lost}) that is no parameter; register it as a buffer")
    known = {key: tensor.detach() for key, tensor in state.items()}
    known |= {key: tensor.to(device) for key, tensor in exact.constants.items()}
    with torch.no_grad():
        made = build_module(frozen.preparation, device)(*[known[value.name] for value in frozen.preparation.values])
    new = [value.name for value in frozen.main.values if value.role == "param" and value.name not in known]
    return known | dict(zip(new, made, strict=True))
