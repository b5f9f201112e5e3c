"""Reasons of Dynamo's graph breaks in the words of the code that causes them."""

from __future__ import annotations

import re
from collections.abc import Callable

from costmodel.errors import first_line

_CONTEXT = re.compile(r"Developer debug context: (.*)")
_QUALIFIED = re.compile(r"module: (\S+), qualname: ([^\s,]+)")
_BUILTIN = re.compile(r"builtin (\w+)")
_FUNCTION = re.compile(r"<function (\S+) at")
_OPERATOR = re.compile(r"(?:torch\.ops\.)?((?:aten|torchvision)\.\w+)")


def in_plain_words(reason: str) -> str:
    """Describe what breaks the graph, such as `print()` or `a branch on the values of a tensor`.

    Args:
        reason: message of Dynamo: a first line, an explanation, hints and a context.
    """
    title = first_line(reason)
    found = _CONTEXT.search(reason)
    context = found.group(1) if found else ""
    for part, describe in _WORDS.items():
        if part in title:
            return describe(context, title)
    return title or "unknown"


def _called(context: str, title: str) -> str:
    found = _QUALIFIED.search(context)
    if not found:
        return title
    module, name = found.groups()
    return f"{name}()" if module in ("builtins", "None", "<unknown") else f"{module}.{name}()"


def _builtin(context: str, title: str) -> str:
    found = _BUILTIN.search(context)
    return f"{found.group(1)}()" if found else title


def _disabled(context: str, _title: str) -> str:
    found = _FUNCTION.search(context)
    return f"torch.compiler.disable on {found.group(1)}" if found else "torch.compiler.disable"


def _operator(context: str, _title: str) -> str:
    found = _OPERATOR.search(context)
    if found and found.group(1) == "aten._local_scalar_dense":
        return "a tensor's value is read (.item(), float(), int())"
    return f"{found.group(1)}, whose result depends on values" if found else "a result that depends on values"


def _constant(text: str) -> Callable[[str, str], str]:
    return lambda _context, _title: text


_WORDS: dict[str, Callable[[str, str], str]] = {
    "Data-dependent branching": _constant("a branch on the values of a tensor"),
    "generic_jump": _constant("a branch on the values of a tensor"),
    "Unsupported Tensor.item()": _constant("a tensor's value is read (.item(), float(), int())"),
    "Data dependent operator": _operator,
    "Dynamic shape operator": _operator,
    "logging.Logger method": _constant("a logging call"),
    "Failed to trace builtin operator": _builtin,
    "Attempted to call function marked as skipped": _called,
    "Skip inlining `torch.compiler.disable()`d function": _disabled,
    "Attempted to wrap RNN": _constant("nn.LSTM, nn.GRU and nn.RNN, which Dynamo does not trace"),
}
"""Description by a part of the first line of Dynamo's message, which differs between releases of torch."""
