"""How a model is checked for graph breaks, and whether running it is announced."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.cli.checking import LARGE_INPUT, LARGE_MODEL, _may_take_seconds, checking
from costmodel.zoo.one_graph import is_known


def holding(parameters: int) -> nn.Module:
    module = nn.Module()
    module.register_parameter("weight", nn.Parameter(torch.empty(parameters, device="meta")))
    return module


@pytest.mark.parametrize(
    ("parameters", "elements", "expected"),
    [
        (LARGE_MODEL, LARGE_INPUT, False),
        (LARGE_MODEL + 1, 1, True),
        (1, LARGE_INPUT + 1, True),
        (20_000_000, 1_000_000, False),
    ],
)
def test_a_pass_may_take_seconds_for_a_large_model_or_input(parameters: int, elements: int, expected: bool):
    assert _may_take_seconds(holding(parameters), (torch.empty(elements, device="meta"),)) is expected
    assert _may_take_seconds(holding(parameters), {"x": [torch.empty(elements, device="meta")]}) is expected


def test_an_exported_program_has_no_code_to_run():
    found = checking("net.pt2", {}, check=True, quiet=True)
    assert (found["check"], found["real"], found["is_whole"]) == (True, None, False)
    found = checking("alexnet", {}, check=False, quiet=True)
    assert (found["check"], callable(found["real"]), found["is_whole"]) == (False, True, is_known("alexnet"))
