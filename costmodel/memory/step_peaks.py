"""Peak memory of a training step: eager from its recorded operators, compiled from the buffers of its two graphs.

Resident all the time are parameters, buffers, inputs and the state of the optimizer. A gradient stays from its operator
on.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.inductor.compilation import Compilation
from costmodel.inductor.lowering import Node, lower
from costmodel.inductor.scheduler import fuse
from costmodel.ir import Graph, Op, operators
from costmodel.memory.peaks import inference_peak
from costmodel.memory.storages import rounded


def eager_peak_bytes(step: Graph, resident_bytes: int) -> int:
    """Peak of an eager forward and backward pass, whose operators note what memory the program frees.

    Args:
        step: recorded step; its outputs are the gradients.
        resident_bytes: bytes that are alive all the time.
    """
    return inference_peak(step, resident_bytes).nbytes


def optimizer_peak_bytes(parameters: Graph, gradient_bytes: int, resident_bytes: int) -> int:
    """Peak of an optimizer's step: gradients, and results of operators that it does not write in place.

    Args:
        parameters: operators of the step.
        gradient_bytes: bytes of all gradients.
        resident_bytes: bytes that are alive all the time, the optimizer's state among them.
    """
    kept = {ref.name for ref in parameters.outputs}
    made = [sum(rounded(kind.nbytes) for kind in op.types) for op in parameters.ops if op.name not in kept]
    return resident_bytes + gradient_bytes + sum(sorted(made)[-2:])


def compiled_peak_bytes(
    forward: Compilation, backward: Compilation, saved: Mapping[str, int], resident_bytes: int
) -> int:
    """Peak of a compiled forward and backward pass.

    Args:
        forward: compiled forward graph.
        backward: compiled backward graph.
        saved: values of the backward graph that the forward graph computes; each is freed after its last use there.
        resident_bytes: bytes that are alive all the time.
    """
    held = {value.name: rounded(value.type.nbytes) for value in backward.graph.values if value.name in saved}
    first = _peak(forward, {}, resident_bytes)
    return max(first, _peak(backward, held, resident_bytes))


def _peak(compilation: Compilation, held: Mapping[str, int], resident_bytes: int) -> int:
    """Most bytes alive while the kernels of a graph run, with given buffers alive at its start."""
    lowering = compilation.analysis(lower)
    nodes = fuse(lowering.nodes, lowering.writers, joins_split=True)
    returned = lowering.returned()
    last: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name, _ in node.reads:
            for made in lowering.made_by(name) or [name]:
                last[made] = place
    alive = dict(held)
    most = now = resident_bytes + sum(alive.values())
    for place, node in enumerate(nodes):
        new = _made_bytes(node, compilation.producers)
        alive.update(new)
        now += sum(new.values())
        most = max(most, now)
        gone = [name for name in alive if last.get(name, -1) <= place and name not in returned]
        now -= sum(alive.pop(name) for name in gone if name in alive)
    return most


def _made_bytes(node: Node, producers: Mapping[str, Op]) -> dict[str, int]:
    """Bytes of the buffers that a kernel allocates."""
    ops = [producers[name] for name in node.makes]
    return {op.name: sum(rounded(kind.nbytes) for kind in op.types) for op in ops if not operators.is_view(op)}
