"""Frontends of a prediction: which of them convert the module, and which check for graph breaks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture import frontends, with_partition
from costmodel.prediction.named_models import WAYS
from costmodel.prediction.predict import _captured

MODULE, CONVERTED, X = nn.ReLU(), nn.GELU(), (torch.empty(4),)


@pytest.mark.parametrize(
    ("frontend", "check", "converted", "checked"),
    [
        ("run", True, False, True),
        ("run", False, False, False),
        ("dynamo", False, False, True),  # it is a check
        ("fx", True, True, True),
        ("fx", False, True, False),
        ("export", False, True, False),
    ],
)
def test_a_module_is_converted_by_fx_and_by_export_only(
    monkeypatch: pytest.MonkeyPatch, frontend: str, check: bool, converted: bool, checked: bool
):
    def convert(module: nn.Module, inputs: object, way: str) -> nn.Module:
        assert (module, inputs, way) == (MODULE, X, frontend)
        return CONVERTED

    seen = []

    def capture(module: nn.Module, inputs: object, name: str, check: bool, compiled: nn.Module, amp: str) -> None:
        assert (compiled, amp) == (MODULE, "float16")  # the module whose graph breaks are found
        seen.append((module, inputs, name, check))

    monkeypatch.setattr(frontends, "convert", convert)
    monkeypatch.setattr(with_partition, "capture_with_partition", capture)
    _captured(MODULE, X, "net", frontend, check, "float16")
    assert seen == [(CONVERTED if converted else MODULE, X, "net", checked)]
    assert frontend in WAYS
