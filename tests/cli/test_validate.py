"""Options of `validate` on both sides of their bounds, its device and what it says beforehand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from costmodel.cli.validate import _check, _device_name, _duration
from costmodel.errors import RequestError


@pytest.mark.parametrize(("seconds", "max_error"), [(1e-9, None), (1e9, 0.0), (0.1, 1e9)])
def test_possible_options(seconds: float, max_error: float | None):
    _check(seconds, max_error, None, no_plan=True)
    _check(seconds, max_error, Path("plan.json"), no_plan=False)
    _check(seconds, max_error, None, no_plan=False)


@pytest.mark.parametrize(
    ("seconds", "max_error", "plan", "said"),
    [
        (0.0, None, None, "--seconds must be above 0, not 0.0"),
        (-1.0, None, None, "--seconds must be above 0, not -1.0"),
        (math.inf, None, None, "--seconds must be above 0, not inf"),
        (math.nan, None, None, "--seconds must be above 0, not nan"),
        (0.1, -0.1, None, "--max-error must be a percentage, not -0.1"),
        (0.1, math.inf, None, "--max-error must be a percentage, not inf"),
        (0.1, math.nan, None, "--max-error must be a percentage, not nan"),
        (0.1, None, Path("plan.json"), "--plan and --no-plan exclude each other; leave one out"),
    ],
)
def test_impossible_options_are_named(seconds: float, max_error: float | None, plan: Path | None, said: str):
    with pytest.raises(RequestError) as caught:
        _check(seconds, max_error, plan, no_plan=True)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("device", "on_cpu", "has_gpu", "expected"),
    [
        ("cuda:1", False, True, "cuda:1"),
        ("cpu", False, False, "cpu"),
        ("", True, False, "cpu"),
        ("", True, True, "cpu"),
        ("", False, True, ""),
    ],
)
def test_a_cpu_is_measured_where_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, device: str, on_cpu: bool, has_gpu: bool, expected: str
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert _device_name(device, on_cpu) == expected


def test_without_a_gpu_the_profile_of_one_needs_a_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RequestError, match=r"^torch sees no GPU here; give --device cpu"):
        _device_name("", on_cpu=False)


def test_what_is_measured_is_said_beforehand():
    """Seven rounds of eager execution and two modes for two seconds each."""
    text = _duration(("default", "reduce-overhead"), "cuda", 2.0)
    assert text.startswith(
        "measuring eager, default, reduce-overhead on cuda: compiling takes up to a minute, for each"
    )
    assert text.endswith(" mode; then 42 s of rounds")
    assert "some minutes, and ten for a large model" in _duration(("default",), "cpu", 0.5)
    assert _duration(("default",), "cpu", 0.5).endswith("then 7 s of rounds")
