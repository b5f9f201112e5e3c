"""Callable that runs a graph by its plan, for whichever parameters it is called with.

Dynamo passes parameters as arguments, and one graph may serve many modules: blocks of one class that are compiled one
by one, or copies of a model. Each set of parameters is bound once, to a module that runs the plan.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from costmodel.backend.graph_call import GraphCall, Slots
from costmodel.capture.executable import Exact
from costmodel.capture.inputs import Arguments
from costmodel.errors import own_words
from costmodel.execution.cuda_graph import is_capturing
from costmodel.execution.planned_module import Planned, make_planned
from costmodel.execution.preconditions import device_of
from costmodel.execution.regions import Call
from costmodel.execution.torch_settings import without_autocast
from costmodel.planning.plan import Plan

MOST_BINDINGS = 64
"""Most sets of parameters of one graph with programs; calls with further ones run eagerly."""
Key = tuple[int, ...]
"""Addresses of parameters and buffers."""
_pointer = torch.Tensor.data_ptr


class PlannedGraph:
    """Graph that is run by a plan.

    Attributes:
        bound: module that runs the plan, for each set of parameters in use; None where they run eagerly.

    Args:
        gm: graph, without metadata.
        slots: positions of its parameters and inputs.
        exact: captured graph.
        plan: plan for it.
        strict: whether outputs may be no further from float64's than eager ones are.
        note: takes one line about each later fallback.
        under_autocast: whether it is called under autocast, whose casts the plan makes itself.
    """

    def __init__(
        self,
        gm: fx.GraphModule,
        slots: Slots,
        exact: Exact,
        plan: Plan,
        strict: bool,
        note: Callable[[str], None],
        under_autocast: bool = False,
    ) -> None:
        self._gm, self._slots, self._exact = gm, slots, exact
        self._plan, self._strict, self._note = plan, strict, note
        self._around = without_autocast if under_autocast else nullcontext
        self._calls: dict[str, Call] = {}
        self._deaths: dict[Key, weakref.ref[torch.Tensor]] = {}
        self._latest: dict[tuple[int, ...], Key] = {}  # by identities of the first and the last parameter
        self.bound: dict[Key, Planned | None] = {}

    def bind(self, arguments: Sequence[Any]) -> Planned:
        """Make the module for the parameters of a call.

        Raises:
            PlanError: the plan cannot run, or its outputs are wrong.
            OutOfMemoryError: memory is too short for it.
        """
        module = GraphCall(self._gm, self._slots, arguments)
        inputs = Arguments(tuple(arguments[index] for index in self._slots.inputs))
        planned = make_planned(
            module,
            self._plan,
            inputs,
            captured=self._exact,
            strict=self._strict,
            calls=self._calls,
            regions_on=device_of(module, inputs).type,
        )
        if planned.fallbacks:
            raise torch.OutOfMemoryError("; ".join(planned.fallbacks))
        self._keep(arguments, planned)
        return planned

    def __call__(self, *arguments: Any) -> Any:
        """Run the graph; eagerly if its plan cannot run for these parameters.

        The first and the last parameter select the binding of the latest call with both. The addresses of all are
        compared while a GPU is busy with it; outputs for other addresses are dropped.
        """
        ends = self._ends(arguments)
        latest = self._latest.get(ends)
        if latest is not None and (planned := self.bound.get(latest)) is not None:
            outputs = self._run(latest, planned, arguments)
            if self._key(arguments) == latest:
                return outputs
        key = self._key(arguments)
        if key not in self.bound and not is_capturing():
            self._bind_later(arguments)
        planned = self.bound.get(key)
        if planned is None:
            return self._gm.forward(*arguments)
        self._latest[ends] = key
        return self._run(key, planned, arguments)

    def _run(self, key: Key, planned: Planned, arguments: Sequence[Any]) -> Any:
        """Run the module of some parameters; from the first failure on the graph runs eagerly for them."""
        inputs = [arguments[index] for index in self._slots.inputs]
        try:
            with self._around():
                return planned(*inputs)
        except Exception as error:  # noqa: BLE001 - a compiler may raise anything when new weights are prepared
            self.bound[key] = None
            self._note(f"runs eagerly since a call failed: {own_words(error)}")
            return self._gm.forward(*arguments)

    def _key(self, arguments: Sequence[Any]) -> Key:
        return tuple(map(_pointer, self._static(arguments)))

    def _static(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        return [arguments[index] for index in self._slots.static]

    def _ends(self, arguments: Sequence[Any]) -> tuple[int, ...]:
        """Identities of the first and the last parameter; empty without parameters."""
        static = self._slots.static
        return (id(arguments[static[0]]), id(arguments[static[-1]])) if static else ()

    def _bind_later(self, arguments: Sequence[Any]) -> None:
        """Bind further parameters in a call."""
        if len(self.bound) >= MOST_BINDINGS:
            self._note(f"further parameters run eagerly: {MOST_BINDINGS} sets have programs")
            return
        try:
            with self._around():
                self.bind(arguments)
        except Exception as error:  # noqa: BLE001 - as above
            self._keep(arguments, None)
            self._note(f"some parameters run eagerly: {own_words(error)}")

    def _keep(self, arguments: Sequence[Any], planned: Planned | None) -> None:
        """Keep a binding for as long as the first of its parameters lives."""
        key = self._key(arguments)
        self.bound[key] = planned
        if self._slots.static:
            forget = functools.partial(_forget, weakref.ref(self), key)
            self._deaths[key] = weakref.ref(arguments[self._slots.static[0]], forget)


def _forget(owner: weakref.ref[PlannedGraph], key: Key, _dead: weakref.ref[torch.Tensor]) -> None:
    found = owner()
    if found is not None:
        found.bound.pop(key, None)
        found._deaths.pop(key, None)
        for ends in [ends for ends, latest in found._latest.items() if latest == key]:
            del found._latest[ends]
