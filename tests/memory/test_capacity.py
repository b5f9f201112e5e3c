"""Requests that exceed the device's memory: a warning in the first line of every output."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.trace import capture
from costmodel.errors import ProfileError
from costmodel.memory.capacity import eager_bytes, shortage
from costmodel.memory.report import render_memory
from costmodel.planning.plan_report import render_plan
from costmodel.profiles.profile import Profile, load_profile
from tests.support.sample_reports import plan

H200 = "nvidia-h200"
LARGE = torch.empty(100_000, 3, 224, 224, device="meta")
"""56.08 GiB in float32: 100,000 x 3 x 224 x 224 elements of 4 bytes."""
NEED = "does not fit in memory: needs about "
HAS = " GiB, the device has 140.4 GiB"


def model() -> nn.Module:
    """A convolution of 3 to 4 channels and a ReLU: 56.08 GiB of input, 74.77 GiB for each of two results."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).eval()


def test_the_least_that_a_pass_needs_is_counted_by_hand() -> None:
    """Two results of 4 x 8 x 8 are alive at once in eager, beside input and weights; blocks are of 512 bytes."""
    graph = capture(model(), (torch.empty(2, 3, 8, 8),))
    assert eager_bytes(graph) == 2 * 3 * 64 * 4 + 512 + 512 + 2 * (2 * 4 * 64 * 4)


def test_a_batch_that_no_device_holds_is_said_first() -> None:
    report = costmodel.predict(model(), (LARGE,), hardware=H200)
    # 56.08 + 74.77 + 74.77
    words = f"{NEED}205.6{HAS}"
    assert report.too_large == report.warnings[0] == words
    assert report.verdict == "uncertain"
    assert json.loads(costmodel.render(report, "json"))["warnings"][0] == words
    assert words in costmodel.render(report).splitlines()[0]
    assert words in costmodel.render(report, "md").splitlines()[0]
    page = costmodel.render(report, "html")
    assert page.index("Too large for nvidia-h200.") < page.index(words) < page.index("<h2>")


def test_a_plan_and_a_memory_report_say_so_first(tmp_path: Path) -> None:
    made = costmodel.plan(model(), (LARGE,), hardware=H200)
    assert made.warnings[0].startswith(NEED)
    assert made.warnings[0] in render_plan(made).splitlines()[0]
    assert json.loads(render_plan(made, "json"))["warnings"] == list(made.warnings)
    made.save(tmp_path / "plan.json")
    assert costmodel.Plan.load(tmp_path / "plan.json") == made
    report = costmodel.analyze_memory(model(), (LARGE,), hardware=H200)
    assert [line.partition(" does")[0] for line in report.warnings] == ["inference", "training"]
    assert all(line in render_memory(report).splitlines()[0] for line in report.warnings)
    assert report.to_dict()["warnings"] == report.warnings


def cells(text: str, column: str = "too_large") -> list[str]:
    """A column of CSV."""
    return [row[column] for row in csv.DictReader(io.StringIO(text))]


def test_every_row_of_csv_says_so_in_a_column_of_its_own() -> None:
    report = costmodel.predict(model(), (LARGE,), hardware=H200)
    assert cells(costmodel.render(report, "csv")) == [report.too_large] * len(report.modes)
    assert cells(costmodel.render(report, "csv", layers="all")) == [report.too_large] * len(report.layers)
    memory = costmodel.analyze_memory(model(), (LARGE,), hardware=H200)
    assert cells(render_memory(memory, "csv")) == list(memory.warnings)
    assert cells(render_memory(memory, "csv"), "pass") == ["inference", "training"]


def test_csv_of_a_plan_says_so_too() -> None:
    made = replace(plan(), warnings=("too much", "far too much"))
    assert cells(render_plan(made, "csv")) == ["too much; far too much"] * len(made.regions)
    assert cells(render_plan(plan(), "csv")) == [""] * len(made.regions)


def test_what_fits_is_not_remarked_on() -> None:
    small = torch.empty(1, 3, 8, 8)
    report = costmodel.predict(model(), (small,), hardware=H200)
    assert report.too_large == ""
    assert not any("memory" in line for line in report.warnings)
    assert costmodel.plan(model(), (small,), hardware=H200).warnings == ()
    assert costmodel.analyze_memory(model(), (small,), hardware=H200).warnings == ()


def test_nothing_is_guessed_where_the_profile_does_not_know() -> None:
    cpu = load_profile("intel-xeon-16-threads")
    assert cpu.device.memory_bytes is None
    assert shortage(10**15, None) == shortage(None, 1) == shortage(5, 5) == ""
    assert costmodel.predict(model(), (LARGE,), hardware=cpu.name).too_large == ""


def test_recorded_memory_takes_precedence_over_the_devices_name() -> None:
    def recorded(memory: object) -> Profile:
        profile = load_profile(H200)
        return replace(profile, card={**profile.card, "environment": {"device": "NVIDIA H200", "memory_bytes": memory}})

    assert load_profile(H200).device.memory_bytes == 143_771 * 1024 * 1024
    assert recorded("1000").device.memory_bytes == 1000
    for odd in ("-1", "1e9", "9" * 30, "", "0"):
        with pytest.raises(ProfileError, match="impossible memory_bytes"):
            _ = recorded(odd).device
    for odd in (1000, 1.5, [], {}):
        with pytest.raises(ProfileError, match="environment"):
            _ = recorded(odd).device
