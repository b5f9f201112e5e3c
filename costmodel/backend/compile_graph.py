"""Dynamo's graph -> callable that runs it the fastest way, and a report of the choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import fx
from torch._dynamo.exc import TensorifyScalarRestartAnalysis

from costmodel.backend.device_profile import DeviceProfile, profile_for
from costmodel.backend.dynamic_sizes import are_dynamic, are_wanted, have_values, make_static, traced_values
from costmodel.backend.graph_call import GraphCall, Slots, without_metadata
from costmodel.backend.graph_report import CHOICES, EAGER, INDUCTOR, PLAN, GraphReport
from costmodel.backend.options import BackendOptions
from costmodel.backend.planned_graph import PlannedGraph
from costmodel.backend.planned_sizes import begin_code, leave_out_planned_sizes, remember_plan
from costmodel.backend.planning_step import Planning, fastest_first, plan_graph
from costmodel.backend.refusals import count_calls, reason_not_to_plan, reason_not_to_replay
from costmodel.backend.ways import Built, Run, apart_from_dynamo, built, by_inductor
from costmodel.capture.autocast import AMP
from costmodel.capture.executable import Exact, capture_exactly
from costmodel.errors import own_words
from costmodel.execution.cuda_graph import is_capturing
from costmodel.execution.torch_settings import active_autocasts, present_matmul_precision
from costmodel.measurement.timers import latency
from costmodel.planning.plan import Plan
from costmodel.prediction.arithmetic import HIGHEST, Arithmetic

FEW_CALLS = 1
"""Most calls of a graph that is not planned and runs eagerly: there is nothing to fuse."""
MEASURED_S = 0.004
"""Seconds in which a candidate is measured."""


@dataclass
class GraphCompiler:
    """Steps from a graph to a callable.

    Attributes:
        gm: graph with Dynamo's metadata, which Inductor takes over.
        arguments: arguments of the call that Dynamo traced, with symbols for dynamic sizes.
        wanted: options.
        name: number of the graph.
        note: takes one line about each later fallback.
        plain: graph without metadata, which runs it eagerly.
        given: arguments with numbers in place of symbols.
        faults: ways that could not be built, and why.
        remarks: further lines of the report.
        tried: plan with the regions that passed their trial; None where none was tried.
    """

    gm: fx.GraphModule
    arguments: Sequence[Any]
    wanted: BackendOptions
    name: str
    note: Callable[[str], None]
    plain: fx.GraphModule = field(init=False)
    given: Sequence[Any] = field(init=False)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    tried: Plan | None = None

    def __post_init__(self) -> None:
        self.plain = without_metadata(self.gm)
        self.given = traced_values(self.arguments)
        self._begin = time.perf_counter()
        self._operators = count_calls(self.gm)
        self._casts = active_autocasts()

    def compile(self) -> tuple[Run, GraphReport]:
        """Plan the graph and build the best way to run it; whatever cannot be planned goes to Inductor, or eager."""
        begin_code()
        if is_capturing():
            why = "it was first called within a capture of a CUDA graph; call it before"
            return self.plain.forward, self._report(EAGER, why, {})
        try:
            if reason := reason_not_to_plan(self.gm, self.arguments):
                return self._without_plan(reason)
            with apart_from_dynamo():
                exact = self._captured()
                if not (reason := reason_not_to_replay(exact.graph)):
                    planning, device_profile = self._planned(exact)
        except TensorifyScalarRestartAnalysis:  # by which Inductor has Dynamo trace again
            raise
        except Exception as error:  # noqa: BLE001 - a graph without a plan runs as without this backend
            reason = own_words(error)
        if reason:
            return self._without_plan(reason)
        if device_profile.is_own or planning.measured_ms:
            return self._as_predicted(exact, planning, device_profile)
        return self._as_measured(exact, planning, device_profile)

    def _captured(self) -> Exact:
        slots = Slots.of(self.gm, self.given)
        module = GraphCall(self.plain, slots, self.given)
        return capture_exactly(
            module,
            [self.given[index] for index in slots.inputs],
            f"graph {self.name}",
            self._amp(),
            self._device().type,
        )

    def _amp(self) -> str | None:
        """Precision of autocast around the graph, that of its device; autocast of another casts nothing in it."""
        kind = self._device().type
        if kind not in self._casts:
            return None
        return next(name for name, dtype in AMP.items() if dtype is torch.get_autocast_dtype(kind))

    def _planned(self, exact: Exact) -> tuple[Planning, DeviceProfile]:
        device = self._device()
        found = profile_for(device, self.wanted.hardware)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return plan_graph(exact.graph, found.profile, self.wanted, name, self._arithmetic()), found

    def _arithmetic(self) -> Arithmetic:
        """Settings of the process around the call that Dynamo traced."""
        on_gpu = self._device().type == "cuda"
        precision = present_matmul_precision() if on_gpu else HIGHEST
        return Arithmetic(self._amp(), precision, on_gpu and torch.backends.cudnn.benchmark)

    def _device(self) -> torch.device:
        """Device of the graph's tensors, which are on one."""
        values: Iterator[Any] = chain(self.arguments, self.plain.parameters(), self.plain.buffers())
        return next(value.device for value in values if isinstance(value, torch.Tensor))

    def _as_predicted(self, exact: Exact, planning: Planning, known: DeviceProfile) -> tuple[Run, GraphReport]:
        """Build the way that is predicted to be the fastest; if that fails, the next."""
        order = self._allowed(planning.order(self.wanted.calls))
        for way in order:
            made = self._build(way, exact, planning)
            if made.run is not None:
                planning.keep(self.tried)
                why = self._reason(planning, known) if way == order[0] else "the faster ways failed"
                return self._chosen(way, made.run), self._report(way, why, planning.times_ms, planning, known)
            if made.short:
                break
        return self.plain.forward, self._report(EAGER, "memory is short", planning.times_ms, planning, known)

    def _reason(self, planning: Planning, known: DeviceProfile) -> str:
        how = f"measured, for {known.note}" if planning.measured_ms else f"predicted; {known.note}"
        return f"the fastest as {how}{' (as an earlier process found)' if planning.is_kept else ''}"

    def _as_measured(self, exact: Exact, planning: Planning, near: DeviceProfile) -> tuple[Run, GraphReport]:
        """Build and measure every way, on the arguments of the traced call, and take the fastest."""
        runs: dict[str, Run] = {}
        times: dict[str, float] = {}
        spent: dict[str, float] = {}
        for way in self._allowed(CHOICES):
            made = self._build(way, exact, planning)
            if made.run is not None and (ms := self._measured_ms(way, made.run)) is not None:
                runs[way], times[way], spent[way] = made.run, ms, made.build_s
        order = fastest_first(times, spent, self.wanted.calls) or (EAGER,)
        why = f"the fastest as measured, for {near.note}"
        planning.keep(self.tried, times)
        run = self._chosen(order[0], runs.get(order[0], self.plain.forward))
        return run, replace(self._report(order[0], why, times, planning, near), measured=True)

    def _chosen(self, way: str, run: Run) -> Run:
        """The chosen way; a plan is for the sizes of the traced call, which become guards, the others for all."""
        if way != PLAN:
            self._stay_dynamic()
            return run
        remember_plan(self.gm, self.given)
        if are_dynamic(self.arguments):
            make_static(self.gm, self.arguments)
            self.remarks.append("for the sizes of this call alone")
        return run

    def _stay_dynamic(self) -> None:
        """Leave the sizes that have plans to them, unless the user asked for this dynamic graph."""
        if are_dynamic(self.arguments) and have_values(self.arguments) and not are_wanted():
            leave_out_planned_sizes(self.gm, self.given)

    def _measured_ms(self, way: str, run: Run) -> float | None:
        """Milliseconds of a call by one way; None if it fails."""
        device = self._device()
        try:
            with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                return latency(lambda: run(*self.given), MEASURED_S, 3, device.type).median_us / 1e3
        except Exception as error:  # noqa: BLE001 - such as a shortage of memory; the other ways go on
            self.faults.append(f"{way}: {own_words(error)}")
            return None

    def _allowed(self, ways: Sequence[str]) -> tuple[str, ...]:
        """Ways that the numerics allow: what Inductor fuses is not compared with eager execution."""
        return tuple(way for way in ways if not (self.wanted.is_strict and way == INDUCTOR))

    def _build(self, way: str, exact: Exact, planning: Planning) -> Built:
        if way == EAGER:
            return Built(self.plain.forward, 0.0)
        made = built(
            lambda: by_inductor(self.gm, self.arguments) if way == INDUCTOR else self._by_plan(exact, planning)
        )
        if made.run is None:
            self.faults.append(f"{way}: {made.fault}")
        return made

    def _by_plan(self, exact: Exact, planning: Planning) -> Run:
        slots = Slots.of(self.gm, self.given)
        run = PlannedGraph(self.plain, slots, exact, planning.plan, self.wanted.is_strict, self.note, bool(self._casts))
        with apart_from_dynamo():
            self.tried = run.bind(self.given).plan
        return run

    def _without_plan(self, reason: str) -> tuple[Run, GraphReport]:
        """Run a graph that cannot be planned by Inductor; eagerly if it is tiny or Inductor fails."""
        self._stay_dynamic()
        if self._operators <= FEW_CALLS:
            return self.plain.forward, self._report(EAGER, f"{reason}; nothing in it to fuse", {})
        if self.wanted.is_strict:
            return self.plain.forward, self._report(EAGER, f"{reason}; strict numerics", {})
        made = built(lambda: by_inductor(self.gm, self.arguments))
        if made.run is not None:
            return made.run, self._report(INDUCTOR, reason, {})
        self.faults.append(f"{INDUCTOR}: {made.fault}")
        return self.plain.forward, self._report(EAGER, reason, {})

    def _report(
        self,
        choice: str,
        why: str,
        times: Mapping[str, float],
        planning: Planning | None = None,
        by: DeviceProfile | None = None,
    ) -> GraphReport:
        return GraphReport(
            name=self.name,
            operators=self._operators,
            choice=choice,
            why=why,
            times_ms=dict(planning.measured_ms or times) if planning else {},
            measured=bool(planning and planning.measured_ms),
            hardware=by.profile.name if by else "",
            build_s=time.perf_counter() - self._begin,
            plan=planning.plan if planning else None,
            notes=(*self.remarks, *(f"failed: {fault}" for fault in self.faults)),
        )
