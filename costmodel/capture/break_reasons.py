"""Reasons of Dynamo's graph breaks in the words of the code that causes them.

A message of Dynamo has a title, an explanation, hints and a context; torch lists the titles in
`torch/_dynamo/graph_break_registry.json`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from costmodel.errors import first_line

_CONTEXT = re.compile(r"Developer debug context: (.*)")
_EXPLANATION = re.compile(r"Explanation: (.*)")
_MOST_LETTERS = 100
_CONSEQUENCES = ("step_unsupported", "graph break in loop", "skip_frame()", "Attempt to trace generator")
_LOGGED = "a logging call"
_SCRIPTED = "a TorchScript module"
READ = "a tensor's value is read (.item(), float(), int())"


def in_plain_words(reason: str) -> str:
    """Describe what breaks the graph, such as `print()` or `a branch on the values of a tensor`.

    Args:
        reason: message of Dynamo.
    """
    title = first_line(reason)
    for part, describe in _WORDS.items():
        if part in title:
            return describe(_field(_CONTEXT, reason), _field(_EXPLANATION, reason)) or _title(title, reason)
    return _title(title, reason)


def is_consequence(reason: str) -> bool:
    """Whether a message only says that Dynamo gives up a function, because of a break reported by another message."""
    return any(part in first_line(reason) for part in _CONSEQUENCES)


def is_recompile_limit(reason: str) -> bool:
    """Whether a message says that a function was compiled too often, and runs eagerly from now on."""
    return "recompile limit exceeded" in first_line(reason)


def _field(pattern: re.Pattern[str], reason: str) -> str:
    found = pattern.search(reason)
    return found.group(1) if found else ""


def _title(title: str, reason: str) -> str:
    """Title of a message without a rule, with the part of its context that names something."""
    named = _field(_CONTEXT, reason)
    short = named if 0 < len(named) <= _MOST_LETTERS - len(title) else ""
    return (f"{title}: {short}" if short else title) or "unknown"


def _matched(pattern: str, form: str = "{}()", *, of_explanation: bool = False) -> Callable[[str, str], str]:
    """Description by what a pattern finds in the context or the explanation; empty if it finds nothing."""
    compiled = re.compile(pattern)

    def describe(context: str, explanation: str) -> str:
        found = compiled.search(explanation if of_explanation else context)
        return form.format(*found.groups()) if found else ""

    return describe


def _always(text: str) -> Callable[[str, str], str]:
    return lambda _context, _explanation: text


def _called(context: str, _explanation: str) -> str:
    found = re.search(r"module: (.+?), qualname: ([^\s,]+)", context)
    if not found:
        return ""
    module, name = found.groups()
    if name in ("Random.random", "Random.getrandbits"):
        return "random.random()"
    name = name.removesuffix(".__new__")
    return f"{name}()" if module in ("builtins", "None", "<unknown module>") else f"{module.lstrip('_')}.{name}()"


def _method(context: str, explanation: str) -> str:
    found = re.search(r"method `(\w+)` of class `([\w.]+)`", explanation)
    if not found:
        return ""
    method, kind = found.groups()
    owner = re.search(r"<class '([\w.]+)'>", context)
    if kind == "type" and owner:
        kind = owner.group(1)
    return f"{kind}()" if method == "__new__" else f"{kind}.{method}()"


def _inlined(context: str, _explanation: str) -> str:
    found = re.search(r"qualname: ([^\s,]+)", context)
    if not found:
        return ""
    return _SCRIPTED if found.group(1).startswith("_CachedForward.") else f"{found.group(1)}()"


def _argument(context: str, _explanation: str) -> str:
    found = re.search(r"UserDefined(?:Object|Class)Variable\((\w+)\)", context)
    return f"an argument of class {found.group(1)}" if found else ""


def _compared(_context: str, explanation: str) -> str:
    return _LOGGED if "LoggingLogger" in explanation else ""


def _operator(context: str, _explanation: str) -> str:
    found = re.search(r"(?:torch\.ops\.)?((?:aten|torchvision)\.\w+)", context)
    if found and found.group(1) == "aten._local_scalar_dense":
        return READ
    return f"{found.group(1)}, whose result depends on values" if found else "a result that depends on values"


def _raised(context: str, _explanation: str) -> str:
    found = re.search(r"(\w+(?:Error|Exception|Iteration|Exit|Interrupt))\((.*)\)", context)
    return f"{found.group(1)} is raised: {found.group(2).strip(chr(34))}".rstrip(": ") if found else "an exception"


_WORDS: dict[str, Callable[[str, str], str]] = {
    "Data-dependent branching": _always("a branch on the values of a tensor"),
    "generic_jump": _always("a branch on the values of a tensor"),
    "Data-dependent assertion": _always("an assertion on the values of a tensor"),
    "Unsupported Tensor.item()": _always(READ),
    "Tensor.tolist()": _always("a tensor's values are read (.tolist())"),
    "Tensor.numpy()": _always("a tensor's values are read (.numpy())"),
    "Dynamic slicing with Tensor arguments": _always("a slice by the values of a tensor"),
    "Indexing list with non-scalar tensor": _always("a list indexed by a tensor"),
    "Data dependent operator": _operator,
    "Dynamic shape operator": _operator,
    "Operator does not support running with fake tensors": _matched(
        r"unsupported operator: (\S+)", "{}, of which torch does not know the shape of the result"
    ),
    "logging.Logger method": _always(_LOGGED),
    "Failed to trace builtin operator": _matched(r"builtin (\w+)"),
    "Attempted to call function marked as skipped": _called,
    "Attempted to inline function marked as skipped": _inlined,
    "torch.jit.script/freeze modules": _always(_SCRIPTED),
    "Failed to convert args/kwargs to proxy": _argument,
    "Unresolved GetAttrVariable comparison": _compared,
    "Unsupported method call": _method,
    "`torch.compiler.disable()`d function": _matched(r"<function (\S+) at", "torch.compiler.disable on {}"),
    "torch._dynamo.graph_break()": _always("torch._dynamo.graph_break()"),
    "Attempted to wrap RNN": _always("nn.LSTM, nn.GRU and nn.RNN, which Dynamo does not trace"),
    "Attempted to copy.deepcopy a tensor": _always("copy.deepcopy() of a tensor"),
    "Missing tp_iternext": _matched(r"next\((.*)\)", "a loop over an object of class {}"),
    "Unsupported context manager": _matched(r" on (?:\w+\()?([\w.]+)", "a with statement on {}"),
    "Observed exception": _raised,
    "Dynamo recompile limit exceeded": _always("more recompilations than torch._dynamo.config.recompile_limit"),
    "Import failure": _matched(r"module_name: ([^\s,]+)", "the import of {}"),
    "Reconstruction failure": _always("an object that compiled code cannot make again after the break"),
    "step_unsupported": _always("a break within a with statement, a try statement or a loop"),
    "graph break in loop": _always("a break within a loop"),
    "skip_frame()": _always("torch._dynamo.skip_frame()"),
}
"""Description by a part of the title, which differs between releases of torch (2.11 to 2.13)."""
