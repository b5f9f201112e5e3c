"""Types of the intermediate representation: frozen dataclasses with a verifier and a text form.

The text form is stable: golden tests, keys of measured units and work lists of sweeps are made of it.

    graph tiny {
      input %x: float32[1,3,8,8]
      param %w: float32[4,3,3,3]
      %c = convolution(input=%x, weight=%w, bias=None, stride=[1, 1]) : float32[1,4,6,6] @conv
      %r = relu(self=%c) : float32[1,4,6,6] @act
      return %r
    }
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from costmodel.errors import GraphError
from costmodel.ir.forward_pass import Break, Calls, ModuleFacts
from costmodel.ir.names import written_name
from costmodel.ir.partition import Partition

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "complex128": 16,
    "complex64": 8,
    "complex32": 4,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
HALF_PRECISION = ("float16", "bfloat16")
LAYOUTS = ("nchw", "nhwc", "strided")
COUNTS = ("calls", "views", "idle", "queries", "writes", "checks")
"""Words of a graph's first line, each followed by a count unless it is zero: fields of `Calls`, and checked modules."""
_NO_NAME = "_"
"""Placeholder for the name of a graph without one."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, shape, and memory layout: `nchw` (contiguous), `nhwc` (channels last) or `strided` (a view)."""

    dtype: str
    shape: tuple[int, ...]
    layout: str = "nchw"

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return self.numel * DTYPE_BYTES[self.dtype]

    @property
    def is_complex(self) -> bool:
        """Whether the elements are complex numbers."""
        return self.dtype.startswith("complex")

    def with_layout(self, layout: str) -> TensorType:
        """The same type in another layout."""
        return self if layout == self.layout else TensorType(self.dtype, self.shape, layout)

    def __str__(self) -> str:
        suffix = "" if self.layout == "nchw" else f" {self.layout}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{suffix}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A use of a value: a graph's input or parameter, or output `index` of an operator."""

    name: str
    index: int = 0

    def __str__(self) -> str:
        name = written_name(self.name)
        return f"%{name}" if self.index == 0 else f"%{name}#{self.index}"


Arg = None | bool | int | float | complex | str | Ref | tuple["Arg", ...]


def refs_in(arg: Arg) -> Iterator[Ref]:
    """Yield the values that an argument uses, in order."""
    if isinstance(arg, Ref):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from refs_in(item)


def map_refs(arg: Arg, function: Callable[[Ref], Ref]) -> Arg:
    """Replace each value that an argument uses."""
    if isinstance(arg, Ref):
        return function(arg)
    return tuple([map_refs(item, function) for item in arg]) if _is_nested(arg) else arg


def _is_nested(arg: Arg) -> TypeGuard[tuple[Arg, ...]]:
    """Whether an argument is a tuple that holds values or tuples; most hold numbers."""
    if isinstance(arg, tuple):
        for item in arg:  # a loop, which is twice as fast as `any`: most arguments of every operator come here
            if isinstance(item, (Ref, tuple)):
                return True
    return False


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that a graph receives: an `input`, or a `param` (parameters, buffers and constants)."""

    name: str
    type: TensorType
    role: str = "input"


@dataclass(frozen=True, slots=True)
class Op:
    """One ATen operator: arguments by their schema names, result types, and the module it belongs to.

    `inplace`: whether the result shares the memory of the first argument. `frees`: values whose memory the program
    released between this operator and the next. `section`: index into the sections of the graph's partition. They
    describe memory and execution, not values, and are no part of the text form.
    """

    name: str
    op: str
    args: tuple[tuple[str, Arg], ...]
    types: tuple[TensorType, ...]
    module: str = ""
    inplace: bool = field(default=False, compare=False)
    frees: tuple[Ref, ...] = field(default=(), compare=False)
    section: int = field(default=0, compare=False)
    _refs: tuple[Ref, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def base(self) -> str:
        """Name without the overload: `add` for `add.Tensor`."""
        return self.op.partition(".")[0]

    @property
    def type(self) -> TensorType:
        """Type of the first result."""
        return self.types[0]

    def arg(self, name: str, default: Arg = None) -> Arg:
        """Value of the argument of that name; `default` if the operator was called without it."""
        for key, value in self.args:
            if key == name:
                return value
        return default

    def refs(self) -> tuple[Ref, ...]:
        """Values that the operator reads, in order; a value that is read twice appears twice."""
        if self._refs is None:
            found: list[Ref] = []
            for _, arg in self.args:
                if isinstance(arg, Ref):
                    found.append(arg)
                elif _is_nested(arg):
                    found += refs_in(arg)
            object.__setattr__(self, "_refs", tuple(found))
        return self._refs or ()

    def reading(self, function: Callable[[Ref], Ref]) -> Op:
        """Copy of the operator that reads other values; the operator itself if they are the same."""
        args = self.args_reading(function)
        return self if args == self.args else self.with_args(args)

    def args_reading(self, function: Callable[[Ref], Ref]) -> tuple[tuple[str, Arg], ...]:
        """Arguments of the operator that read other values."""
        return tuple([(key, map_refs(value, function)) for key, value in self.args])

    def with_args(self, args: tuple[tuple[str, Arg], ...]) -> Op:
        """Copy of the operator with other arguments."""
        return Op(self.name, self.op, args, self.types, self.module, self.inplace, self.frees, self.section)

    def with_types(self, types: tuple[TensorType, ...]) -> Op:
        """Copy of the operator with other result types; the operator itself if they are the same."""
        if types == self.types:
            return self
        return Op(self.name, self.op, self.args, types, self.module, self.inplace, self.frees, self.section)

    def __str__(self) -> str:
        args = ", ".join(f"{written_name(key)}={format_arg(value)}" for key, value in self.args)
        types = ", ".join(map(str, self.types))
        where = f" @{written_name(self.module)}" if self.module else ""
        return f"%{written_name(self.name)} = {written_name(self.op)}({args}) : {types}{where}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Operators in execution order, with the values that they start from and the outputs that they return.

    Attributes:
        name: name of the graph.
        values: inputs and parameters.
        ops: operators in execution order.
        outputs: returned values.
        calls: counts of Python calls that compute nothing.
        breaks: places where the pass depends on the values of tensors; empty if the graph is the whole pass.
        checked_modules: number of submodules that guards of a compiled call check one by one.
        partition: sections that torch.compile makes of the pass; None if that is not known. No part of the text form.
        modules: modules of the model, parents first; empty if they are not known. No part of the text form.
    """

    name: str
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Ref, ...]
    calls: Calls = field(default=Calls())
    breaks: tuple[Break, ...] = ()
    checked_modules: int = 0
    partition: Partition | None = field(default=None, compare=False)
    modules: tuple[ModuleFacts, ...] = field(default=(), compare=False)
    _types: dict[str, tuple[TensorType, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        types: dict[str, tuple[TensorType, ...]] = {value.name: (value.type,) for value in self.values}
        types.update([(op.name, op.types) for op in self.ops])
        object.__setattr__(self, "_types", types)

    def type_of(self, ref: Ref) -> TensorType:
        """Type of a value.

        Raises:
            GraphError: the graph has no such value.
        """
        types = self._types.get(ref.name, ())
        if not 0 <= ref.index < len(types):
            raise GraphError(f"{self.name}: no value {ref}")
        return types[ref.index]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that a caller passes."""
        return tuple(value for value in self.values if value.role == "input")

    @property
    def partial(self) -> bool:
        """Whether the forward pass continues beyond the end of the graph."""
        return any(item.kind == "stop" for item in self.breaks)

    def users(self) -> dict[str, list[Op]]:
        """Operators that read each value, by name, in order, each once."""
        table: dict[str, list[Op]] = {name: [] for name in self._types}
        for op in self.ops:
            for name in dict.fromkeys([ref.name for ref in op.refs()]):
                table[name].append(op)
        return table

    def verify(self) -> Graph:
        """Check the invariants and return the graph: single definitions, uses after them, known dtypes and layouts.

        Raises:
            GraphError: the first broken invariant.
        """
        defined: dict[str, tuple[TensorType, ...]] = {}
        for value in self.values:
            self._define(defined, value.name, (value.type,))
            if value.role not in ("input", "param"):
                raise GraphError(f"{self.name}: %{value.name} has the unknown role {value.role!r}")
        for op in self.ops:
            self._check_uses(defined, op.refs(), f"%{op.name}")
            self._define(defined, op.name, op.types)
        self._check_uses(defined, self.outputs, "return")
        return self

    def _define(self, defined: dict[str, tuple[TensorType, ...]], name: str, types: tuple[TensorType, ...]) -> None:
        if name in defined:
            raise GraphError(f"{self.name}: %{name} is defined twice")
        for kind in types:
            if kind.dtype not in DTYPE_BYTES:
                raise GraphError(f"{self.name}: %{name} has the unknown dtype {kind.dtype!r}")
            if kind.layout not in LAYOUTS or any(size < 0 for size in kind.shape):
                raise GraphError(f"{self.name}: %{name} has the impossible type {kind}")
        defined[name] = types

    def _check_uses(self, defined: dict[str, tuple[TensorType, ...]], refs: tuple[Ref, ...], where: str) -> None:
        for ref in refs:
            if ref.name not in defined or not 0 <= ref.index < len(defined[ref.name]):
                raise GraphError(f"{self.name}: {where} uses {ref}, which is not defined before it")

    def __str__(self) -> str:
        calls = self.calls
        numbers = (calls.modules, calls.views, calls.idle, calls.queries, calls.writes, self.checked_modules)
        counts = zip(COUNTS, numbers, strict=True)
        name = "\\x5f" if self.name == _NO_NAME else written_name(self.name or _NO_NAME)
        head = [name, *(f"{word} {count}" for word, count in counts if count)]
        lines = [f"graph {' '.join(head)} {{"]
        lines += [f"  {value.role} %{written_name(value.name)}: {value.type}" for value in self.values]
        lines += [f"  {op}" for op in self.ops]
        lines += [f"  {item}" for item in self.breaks]
        lines.append(f"  return {', '.join(map(str, self.outputs))}".rstrip())
        return "\n".join([*lines, "}"])


def format_arg(arg: Arg) -> str:
    """Format an argument for the text form."""
    if _is_nested(arg):
        return "[" + ", ".join(map(format_arg, arg)) + "]"
    if isinstance(arg, tuple):
        return repr(list(arg))
    return repr(arg) if isinstance(arg, str) else str(arg)
