"""The types of the intermediate representation: small and frozen, with their verifier and their text form.

The text form is stable: golden tests, the keys of the measured units and the collectors' work lists are made of it.

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
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace

from costmodel.errors import GraphError
from costmodel.ir.names import written_name

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
    "complex64": 8,
}
HALF_PRECISION = ("float16", "bfloat16")
LAYOUTS = ("nchw", "nhwc", "strided")
COUNTS = ("calls", "views", "idle", "queries", "writes", "checks")
"""What a graph's first line tells after its name, where there are any: the counts of `Calls`, and checked modules."""
_QUOTED_IF = re.compile(r"[\s'\"]")
"""What the operator of a break, which may be a sentence, cannot hold without quotes."""
_NO_NAME = "_"
"""Stands for a graph's name where it has none."""


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
        """Size in bytes, of the elements alone."""
        return self.numel * DTYPE_BYTES[self.dtype]

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
    """The values that an argument uses, in order."""
    if isinstance(arg, Ref):
        yield arg
    elif isinstance(arg, tuple):
        for item in arg:
            yield from refs_in(item)


def map_refs(arg: Arg, function: Callable[[Ref], Ref]) -> Arg:
    """An argument with other values in the places of those that it uses."""
    if isinstance(arg, Ref):
        return function(arg)
    return tuple(map_refs(item, function) for item in arg) if isinstance(arg, tuple) else arg


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that a graph is given: an `input`, or a `param` (parameters, buffers and constants)."""

    name: str
    type: TensorType
    role: str = "input"


@dataclass(frozen=True, slots=True)
class Op:
    """One ATen operator: arguments by their schema names, the types it returns, the module it belongs to.

    `inplace` tells that the result lies in the memory of the first argument, `frees` which values' memory the program
    let go of between this operator and the next. They say where values lie, not what they are, and are no part of the
    text form.
    """

    name: str
    op: str
    args: tuple[tuple[str, Arg], ...]
    types: tuple[TensorType, ...]
    module: str = ""
    inplace: bool = field(default=False, compare=False)
    frees: tuple[Ref, ...] = field(default=(), compare=False)

    @property
    def base(self) -> str:
        """The operator's name without its overload: `add` of `add.Tensor`."""
        return self.op.partition(".")[0]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.types[0]

    def arg(self, name: str, default: Arg = None) -> Arg:
        """The argument of that name, or `default` where the operator was called without it."""
        return next((value for key, value in self.args if key == name), default)

    def refs(self) -> tuple[Ref, ...]:
        """The values it reads, in order, repeated where it reads one twice."""
        return tuple(ref for _, arg in self.args for ref in refs_in(arg))

    def reading(self, function: Callable[[Ref], Ref]) -> Op:
        """The same operator on other values."""
        return replace(self, args=tuple((key, map_refs(value, function)) for key, value in self.args))

    def __str__(self) -> str:
        args = ", ".join(f"{written_name(key)}={format_arg(value)}" for key, value in self.args)
        types = ", ".join(map(str, self.types))
        where = f" @{written_name(self.module)}" if self.module else ""
        return f"%{written_name(self.name)} = {written_name(self.op)}({args}) : {types}{where}"


@dataclass(frozen=True, slots=True)
class Break:
    """A place where the forward pass went by the values of a tensor, so that the graph is not all of it.

    Attributes:
        kind: `size`: a result whose size depends on data was taken at its largest; `stop`: the graph ends here; `cut`:
            Dynamo gives up here and goes on after it, in a graph of its own.
        op: the operator; `control_flow` where Python itself asked for the values; of a `cut`, Dynamo's reason.
        module: the module that ran.
        source: file and line of the model.
        missed: of a `stop`, the outermost modules with parameters that did not run.
    """

    kind: str
    op: str
    module: str
    source: str
    missed: tuple[str, ...] = ()

    def __str__(self) -> str:
        missed = f" misses {','.join(map(written_name, self.missed))}" if self.missed else ""
        op = repr(self.op) if _QUOTED_IF.search(self.op) or not self.op.isprintable() else self.op
        return f"break {self.kind} {op} @{written_name(self.module)} {written_name(self.source)}{missed}"


@dataclass(frozen=True, slots=True)
class Calls:
    """What Python calls in one forward pass beside operators that compute: time that eager execution pays.

    Attributes:
        modules: submodules.
        views: functions that make views and nothing else.
        idle: functions that issue nothing: a dropout in evaluation mode, a conversion to the type that a tensor has.
        queries: of a tensor's shape, type or device.
        writes: of constants into parts of constants, as masks are made; compilers fold them, and no operator of the
            graph tells of them.
    """

    modules: int = 0
    views: int = 0
    idle: int = 0
    queries: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """Operators in execution order; `values` are what it is given, `outputs` what it returns.

    `calls` counts what Python calls beside operators. `checked_modules` counts the submodules that a compiled call
    checks one by one. `breaks` is empty where the graph is the whole pass.
    """

    name: str
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Ref, ...]
    calls: Calls = Calls()
    breaks: tuple[Break, ...] = ()
    checked_modules: int = 0
    _types: dict[str, tuple[TensorType, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        types: dict[str, tuple[TensorType, ...]] = {value.name: (value.type,) for value in self.values}
        types.update((op.name, op.types) for op in self.ops)
        object.__setattr__(self, "_types", types)

    def type_of(self, ref: Ref) -> TensorType:
        """The type of a value.

        Raises:
            GraphError: the graph has no such value.
        """
        types = self._types.get(ref.name, ())
        if not 0 <= ref.index < len(types):
            raise GraphError(f"{self.name}: no value {ref}")
        return types[ref.index]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that a caller passes."""
        return tuple(value for value in self.values if value.role == "input")

    @property
    def partial(self) -> bool:
        """Whether the forward pass goes on where the graph ends."""
        return any(item.kind == "stop" for item in self.breaks)

    def users(self) -> dict[str, list[Op]]:
        """Value name -> the operators that read it, in order, each once."""
        table: dict[str, list[Op]] = {name: [] for name in self._types}
        for op in self.ops:
            for name in dict.fromkeys(ref.name for ref in op.refs()):
                table[name].append(op)
        return table

    def verify(self) -> Graph:
        """The graph itself, once its invariants hold: single definitions, uses after them, known dtypes and layouts.

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
        counts = zip(COUNTS, (*astuple(self.calls), self.checked_modules), strict=True)
        name = "\\x5f" if self.name == _NO_NAME else written_name(self.name or _NO_NAME)
        head = [name, *(f"{word} {count}" for word, count in counts if count)]
        lines = [f"graph {' '.join(head)} {{"]
        lines += [f"  {value.role} %{written_name(value.name)}: {value.type}" for value in self.values]
        lines += [f"  {op}" for op in self.ops]
        lines += [f"  {item}" for item in self.breaks]
        lines.append(f"  return {', '.join(map(str, self.outputs))}".rstrip())
        return "\n".join([*lines, "}"])


def format_arg(arg: Arg) -> str:
    """An argument as the text form writes it."""
    if isinstance(arg, tuple):
        return "[" + ", ".join(map(format_arg, arg)) + "]"
    return repr(arg) if isinstance(arg, str) else str(arg)
