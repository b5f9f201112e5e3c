"""Models of libraries known to be one graph under torch.compile, by release of torch.

`scripts/one_graph.py` writes the list.
"""

from __future__ import annotations

import functools
import importlib.resources
import json

import torch


def is_known(spec: str) -> bool:
    """Whether a model is known to be one graph in the installed release of torch."""
    return spec in _known().get(release(), ())


def release() -> str:
    """Release of the installed torch, such as `2.13`."""
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


@functools.cache
def _known() -> dict[str, frozenset[str]]:
    """Names of models by release of torch."""
    text = importlib.resources.files("costmodel.zoo").joinpath("one_graph.json").read_text(encoding="utf-8")
    return {version: frozenset(names) for version, names in json.loads(text).items()}
