"""The project's intermediate representation: a graph of ATen operators on typed tensors, printed and parsed."""

from costmodel.ir.forward_pass import Break, Calls, ModuleFacts
from costmodel.ir.parser import parse, parse_types
from costmodel.ir.partition import Partition
from costmodel.ir.types import (
    DTYPE_BYTES,
    HALF_PRECISION,
    LAYOUTS,
    Arg,
    Graph,
    Op,
    Ref,
    TensorType,
    Value,
    refs_in,
)

__all__ = [
    "DTYPE_BYTES",
    "HALF_PRECISION",
    "LAYOUTS",
    "Arg",
    "Break",
    "Calls",
    "Graph",
    "ModuleFacts",
    "Op",
    "Partition",
    "Ref",
    "TensorType",
    "Value",
    "parse",
    "parse_types",
    "refs_in",
]
