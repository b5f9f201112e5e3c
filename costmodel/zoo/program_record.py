"""Check of exported programs in JSON: everything that torch would call, evaluate, import or print as code.

torch resolves operators by name, evaluates sizes, imports modules named in the structure of inputs, and writes names of
a graph into Python source that it then runs. Therefore all texts in a program must have one of a closed set of forms.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from costmodel.ir.pure_operators import PURE, TEXTS, WORDS
from costmodel.zoo.size_text import is_arithmetic

MOST_ELEMENTS = 1 << 40
"""Limit of the elements of one tensor, above the memory of any device."""
_OPERATOR = "torch.ops."
_ON_SIZES = frozenset(
    (
        *(f"_operator.{name}" for name in ("getitem", "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg")),
        *(f"_operator.{name}" for name in ("pos", "eq", "ne", "le", "ge", "lt", "gt", "and_", "or_")),
        *(f"math.{name}" for name in ("trunc", "ceil", "floor", "sqrt")),
        *(f"torch.sym_{name}" for name in ("int", "float", "ite", "max", "min", "not", "sqrt")),
        "torch.ops.higher_order.wrap_with_set_grad_enabled",
    )
)
"""Arithmetic on sizes, and the operator that runs a subgraph without gradients."""
_FORMS = frozenset(
    f"as_{form}"
    for form in (
        *("none", "tensor", "tensors", "optional_tensor", "optional_tensors", "nested_tensors", "int", "ints", "float"),
        *("floats", "bool", "bools", "complex", "sym_int", "sym_ints", "sym_float", "sym_floats", "sym_bool", "string"),
        *("sym_bools", "name", "expr", "scalar_type", "memory_format", "layout", "device", "graph", "int_lists"),
    )
)
"""Accepted forms of arguments; others are objects, operators and lists of texts."""
_NAME = re.compile(r"[\w.]{0,1000}")
_ATTRIBUTE = re.compile(r"[^\"'\\\x00-\x1f\x7f]{0,1000}")
"""Names of parameters and modules, which torch quotes in generated source."""
_VERSION = re.compile(r"[\w.+-]{0,100}")
_PATTERNS = {
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name", "fqn", "user_input_name"), _ATTRIBUTE),
    **dict.fromkeys(("torch_version", "verifiers"), _VERSION),
}
_UNUSED = frozenset(("metadata", "guards_code", "treespec_namedtuple_fields"))
"""Fields without effect: notes, and guards, which are left out."""
_CHECKED_APART = frozenset(("target", "as_string", "expr_str", "in_spec", "out_spec"))
_CONTAINERS = frozenset((None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"))
_LARGEST = 2**63

Entry = tuple[str, Any]


def objections(program: object) -> Iterator[str]:
    """Yield faults of a program, each as the end of a sentence that starts with the file."""
    for key, value in _entries(program):
        if isinstance(value, dict):
            yield from _objections_to_object(key, value)
        elif isinstance(value, str):
            yield from _objections_to_text(key, value)
        elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            yield "holds a number of more than 64 bits"


def _entries(content: object) -> Iterator[Entry]:
    """Yield keys and values at any depth, in order; items of a list have the key of the list."""
    waiting: list[Entry] = [("", content)]
    while waiting:
        key, found = waiting.pop()
        yield key, found
        if isinstance(found, dict):
            waiting += [entry for entry in reversed(found.items()) if entry[0] not in _UNUSED]
        elif isinstance(found, list):
            waiting += [(key, item) for item in reversed(found)]


def _objections_to_object(key: str, found: dict[str, Any]) -> Iterator[str]:
    for name in found:
        if key == "range_constraints":
            yield from _objections_to_text("expr_str", name)
        elif not _NAME.fullmatch(name):
            yield f"holds {name[:40]!r} where a name should be"
        elif name.startswith("as_") and key in ("arg", "value") and name not in _FORMS:
            yield f"holds an argument of the form {name[:40]!r}, which is neither a tensor nor a number"
    if "as_string" in (found.get("arg", ()) if key == "user_input" else () if key == "arg" else found):
        yield "takes or returns a text"
    if "target" in found and "inputs" in found:
        yield from _objections_to_node(found)
    if "sizes" in found:
        yield from _objections_to_sizes(found["sizes"])


def _objections_to_text(key: str, text: str) -> Iterator[str]:
    if key == "expr_str" and not is_arithmetic(text):
        yield f"holds a size that is no arithmetic, or too large ({text[:40]!r})"
    elif key in ("in_spec", "out_spec") and not _is_structure(text, _NAME if key == "in_spec" else _ATTRIBUTE):
        yield f"takes or returns something other than tensors in tuples, lists and dicts ({text[:60]!r})"
    elif key not in _CHECKED_APART and not _PATTERNS.get(key, _NAME).fullmatch(text):
        yield f"holds {text[:40]!r} where a name should be"


def _objections_to_node(node: dict[str, Any]) -> Iterator[str]:
    target = str(node["target"])
    if target not in _ON_SIZES and not (target.startswith(_OPERATOR) and target.removeprefix(_OPERATOR) in PURE):
        yield f"calls {target[:60]!r}, which is no operator that costmodel accepts from a file"
    for given in node["inputs"]:
        if "as_string" in given["arg"] and not _is_word(target, str(given["name"]), str(given["arg"]["as_string"])):
            text = str(given["arg"]["as_string"])
            yield f"calls {target[:60]!r} with the text {text[:40]!r}, which is none of its options"


def _is_word(target: str, argument: str, text: str) -> bool:
    """Whether an operator accepts a text as an option; texts that name files or code are excluded."""
    option = f"{target.split('.')[-2]}.{argument}" if target.count(".") > 2 else ""
    pattern = TEXTS.get(option)
    return text in WORDS.get(option, ()) or (pattern is not None and re.fullmatch(pattern, text) is not None)


def _objections_to_sizes(sizes: list[dict[str, Any]]) -> Iterator[str]:
    known = [size["as_int"] for size in sizes if "as_int" in size]
    if not all(isinstance(size, int) and size >= 0 for size in known) or math.prod(known) > MOST_ELEMENTS:
        yield f"holds a tensor of {'x'.join(map(str, known))[:60]} elements, which no device can hold"


def _is_structure(text: str, pattern: re.Pattern[str]) -> bool:
    """Whether the structure of inputs or outputs has plain containers only; torch imports the names of others."""
    if not text:
        return True
    waiting = [json.loads(text)[1]]
    while waiting:
        found = waiting.pop()
        keys = json.loads(found["context"]) if found["context"] else None
        plain = keys is None or (isinstance(keys, list) and all(_is_key(key, pattern) for key in keys))
        if found["type"] not in _CONTAINERS or not plain:
            return False
        waiting += found["children_spec"]
    return True


def _is_key(key: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and pattern.fullmatch(key) is not None)
