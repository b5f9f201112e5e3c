"""Errors of a user's code name its file and line, wherever it runs: as it is loaded, built or captured."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.cli import main

FILE = """import logging
import torch
from torch import nn
{loading}
def helper(x):
    {helping}
    return x
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        {initialising}
        self.conv = nn.Conv2d(3, 4, 1)
    def forward(self, x):
        {inside}
        return self.conv(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Identity(), Inner())
    def forward(self, x):
        {around}
        return helper(self.inner(x))
def build():
    {building}
    return Net().eval()
"""
PLACES = ("loading", "helping", "initialising", "inside", "around", "building")
IN_FORWARD = ("helping", "inside", "around")
FAULTS = {
    "raised": "raise ValueError('mine')",
    "of torch": "torch.zeros(2, 3).view(5)",
    "of a layer": "nn.Conv2d(3, 4, 1)(torch.zeros(1, 2, 3, 3))",
    "of a library": "logging.getLogger('m').setLevel('loudest')",
    "exit": "raise SystemExit(3)",
    "autocast": "torch.autocast('cpu').__enter__()",
    "values": "torch.linalg.eig(torch.zeros(2, 2)).missing",
}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), fault=st.sampled_from(sorted(FAULTS)), padding=st.integers(0, 30))
def test_the_line_is_the_users(
    place: str, fault: str, padding: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if fault == "autocast" and place not in IN_FORWARD:  # torch itself enters autocast, and no model is at fault
        return
    text = "#\n" * padding + FILE.format_map(dict.fromkeys(PLACES, "pass") | {place: f"{FAULTS[fault]}  # here"})
    (tmp_path / "net.py").write_text(text)
    line = next(number for number, found in enumerate(text.splitlines(), 1) if found.endswith("# here"))
    assert main(["predict", f"{tmp_path}/net.py:build", "-q"]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"net.py:{line})\n")
    assert error.count("\n") == 1


def test_a_model_of_a_library_names_the_librarys_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "inception_v3", "--img-size", "20", "-q"]) == 2
    assert "(torchvision/models/inception.py:" in capsys.readouterr().err
