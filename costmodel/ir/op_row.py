"""Columns of the operator table: role in fusion, kind of view, and other properties of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from costmodel.ir import Graph, Op


class Role(StrEnum):
    """How an operator takes part in fusion."""

    VIEW = "view"
    """Changes no data: launches no kernel, costs host time only."""
    POINTWISE = "pointwise"
    """Computes each output element from inputs at known places; fuses with its neighbours."""
    REDUCTION = "reduction"
    """Reduces many elements to one; fuses with producers and users on the same domain."""
    WINDOW = "window"
    """Pooling: reads a window of the input for each output element; its input stays in memory, its output fuses."""
    CONCAT = "concat"
    """Concatenates tensors; a compiler may write the inputs in place."""
    JOINED = "joined"
    """Concatenates tensors that their producers have written in place already."""
    EXTERN = "extern"
    """Calls a library kernel (cuDNN, cuBLAS, attention): an anchor that nothing fuses into."""
    SOURCE = "source"
    """Makes a tensor from no other tensor; a compiler folds it away."""


class View(StrEnum):
    """How the elements of a view follow from the elements of the viewed tensor."""

    IDENTITY = "identity"
    """All elements, in the same shape."""
    RESHAPE = "reshape"
    """All elements in the same order, in another shape."""
    PERMUTE = "permute"
    """All elements, with dimensions exchanged."""
    NARROW = "narrow"
    """A range of indices along one dimension."""
    SELECT = "select"
    """One index along a dimension, which is dropped."""
    EXPAND = "expand"
    """Elements repeated along new dimensions or dimensions of size one."""
    OTHER = "other"
    """Any other view; no rule follows strides through it."""


Flops = Callable[[Graph, Op], int]
"""Number of an operator that follows from its shapes: arithmetic operations, bytes, or launches."""


@dataclass(frozen=True, slots=True)
class Row:
    """Properties of one operator.

    Attributes:
        name: ATen name without the overload.
        kind: name shown to users.
        role: how it takes part in fusion.
        work: arithmetic operations an element, for FLOPs and for Inductor's limits on recomputing a value.
        flops: formula of the FLOPs of a library call.
        uses: how often Inductor's decomposition reads the input (`x * sigmoid(x)` twice).
        saves: tensors that autograd keeps for the backward pass, after torch's `derivatives.yaml`: arguments by name
            and results as `#index`, separated by spaces; `other:self` keeps `other` only where `self` needs a gradient.
            None is unknown.
        passes: whether the gradient of the result, or a view of it, is the gradient of the inputs: the backward pass
            allocates nothing.
        random: whether results differ from call to call.
        view: how a view shows its elements; None for an operator that is no view.
        supported: whether there is a cost rule. Reports name operators without one.
        realized_on_reuse: whether Inductor keeps the result in memory on a CPU if it is read twice
            (`StorageBox.should_realize_on_reuse`).
        fx_nodes: nodes that PyTorch's decompositions make of it, not counting its results.
        shifts: whether each element of the result is an element of the input at another place.
        indirect: whether it reads where a tensor of indices points.
        in_place: whether models call it as an activation in place and Inductor does not decompose it.
        by_strides: whether the result depends on the strides of the operand.
        reads: whether Python reads the result, so that the host waits for the device.
        rare: whether few vision models call it: kernels with it are predicted by groups of their own.
        scratch: formula of the bytes that a library call writes and reads again beside operands and results.
        scatters: whether it writes where a tensor of indices points, into a copy of its first operand.
        launches: formula of the launches of a library call that follow one another; None for one.
        measured: whether units with it are measured. Others take a time by their roofline bound, with a wide interval.
    """

    name: str
    kind: str
    role: Role
    work: int = 1
    flops: Flops | None = None
    uses: int = 1
    saves: str | None = None
    passes: bool = False
    random: bool = False
    view: View | None = None
    supported: bool = True
    realized_on_reuse: bool = False
    fx_nodes: int = 1
    shifts: bool = False
    indirect: bool = False
    in_place: bool = False
    by_strides: bool = False
    reads: bool = False
    rare: bool = False
    scratch: Flops | None = None
    scatters: bool = False
    launches: Flops | None = None
    measured: bool = True


def row_of(role: Role, **defaults: Any) -> Callable[..., Row]:
    """Constructor of rows of one role, with the defaults of their columns."""

    def make(name: str, **columns: Any) -> Row:
        return Row(name, **{"kind": name.lstrip("_"), "role": role, **defaults, **columns})

    return make
