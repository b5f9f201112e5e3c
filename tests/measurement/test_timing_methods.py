"""Timing methods on layers that take a known time, by a clock that only they advance."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType

from costmodel.errors import MeasurementError
from costmodel.measurement import timers, timing_methods
from costmodel.measurement.layer_sequence import Layers
from costmodel.measurement.timing_methods import (
    EndToEnd,
    LayerSubtraction,
    LayerTimers,
    ProfilerSum,
    Subject,
    default_methods,
    differences,
    operator_sum,
)

CLOCK = SimpleNamespace(ns=0)
"""Clock that only layers advance."""


class Takes(nn.Module):
    """Layer that takes so many microseconds of the fake clock."""

    def __init__(self, us: int) -> None:
        super().__init__()
        self.us = us

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CLOCK.ns += 1000 * self.us
        return x


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch) -> Subject:
    fake = SimpleNamespace(perf_counter_ns=lambda: CLOCK.ns, perf_counter=time.perf_counter)
    monkeypatch.setattr(timing_methods, "time", fake)
    monkeypatch.setattr(timers, "time", fake)
    return Subject(Layers(nn.Sequential(Takes(5), Takes(7), Takes(30)), "block"), (torch.zeros(1),))


def test_end_to_end_is_the_whole_pass(subject: Subject):
    assert EndToEnd(0.0, 3).measure(subject).total.samples_us == (42.0, 42.0, 42.0)


@pytest.mark.parametrize("synchronized", [False, True])
def test_timers_give_each_layer_and_their_sum(subject: Subject, synchronized: bool):
    found = LayerTimers(2, synchronized).measure(subject)
    assert {name: layer.samples_us for name, layer in found.layers.items()} == {"0": (5, 5), "1": (7, 7), "2": (30, 30)}
    assert found.total.samples_us == (42.0, 42.0)


def test_subtraction_gives_the_same_layers(subject: Subject):
    found = LayerSubtraction(2, 0.0).measure(subject)
    assert {name: layer.median_us for name, layer in found.layers.items()} == {"0": 5, "1": 7, "2": 30}
    assert found.total.median_us == 42.0


def test_differences_may_be_negative():
    found = differences(("a", "b", "c"), [[10.0, 14.0, 13.0], [12.0, 15.0, 20.0]])
    assert {name: layer.samples_us for name, layer in found.items()} == {"a": (10, 12), "b": (4, 3), "c": (-1, 5)}


def test_the_profiler_sums_host_times():
    subject = Subject(Layers(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "block"), (torch.zeros(1, 4),))
    found = ProfilerSum("host self", 2).measure(subject)
    assert len(found.total.samples_us) == 2
    assert found.total.median_us > 0
    assert not found.layers


def test_kernels_are_not_counted_beside_their_operators():
    kinds = (DeviceType.CPU, DeviceType.CUDA, DeviceType.CPU)
    events = [SimpleNamespace(device_type=kind, us=us) for kind, us in zip(kinds, (3.0, 3.0, 4.0), strict=True)]
    assert operator_sum(events, "us") == 7.0


def test_device_times_of_a_cpu_are_refused(subject: Subject):
    with pytest.raises(MeasurementError, match="no device self times on cpu"):
        ProfilerSum("device self").measure(subject)


def test_an_unknown_quantity_is_refused(subject: Subject):
    with pytest.raises(MeasurementError, match="choose device total, device self, host self"):
        ProfilerSum("total").measure(subject)


def test_methods_have_different_names():
    names = [method.name for method in default_methods()]
    assert len(set(names)) == len(names) == 6
