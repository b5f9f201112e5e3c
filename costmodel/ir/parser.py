"""Parser of the text form of a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from costmodel.errors import GraphError
from costmodel.ir.forward_pass import Break, Calls
from costmodel.ir.names import read_name
from costmodel.ir.types import COUNTS, Arg, Graph, Op, Ref, TensorType, Value

_NAME = r"[^\s,=()\[\]%#]+"
_HEAD = re.compile(r"graph (.+?)" + "".join(rf"(?: {word} (\d+))?" for word in COUNTS) + r" \{")
_VALUE = re.compile(rf"(input|param) %({_NAME}): (.+)")
_OP = re.compile(rf"%({_NAME}) = ({_NAME})\((.*)\) : (.+?)(?: @(\S*))?")
_TYPE = re.compile(r"(\w+)\[([\d,]*)\](?: (nhwc|strided))?")
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_BREAK = re.compile(rf"break (size|stop|cut) ({_QUOTED}|\S+) @(\S*) (\S+)(?: misses (\S+))?")
_WORD = re.compile(rf"\s*(\[|\]|,|=|%{_NAME}(?:#\d+)?|{_QUOTED}|[^\s,=\[\]]+)")


def parse(text: str) -> Graph:
    """Parse a graph from the text of `str(graph)`.

    Raises:
        GraphError: the text is not such a graph; the message quotes the line.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None or len(lines) < 3 or lines[-1] != "}" or not lines[-2].startswith("return"):
        raise GraphError("not a graph: expected 'graph NAME {', one line a value and operator, 'return ...', '}'")
    values: list[Value] = []
    ops: list[Op] = []
    breaks: list[Break] = []
    for line in lines[1:-2]:
        if match := _VALUE.fullmatch(line):
            values.append(Value(read_name(match[2]), _parse_type(match[3]), match[1]))
        elif match := _OP.fullmatch(line):
            name, op, module = (read_name(word or "") for word in match.group(1, 2, 5))
            ops.append(Op(name, op, _parse_args(match[3]), parse_types(match[4]), module))
        elif match := _BREAK.fullmatch(line):
            missed = tuple(map(read_name, match[5].split(","))) if match[5] else ()
            op = ast.literal_eval(match[2]) if match[2][0] in "'\"" else match[2]
            breaks.append(Break(match[1], op, read_name(match[3]), read_name(match[4]), missed))
        else:
            raise GraphError(f"cannot parse the line: {line}")
    outputs = tuple(_parse_ref(item) for item in lines[-2][len("return") :].split(",") if item.strip())
    name = "" if head[1] == "_" else read_name(head[1])
    *calls, checks = (int(count or 0) for count in head.groups()[1:])
    return Graph(name, tuple(values), tuple(ops), outputs, Calls(*calls), tuple(breaks), checks).verify()


def parse_types(text: str) -> tuple[TensorType, ...]:
    """Parse tensor types separated by commas: `float32[1,3,8,8] nhwc, int64[]`."""
    types = []
    for match in _TYPE.finditer(text):
        shape = tuple(int(size) for size in match[2].split(",") if size)
        types.append(TensorType(match[1], shape, match[3] or "nchw"))
    if ", ".join(map(str, types)) != text.strip():
        raise GraphError(f"cannot parse the type: {text}")
    return tuple(types)


def _parse_type(text: str) -> TensorType:
    types = parse_types(text)
    if len(types) != 1:
        raise GraphError(f"cannot parse the type: {text}")
    return types[0]


def _parse_ref(text: str) -> Ref:
    name, _, index = text.strip().removeprefix("%").partition("#")
    if index and not index.isdecimal():
        raise GraphError(f"cannot parse the value: {text}")
    return Ref(read_name(name), int(index or 0))


def _parse_args(text: str) -> tuple[tuple[str, Arg], ...]:
    words = _WORD.findall(text)
    args: list[tuple[str, Arg]] = []
    position = 0
    while position < len(words):
        if words[position + 1 : position + 2] != ["="]:
            raise GraphError(f"cannot parse the arguments: {text}")
        value, after = _parse_arg(words, position + 2)
        if words[after : after + 1] not in ([], [","]):
            raise GraphError(f"cannot parse the arguments: {text}")
        args.append((read_name(words[position]), value))
        position = after + 1
    return tuple(args)


def _parse_arg(words: list[str], position: int) -> tuple[Arg, int]:
    """Parse the argument at a position; the argument, and the position after it."""
    first = words[position] if position < len(words) else ""
    if first != "[":
        return _parse_scalar(first), position + 1
    items: list[Arg] = []
    position += 1
    while position < len(words) and words[position] != "]":
        item, position = _parse_arg(words, position)
        items.append(item)
        position += words[position : position + 1] == [","]
    if position >= len(words):
        raise GraphError(f"cannot parse the arguments: a list is not closed: {' '.join(words)}")
    return tuple(items), position + 1


_CONSTANTS: Mapping[str, Arg] = {"None": None, "True": True, "False": False}


def _parse_scalar(word: str) -> Arg:
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    if word.startswith("%"):
        return _parse_ref(word)
    for read in (ast.literal_eval,) if word[:1] in ("'", '"') else (int, float, complex):
        try:
            value: Arg = read(word)
        except (SyntaxError, ValueError):
            continue
        return value
    raise GraphError(f"cannot parse the value: {word}")
