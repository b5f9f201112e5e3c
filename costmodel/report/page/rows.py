"""Module tree as rows, a column a field, and the row of each layer, also of those that the tree has collapsed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from costmodel.report.escape import terminal
from costmodel.report.module_tree import ModuleNode

DIGITS = 4
"""Significant digits of numbers for scripts."""
_RANGE = re.compile(r"(.*?)(\d+)\.\.(\d+)")
"""Label of collapsed siblings: `layer0..11`."""
_TEXTS = {
    "name": "name",
    "label": "label",
    "type": "module_type",
    "kind": "kind",
    "shape": "shape",
    "bound": "bound",
    "why": "reason",
}
_NUMBERS = {
    "params": "parameters",
    "flops": "flops",
    "eager": "eager_us",
    "compiled": "compiled_us",
    "speedup": "speedup",
    "low": "speedup_low",
    "high": "speedup_high",
    "extra": "extrapolated_share",
    "count": "count",
}


class Words:
    """Distinct texts in the order of their first use, so that data name each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Place of a text."""
        return self._places.setdefault(terminal(text), len(self._places))

    @property
    def texts(self) -> list[str]:
        """The texts, in order."""
        return list(self._places)


class Rows:
    """The rows of a module tree, parents first.

    Attributes:
        columns: a list a field: `parent`, texts as indices of words, numbers.
    """

    def __init__(self, root: ModuleNode, words: Words) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in ("parent", *_TEXTS, *_NUMBERS)}
        self._places: dict[str, int] = {}
        self._ranges: dict[str, list[tuple[str, int, int, str]]] = {}
        pending: list[tuple[ModuleNode, int]] = [(root, -1)]
        while pending:
            node, parent = pending.pop()
            place = len(self.columns["parent"])
            self._places.setdefault(node.name, place)
            self._add(node, parent, words)
            pending += [(child, place) for child in reversed(node.children)]

    def _add(self, node: ModuleNode, parent: int, words: Words) -> None:
        self.columns["parent"].append(parent)
        for name, field in _TEXTS.items():
            self.columns[name].append(words(text_of(getattr(node, field))))
        for name, field in _NUMBERS.items():
            self.columns[name].append(short(getattr(node, field)))
        if found := _RANGE.fullmatch(node.label):
            around, _, first = node.name.rpartition(".")
            stem, low, high = found.groups()
            self._ranges.setdefault(around, []).append((stem, int(low), int(high), first))

    def has(self, layer: str) -> bool:
        """Whether a layer has a row of its own."""
        return layer in self._places

    def place_of(self, layer: str) -> int:
        """Row of a layer, or of the nearest module around it; 0, the model, if there is none."""
        if layer in self._places:
            return self._places[layer]
        path, place = "", 0
        for part in layer.split("."):
            inner = self._first_alike(path, part)
            path = f"{path}.{inner}" if path else inner
            place = self._places.get(path, place)
        return place

    def _first_alike(self, around: str, part: str) -> str:
        """The first of the siblings that a module is collapsed with; else the module itself."""
        found = re.fullmatch(r"(.*?)(\d{1,9})", part)
        for stem, low, high, first in self._ranges.get(around, ()) if found else ():
            if found and found[1] == stem and low <= int(found[2]) <= high:
                return first
        return part


def text_of(value: object) -> str:
    """A text, or sizes."""
    return sizes(value) if isinstance(value, tuple) else str(value)


def sizes(shape: Sequence[int]) -> str:
    """Sizes joined by a cross."""
    return "×".join(map(str, shape))


def short(value: float | None, digits: int = DIGITS) -> float | int | None:
    """A number with few digits; None where it is none that JSON has."""
    rounded = math.nan if value is None else float(f"{value:.{digits}g}")
    if not math.isfinite(rounded):
        return None
    return int(rounded) if rounded.is_integer() else rounded
