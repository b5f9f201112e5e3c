"""Steps of optimizers as graphs of multi-tensor operators, as torch's `foreach` implementations call them on a GPU.

The operators follow `_multi_tensor_sgd` and `_multi_tensor_adam` in torch/optim, with torch's default options; momentum
is 0.9. State such as the number of steps is kept on the CPU, and costs host time only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.errors import RequestError
from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value

RATE, MOMENTUM, FIRST, SECOND, EPSILON, DECAY = 1e-3, 0.9, 0.9, 0.999, 1e-8, 1e-2
"""Options of the steps; no cost depends on their values."""
Tensors = tuple[Ref, ...]


@dataclass(slots=True)
class _Step:
    """An optimizer step while it is built."""

    kinds: Sequence[TensorType]
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    written: list[Ref] = field(default_factory=list)

    def given(self, letter: str) -> Tensors:
        """Declare one tensor for each parameter."""
        made = [Value(f"{letter}{index}", kind) for index, kind in enumerate(self.kinds)]
        self.values += made
        return tuple(Ref(value.name) for value in made)

    def call(self, op: str, lists: Mapping[str, Arg], is_kept: bool = True) -> Tensors:
        """Call a multi-tensor operator; results that are kept are written in place."""
        name = f"step{len(self.ops)}"
        self.ops.append(Op(name, op, tuple(lists.items()), tuple(self.kinds), "", is_kept))
        made = tuple(Ref(name, index) for index in range(len(self.kinds)))
        if is_kept:
            self.written += made
        return made


def _sgd(step: _Step) -> None:
    parameters, gradients = step.given("p"), step.given("g")
    step.call("_foreach_add.List", {"self": parameters, "other": gradients, "alpha": -RATE})


def _momentum(step: _Step) -> None:
    parameters, gradients, buffers = step.given("p"), step.given("g"), step.given("m")
    buffers = step.call("_foreach_mul.Scalar", {"self": buffers, "scalar": MOMENTUM})
    buffers = step.call("_foreach_add.List", {"self": buffers, "other": gradients, "alpha": 1.0})
    step.call("_foreach_add.List", {"self": parameters, "other": buffers, "alpha": -RATE})


def _adam(step: _Step, decays: bool = False) -> None:
    parameters, gradients, means, squares = (step.given(letter) for letter in "pgmv")
    if decays:
        parameters = step.call("_foreach_mul.Scalar", {"self": parameters, "scalar": 1.0 - RATE * DECAY})
    means = step.call("_foreach_lerp.Scalar", {"self": means, "tensors1": gradients, "weight": 1.0 - FIRST})
    squares = step.call("_foreach_mul.Scalar", {"self": squares, "scalar": SECOND})
    products = {"tensor1": gradients, "tensor2": gradients}
    squares = step.call("_foreach_addcmul.Scalar", {"self": squares, **products, "value": 1.0 - SECOND})
    numbers: Arg = tuple(1.0 for _ in step.kinds)
    roots = step.call("_foreach_sqrt", {"self": squares}, is_kept=False)
    roots = step.call("_foreach_div.ScalarList", {"self": roots, "scalars": numbers}, is_kept=False)
    roots = step.call("_foreach_add.Scalar", {"self": roots, "scalar": EPSILON}, is_kept=False)
    rates: Arg = tuple(-RATE for _ in step.kinds)
    quotients = {"tensor1": means, "tensor2": roots, "scalars": rates}
    step.call("_foreach_addcdiv.ScalarList", {"self": parameters, **quotients})


def _adamw(step: _Step) -> None:
    _adam(step, decays=True)


RULES: Mapping[str, Callable[[_Step], None]] = {"sgd": _sgd, "momentum": _momentum, "adam": _adam, "adamw": _adamw}
"""Steps by the name of the optimizer."""
OPTIMIZERS = tuple(RULES)
"""Optimizers whose steps are predicted."""
COUNTS_STEPS = frozenset({"adam", "adamw"})
"""Optimizers that count steps in a tensor on the CPU for each parameter."""


def optimizer_graph(parameters: Sequence[TensorType], optimizer: str) -> Graph:
    """Operators of one step of an optimizer that updates all parameters.

    Args:
        parameters: types of the parameters that have a gradient, in order.
        optimizer: one of OPTIMIZERS.

    Raises:
        RequestError: there is no rule for the optimizer.
    """
    if optimizer not in RULES:
        raise RequestError(f"unknown optimizer {optimizer!r}; choose one of {', '.join(RULES)}")
    kinds: dict[str, list[TensorType]] = {}
    for kind in parameters:
        kinds.setdefault(kind.dtype, []).append(TensorType(kind.dtype, kind.shape))
    steps = [_Step(group) for group in kinds.values()]
    for step in steps:
        RULES[optimizer](step)
    (first, *others) = [
        Graph(f"{optimizer} step", tuple(step.values), tuple(step.ops), tuple(step.written)) for step in steps
    ] or [Graph(f"{optimizer} step", (), (), ())]
    return first if not others else _joined([first, *others])


def _joined(graphs: Sequence[Graph]) -> Graph:
    """One graph of the steps of parameters in several precisions, each with calls of its own."""

    def named(number: int) -> Callable[[Ref], Ref]:
        return lambda ref: Ref(f"{ref.name}_{number}", ref.index)

    values = [Value(f"{one.name}_{n}", one.type) for n, graph in enumerate(graphs) for one in graph.values]
    ops = [
        Op(f"{op.name}_{n}", op.op, op.args_reading(named(n)), op.types, "", op.inplace)
        for n, graph in enumerate(graphs)
        for op in graph.ops
    ]
    outputs = [named(n)(ref) for n, graph in enumerate(graphs) for ref in graph.outputs]
    return Graph(graphs[0].name, tuple(values), tuple(ops), tuple(outputs))
