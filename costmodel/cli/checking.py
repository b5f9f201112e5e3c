"""Check for graph breaks in the commands: whether a model is known to be one graph, and how it is run for real."""

from __future__ import annotations

import functools
from typing import Any

from costmodel.cli.output import note

LARGE_MODEL = 20_000_000
"""Parameters from which a forward pass on a CPU may take over 2 s."""
LARGE_INPUT = 1_000_000
"""Elements of the inputs from which it may."""


def checking(spec: str, request: dict[str, Any], *, check: bool, quiet: bool) -> dict[str, Any]:
    """Arguments of `costmodel.capture.with_partition.capture_with_partition` for the model of a spec.

    Args:
        spec: model as on the command line.
        request: the other arguments of `costmodel.zoo.load`.
        check: whether the user wants the check.
        quiet: whether nothing is written to standard error.
    """
    from costmodel.zoo import load_real
    from costmodel.zoo.one_graph import is_known

    @functools.cache
    def real() -> tuple[Any, Any]:
        import torch

        made = load_real(spec, torch.device("cpu"), **request)
        if _may_take_seconds(made.module, made.inputs):
            note(f"running {spec} once on the CPU, for values that its forward pass needs", quiet)
        return made.module, made.inputs

    exported = spec.endswith(".pt2")  # without the code that made it
    return {"check": check, "real": None if exported else real, "is_whole": is_known(spec)}


def _may_take_seconds(module: Any, inputs: Any) -> bool:
    """Whether a forward pass on a CPU may take over 2 s: the model or its input is large."""
    from costmodel.capture.inputs import Arguments

    parameters = sum(parameter.numel() for parameter in module.parameters())
    elements = sum(tensor.numel() for tensor in Arguments.of(inputs).tensors())
    return parameters > LARGE_MODEL or elements > LARGE_INPUT
