"""Peak memory of inference, and of a training step: forward pass with saved tensors, then backward pass by operators.

Autograd runs backward nodes in the reverse order of the forward pass. A node allocates the gradients of its inputs,
then frees the gradient of its result and the tensors that it had saved. A second gradient of the same value is added to
the first in place, or into a new storage if the first one's storage is shared. Gradients of parameters stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from costmodel.ir import Graph, Op, Ref, operators
from costmodel.memory.saved_tensors import SavedTensors, needing_gradient
from costmodel.memory.storages import Storage, overwritten, rounded, storages, versions

NONE: Mapping[str, int] = MappingProxyType({})


def training_peak(
    graph: Graph, saved: Sequence[SavedTensors], trainable: Collection[str], resident_bytes: int
) -> tuple[Peak, int]:
    """Predict the peak of one forward and backward pass, and the bytes alive between the two.

    Args:
        graph: captured in training mode.
        saved: tensors that its operators save.
        trainable: names of the parameters that get a gradient; none of them has one at the start.
        resident_bytes: bytes that are alive all the time: parameters, buffers, inputs.
    """
    step = _Step(graph, saved, trainable, resident_bytes)
    for position in range(len(graph.ops)):
        step.forward(position)
    between = step.alive
    step.seed()
    for position in reversed(range(len(graph.ops))):
        step.backward(position)
    return Peak(step.most, step.where), between


@dataclass(slots=True)
class _Gradient:
    """Storage of gradients, and the number of gradients in it."""

    nbytes: int
    uses: int = 0


@dataclass(slots=True)
class _Step:
    """State of a training step: bytes alive now and at the peak."""

    graph: Graph
    saved: Sequence[SavedTensors]
    trainable: Collection[str]
    alive: int
    most: int = 0
    where: str = ""
    _needs: set[Ref] = field(init=False)
    _dies: dict[int, list[Storage]] = field(init=False)
    _born: dict[int, list[Storage]] = field(init=False)
    _releases: dict[int, int] = field(init=False)
    _extra: dict[int, int] = field(init=False)
    _gradients: dict[Ref, _Gradient] = field(init=False)

    def __post_init__(self) -> None:
        storage_of = storages(self.graph)
        self._needs = needing_gradient(self.graph, self.trainable)
        self._extra = {entry.op: entry.extra_bytes for entry in self.saved}
        self._gradients = {}
        gone = overwritten(self.graph, versions(self.graph))
        first_saver: dict[Storage, int] = {}
        for entry in reversed(self.saved):
            first_saver.update((storage_of[ref], entry.op) for ref in entry.values if ref not in gone)
            # autograd copies a saved tensor that an operator overwrites
            copies = sum(rounded(self.graph.type_of(ref).nbytes) for ref in entry.values if ref in gone)
            self._extra[entry.op] += copies
        self._dies, self._born, self._releases = {}, {}, {}
        for storage in set(storage_of.values()):
            self._born.setdefault(storage.made_at, []).append(storage)
        for storage, position in deaths(self.graph, storage_of).items():
            if storage not in first_saver:
                self._dies.setdefault(position, []).append(storage)
            else:
                saver = first_saver[storage]
                self._releases[saver] = self._releases.get(saver, 0) + storage.nbytes
        self.most = self.alive

    def forward(self, position: int) -> None:
        """Allocate the results of one operator; free unsaved values that it was the last to hold."""
        self.alive += sum(storage.nbytes for storage in self._born.get(position, ()))
        self.alive += self._extra.get(position, 0)
        self._note(self.graph.ops[position])
        self.alive -= sum(storage.nbytes for storage in self._dies.get(position, ()))

    def seed(self) -> None:
        """Allocate the first gradients: for a sum of outputs, one element expanded to the shape of each output."""
        for ref in dict.fromkeys(self.graph.outputs):
            if ref in self._needs:
                self._receive(ref, self._allocate(rounded(4)))

    def backward(self, position: int) -> None:
        """Run the backward node of one operator."""
        op = self.graph.ops[position]
        received = [self._gradients.pop(ref, None) for ref in _results(op)]
        if not any(received):
            self.alive -= self._releases.get(position, 0) + self._extra.get(position, 0)
            return
        incoming = next(gradient for gradient in received if gradient is not None)
        temporary = self._temporary_bytes(op)
        self.alive += temporary
        made = [(ref, self._gradient_of(op, ref, incoming)) for ref in _differentiable(op, self._needs)]
        self._note(op)
        for gradient in filter(None, received):
            self._release(gradient)
        self.alive -= temporary + self._releases.get(position, 0) + self._extra.get(position, 0)
        for ref, gradient in made:
            self._receive(ref, gradient)
            self._note(op)

    def _gradient_of(self, op: Op, ref: Ref, incoming: _Gradient) -> _Gradient:
        """Gradient of an input: that of the result if the operator passes it on, else a new storage."""
        kind = self.graph.type_of(ref)
        if (
            operators.lookup(op).passes
            and (kind.numel == op.type.numel or op.base == "cat")
            and kind.dtype == op.type.dtype
        ):
            incoming.uses += 1
            return incoming
        return self._allocate(rounded(kind.nbytes))

    def _temporary_bytes(self, op: Op) -> int:
        """Temporary of a broadcast product, computed at full size before it is summed to the smaller input's shape."""
        if op.base not in ("mul", "div"):
            return 0
        summed = [ref for ref in _differentiable(op, self._needs) if self.graph.type_of(ref).numel < op.type.numel]
        return rounded(op.type.nbytes) if summed else 0

    def _allocate(self, nbytes: int) -> _Gradient:
        self.alive += nbytes
        return _Gradient(nbytes, 1)

    def _receive(self, ref: Ref, gradient: _Gradient) -> None:
        """Accumulate one more gradient of a value."""
        before = self._gradients.get(ref)
        if before is None:
            self._gradients[ref] = gradient
            return
        if before.uses > 1:
            total = self._allocate(rounded(self.graph.type_of(ref).nbytes))
            self._gradients[ref] = total
            self.most = max(self.most, self.alive)
            self._release(before)
        self._release(gradient)

    def _release(self, gradient: _Gradient) -> None:
        gradient.uses -= 1
        if gradient.uses == 0:
            self.alive -= gradient.nbytes

    def _note(self, op: Op) -> None:
        if self.alive > self.most:
            self.most, self.where = self.alive, op.name


def _results(op: Op) -> tuple[Ref, ...]:
    return tuple(Ref(op.name, index) for index in range(len(op.types)))


def _differentiable(op: Op, needs: Collection[Ref]) -> tuple[Ref, ...]:
    """Inputs for which an operator's backward node computes a gradient, each once."""
    return tuple(ref for ref in dict.fromkeys(op.refs()) if ref in needs)


@dataclass(frozen=True, slots=True)
class Peak:
    """Most bytes alive at once, and the name of the operator that runs then."""

    nbytes: int
    op: str


def deaths(graph: Graph, storage_of: Mapping[Ref, Storage]) -> dict[Storage, int]:
    """Storage -> position of the operator after which the program frees it; storages that it keeps are absent."""
    kept = {storage_of[ref] for ref in graph.outputs} | {
        storage for storage in storage_of.values() if storage.made_at < 0
    }
    noted = any(op.frees for op in graph.ops)
    found: dict[Storage, int] = {}
    for position, op in enumerate(graph.ops):
        used = (*op.refs(), *(Ref(op.name, index) for index in range(len(op.types))))
        # results that a captured pass never frees are unread, or held by its outputs
        for ref in op.frees if noted else used:
            if ref in storage_of:
                found[storage_of[ref]] = position
    return {storage: position for storage, position in found.items() if storage not in kept}


def inference_peak(graph: Graph, resident_bytes: int, workspaces: Mapping[str, int] = NONE) -> Peak:
    """Predict the peak of one forward pass without gradients.

    Args:
        graph: captured in evaluation mode.
        resident_bytes: bytes that are alive all the time: parameters, buffers, inputs.
        workspaces: operator -> bytes that it needs beside its results while it runs.
    """
    live = live_bytes(graph, resident_bytes)
    if not live:
        return Peak(resident_bytes, "")
    live = [nbytes + workspaces.get(op.name, 0) for nbytes, op in zip(live, graph.ops, strict=True)]
    most = max(range(len(live)), key=live.__getitem__)
    return Peak(live[most], graph.ops[most].name)


def live_bytes(graph: Graph, resident_bytes: int) -> list[int]:
    """Bytes alive while each operator runs, in order, with its results and the values that it is the last to read."""
    storage_of = storages(graph)
    born: dict[int, int] = {}
    for storage in set(storage_of.values()):
        born[storage.made_at] = born.get(storage.made_at, 0) + storage.nbytes
    freed: dict[int, int] = {}
    for storage, position in deaths(graph, storage_of).items():
        freed[position] = freed.get(position, 0) + storage.nbytes
    alive, result = resident_bytes, []
    for position in range(len(graph.ops)):
        alive += born.get(position, 0)
        result.append(alive)
        alive -= freed.get(position, 0)
    return result


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State kept between steps, and temporaries of torch's default (multi-tensor) step; in copies of the parameters."""

    state: int
    step: int


OPTIMIZERS: Mapping[str, Optimizer] = {
    "none": Optimizer(0, 0),
    "sgd": Optimizer(0, 0),
    "momentum": Optimizer(1, 0),
    "adam": Optimizer(2, 1),  # temporary: the square root of the second moment
    "adamw": Optimizer(2, 1),
}
