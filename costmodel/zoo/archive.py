"""Archives of `torch.export.save`, looked through before torch reads them: what would run code is refused.

`torch.export.load` unpickles what it finds no better way for, evaluates the sizes that a file gives as text, and
resolves the operators of its graph by name in whatever module it names.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from costmodel.errors import RequestError, own_words

NO_CODE = "and costmodel runs no code from a model file"
_ZIP_MAGIC = b"PK\x03\x04"
_REFUSED = {
    "data/aotinductor/": "compiled code",
    "data/constants/opaque_obj": "a pickled object",
    "data/constants/custom_obj": "a scripted object",
}
"""Start of a record's name in the archive -> what it holds."""
_OPERATORS = re.compile(r"torch\.ops\.\w+\.\w+(\.\w+)?|_operator\.\w+|math\.\w+|torch\.sym_\w+|torch\._check\w*")
"""Names that an operator of a graph may have."""
_ARITHMETIC = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.keyword, ast.operator, ast.unaryop, ast.cmpop),
    *(ast.BinOp, ast.UnaryOp, ast.Compare),
)
_FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Abs", "Max", "Min", "Mod", "Eq", "Ne", "Lt"),
        *("Le", "Gt", "Ge", "And", "Or", "Not", "Piecewise", "ceiling", "floor", "sqrt", "log", "Where", "FloorDiv"),
        *("CleanDiv", "CeilDiv", "CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "RoundDecimal"),
        *("ToFloat", "IntTrueDiv", "FloatTrueDiv", "ModularIndexing", "PythonMod", "PowByNatural", "FloatPow"),
        *("Identity", "IsNonOverlappingAndDenseIndicator", "LShift", "RShift"),
    )
)
"""What torch prints in the text of a size, of sympy's functions and its own."""


def check_archive(path: Path) -> None:
    """Nothing, if torch runs no code of the file's when it loads it.

    Raises:
        RequestError: no such file, not such a file, or one that would have to run code to be loaded.
    """
    _check_is_zip(path)
    try:
        records, contents = _read(path)
    except RequestError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as it has bytes
        raise RequestError(f"{path} is a damaged archive: {brief(error)}") from error
    if not any(name.startswith("models/") for name in records):
        raise RequestError(f"{path} holds no exported program; write one with torch.export.save (torch >= 2.8)")
    for start, held in _REFUSED.items():
        if any(name.startswith(start) for name in records):
            raise RequestError(f"{path} holds {held}, {NO_CODE}")
    if any(_is_pickled(config) for name, config in contents.items() if name.endswith("_config.json")):
        raise RequestError(f"{path} holds a pickled tensor, {NO_CODE}")
    _check_text(path, contents.values())


def _check_is_zip(path: Path) -> None:
    if not path.is_file():
        raise RequestError(f"no file {path}; expected a file that torch.export.save wrote")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_ZIP_MAGIC))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    if magic != _ZIP_MAGIC:
        raise RequestError(f"{path} is not a torch.export file (not a zip archive); write one with torch.export.save")


def _read(path: Path) -> tuple[list[str], dict[str, object]]:
    """Names of all records, and what is in those of JSON, read as torch reads them."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):  # of any size unpacked
            raise RequestError(f"{path} is compressed, which torch.export.save does not do; write it with that")
    reader = torch._C.PyTorchFileReader(str(path))
    records = list(reader.get_all_records())
    return records, {name: json.loads(reader.get_record(name)) for name in records if name.endswith(".json")}


def _check_text(path: Path, contents: Iterable[object]) -> None:
    """Refuses what torch would evaluate, or call, and is neither a size nor an operator."""
    for content in contents:
        for text in _sizes(content):
            if not is_arithmetic(text):
                raise RequestError(f"{path} holds a size that is no arithmetic ({text[:40]!r}), {NO_CODE}")
        for target in _targets(content):
            if not _OPERATORS.fullmatch(target):
                raise RequestError(f"{path} calls {target[:60]!r}, which is no operator, {NO_CODE}")


def brief(error: Exception) -> str:
    """What torch says, without the advice that follows."""
    return textwrap.shorten(own_words(error), 120, placeholder=" ...")


def is_arithmetic(text: str) -> bool:
    """Whether the text of a size is arithmetic with symbols, such as `2*Max(1, s77)`: sympy evaluates it as Python."""
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _ARITHMETIC) and _is_harmless(node) for node in nodes)


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
    if isinstance(node, ast.Name):
        return "__" not in node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # a number, or a symbol, evaluated in its turn
        return re.fullmatch(r"[-+.\deE]+|[A-Za-z]\w*", node.value) is not None and "__" not in node.value
    return not isinstance(node, ast.Constant) or isinstance(node.value, (int, float))


def _sizes(content: object) -> Iterator[str]:
    """Texts that torch evaluates as sizes, in a record of an archive."""
    for key, value in _entries(content):
        if key == "expr_str":
            yield str(value)
        elif key == "range_constraints" and isinstance(value, dict):
            yield from map(str, value)


def _targets(content: object) -> Iterator[str]:
    """Names of the operators that a record's graphs call."""
    for key, value in _entries(content):
        if key == "target" and isinstance(value, str) and "." in value and not value.startswith("#"):
            yield value


def _entries(content: object) -> Iterator[tuple[str, object]]:
    """Keys and values of all objects within one, however deep."""
    waiting = [content]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield from found.items()
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _is_pickled(config: object) -> bool:
    payloads = config.get("config") if isinstance(config, dict) else None
    entries = payloads.values() if isinstance(payloads, dict) else ()
    return any(isinstance(entry, dict) and bool(entry.get("use_pickle")) for entry in entries)
