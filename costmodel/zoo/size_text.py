"""Sizes in an exported program: text that sympy evaluates, such as `2*Max(1, s77)`.

Sympy evaluates it eagerly as Python: `9**9**9**9` never ends. Therefore length, depth and number of expanded terms are
checked first.
"""

from __future__ import annotations

import ast
import math
import re

MOST_CHARACTERS = 4_000
MOST_DEPTH = 40
MOST_TERMS = 1_000
"""Limit of expanded terms; `(s0 + s1)**2` has four."""
MOST_ROUNDED = 64
"""Limit of functions, quotients and remainders in one size."""
MOST_COMPARED = 12
"""Limit of arguments of Max and Min in one size; sympy compares all pairs."""
MOST_NUMBER = 2**63
MOST_EXPONENT = 16
"""Limit of exponents and shifts."""
SYMBOL = re.compile(r"[a-z]{1,4}\d{1,6}")
"""Names of symbols."""
_NUMBER = re.compile(r"[-+]?(\d{1,19}(\.\d{0,40})?|\.\d{1,40})(e[-+]?\d{1,2})?", re.IGNORECASE)
_CONSTANTS = frozenset(("oo", "int_oo", "True", "False", "true", "false"))
_POWERS = frozenset(("Pow", "PowByNatural", "FloatPow", "LShift", "RShift", "RoundDecimal"))
_SUMS = {ast.Add: "Add", ast.Sub: "Add", ast.Mult: "Mul", ast.Div: "Mul", ast.Pow: "Pow"}
_ROUNDED = {ast.FloorDiv: "FloorDiv", ast.Mod: "Mod"}
_LEAVES = frozenset(("Symbol", "Integer", "Float", "Rational"))
_FUNCTIONS = frozenset(
    (
        *("Abs", "Max", "Min", "Mod", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Piecewise", "ceiling"),
        *("floor", "sqrt", "log", "Where", "FloorDiv", "CleanDiv", "CeilDiv", "CeilToInt", "FloorToInt", "TruncToInt"),
        *("TruncToFloat", "RoundToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "ModularIndexing", "PythonMod"),
        *("Identity", "IsNonOverlappingAndDenseIndicator", *_POWERS),
    )
)
"""Functions of sympy and torch in the text of a size, besides sums and products."""


class _NotArithmeticError(Exception):
    """A size that is no arithmetic, or is too large."""


def is_arithmetic(text: str) -> bool:
    """Whether the text of a size is arithmetic on symbols that sympy evaluates quickly."""
    if len(text) > MOST_CHARACTERS:
        return False
    try:
        tree = ast.parse(text, mode="eval")
        return _is_small(tree) and _terms(tree.body, MOST_DEPTH) <= MOST_TERMS
    except (_NotArithmeticError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_small(tree: ast.AST) -> bool:
    names = [(_called(node), node) for node in ast.walk(tree)]
    compared = sum(len(node.args) for name, node in names if name in ("Max", "Min") and isinstance(node, ast.Call))
    return sum(name in _FUNCTIONS for name, _ in names) <= MOST_ROUNDED and compared <= MOST_COMPARED


def _called(node: ast.AST) -> str:
    """Name of the function or operator of a node; empty for a leaf."""
    if isinstance(node, ast.Call):
        return node.func.id if isinstance(node.func, ast.Name) else "?"
    if isinstance(node, ast.Compare):
        return "Eq"
    return (_SUMS | _ROUNDED).get(type(node.op), "?") if isinstance(node, ast.BinOp) else ""


def _terms(node: ast.expr, depth: int) -> int:
    """Count expanded terms of an expression."""
    name = _called(node)
    if not depth:
        raise _NotArithmeticError
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _terms(node.operand, depth - 1)
    if name in _LEAVES or not name:
        _check_leaf(node)
        return 1
    parts = _parts(node)
    terms = [_terms(part, depth - 1) for part in parts]
    if max(terms, default=0) > MOST_TERMS:
        raise _NotArithmeticError
    if name in _POWERS and len(parts) > 1:
        return int(terms[0] ** _exponent(parts[0], parts[1]))
    if name in _FUNCTIONS:
        return 1
    if name not in ("Add", "Mul"):
        raise _NotArithmeticError
    return sum(terms) if name == "Add" else math.prod(terms)


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call) and not node.keywords:
        return node.args
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    raise _NotArithmeticError


def _exponent(base: ast.expr, exponent: ast.expr) -> int:
    """Check and return a small exponent; nested powers are refused, because their exponents multiply."""
    numbers = [node.value for node in ast.walk(exponent) if isinstance(node, ast.Constant)]
    nested = any(_called(node) in _POWERS for node in ast.walk(base))
    plain = all(_called(node) in ("", *_LEAVES) for node in ast.walk(exponent))
    if nested or not plain or not numbers:
        raise _NotArithmeticError
    largest = max(abs(float(number)) for number in numbers if isinstance(number, (int, float, str)))
    if not largest <= MOST_EXPONENT:
        raise _NotArithmeticError
    return max(1, math.ceil(largest))


def _check_leaf(node: ast.expr) -> None:
    """Raise unless a node is a symbol or a number, in the syntax of Python or of sympy."""
    if isinstance(node, ast.Call):
        known = all(_is_text_or_number(argument) for argument in node.args) and all(map(_is_flag, node.keywords))
    elif isinstance(node, ast.Name):
        known = node.id in _CONSTANTS or SYMBOL.fullmatch(node.id) is not None
    else:
        known = isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and _is_text_or_number(node)
    if not known:
        raise _NotArithmeticError


def _is_text_or_number(node: ast.expr) -> bool:
    """Whether an argument is a number, or the text of a number or symbol, which sympy evaluates too."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_text_or_number(node.operand)
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None or SYMBOL.fullmatch(value) is not None
    return isinstance(value, float) or (isinstance(value, int) and value <= MOST_NUMBER)


def _is_flag(keyword: ast.keyword) -> bool:
    """Whether a keyword is an assumption of a symbol or the precision of a number."""
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    return isinstance(value, bool) or (keyword.arg == "precision" and isinstance(value, int) and 0 < value <= 64)
