"""Measurements: derived figures by hand, complaints about noise, and timing on the CPU."""

from __future__ import annotations

import random
import time

import pytest
import torch

from costmodel.errors import MeasurementError
from costmodel.execution.out_of_memory import shortage_behind
from costmodel.measurement.timers import (
    LAUNCH_US,
    Measurement,
    _launch_us,
    device_time,
    host_time,
    issue_time,
    latency,
)


def test_quantiles_are_nearest_ranks():
    measured = Measurement((50.0, 10.0, 40.0, 20.0, 30.0))
    assert measured.quantile(0.0) == 10.0
    assert measured.quantile(0.25) == 20.0  # int(0.25 * 5) = 1
    assert measured.quantile(0.99) == 50.0
    assert measured.median_us == 30.0
    assert measured.quantiles_us() == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_the_median_of_an_even_number_lies_between_the_middle_two():
    assert Measurement((4.0, 1.0, 2.0, 3.0)).median_us == 2.5


@pytest.mark.parametrize(
    ("samples", "spread"),
    [((100.0, 100.0, 100.0, 100.0, 100.0), 0.0), ((90.0, 99.0, 100.0, 103.0, 110.0), 0.04), ((0.0, 0.0), 0.0)],
)
def test_a_quiet_measurement_has_no_complaint(samples: tuple[float, ...], spread: float):
    measured = Measurement(samples)
    assert measured.spread == pytest.approx(spread)
    assert measured.complaint == ""
    assert not measured.noisy


def test_a_noisy_measurement_says_which_condition_failed():
    measured = Measurement((80.0, 90.0, 100.0, 115.0, 130.0))
    assert measured.noisy
    assert measured.complaint == "noisy: the interquartile range is 25.0% of the median, more than 5%"


def test_a_measurement_without_samples_is_refused():
    with pytest.raises(MeasurementError, match="at least one sample"):
        Measurement(())


def test_a_call_that_sleeps_takes_as_long_as_it_sleeps():
    def call() -> None:
        time.sleep(0.002)

    for measured in (
        latency(call, 0.01, least=4, device="cpu"),
        host_time(call, repeats=4, device="cpu"),
        device_time(call, rounds=4, copies=2, device="cpu"),
    ):
        assert 2000.0 <= measured.median_us < 50_000.0
        assert len(measured.samples_us) >= 4


def test_a_call_among_others_is_told_for_a_host_of_a_launch(monkeypatch: pytest.MonkeyPatch):
    waits: list[str] = []
    monkeypatch.setattr(
        "costmodel.measurement.timers._launch_us", lambda probe, synchronize: 2 * LAUNCH_US
    )  # half as fast
    monkeypatch.setattr("costmodel.measurement.timers._synchronizer", lambda device: lambda: waits.append("wait"))
    calls: list[int] = []

    def call() -> None:
        calls.append(len(waits))
        time.sleep(0.002)

    measured = issue_time(call, "cpu", rounds=2, calls=5)
    assert len(measured.samples_us) == 10  # of 3 to warm up and 2 x (1 + 5), those that follow another
    assert calls == [0] * 3 + [1] * 6 + [2] * 6
    assert 1000.0 <= measured.median_us < 25_000.0


def test_a_launch_takes_some_time():
    assert 0.0 < _launch_us(torch.zeros(1), lambda: None) < 1000.0


def test_a_call_of_random_length_is_noisy():
    rng = random.Random(0)
    assert device_time(lambda: time.sleep(rng.choice((0.0, 0.003))), rounds=15, device="cpu").noisy


def end_a_failed_capture() -> None:
    try:
        raise torch.OutOfMemoryError("CUDA out of memory")
    finally:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_a_shortage_of_memory_is_found_below_the_error_that_hid_it():
    with pytest.raises(RuntimeError, match="previous error") as caught:
        end_a_failed_capture()
    assert isinstance(shortage_behind(caught.value), torch.OutOfMemoryError)
    assert shortage_behind(RuntimeError("another")) is None
