"""Disturbed rounds and calls on both sides of their bounds."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.calibration.measured_model import MeasuredModel
from costmodel.calibration.outliers import eager_alone_us, eager_us, is_steady, quiet_rounds, undisturbed, without_slow


def rounds(*medians: float) -> list[list[float]]:
    return [[median] * 5 for median in medians]


def case(medians: dict[str, float], speed: float = 1.0, **record: Any) -> MeasuredModel:
    return MeasuredModel("alexnet", 1, "float32", "nchw", medians, record, speed)


@pytest.mark.parametrize(("median", "steady"), [(10.0, True), (12.5, True), (12.6, False)])
def test_a_round_is_steady_up_to_a_quarter_above_its_tenth(median: float, steady: bool):
    assert is_steady([10.0, 10.0, median, 99.0, 99.0]) is steady


def test_eager_calls_beside_modes_are_one_latency():
    assert eager_us({"eager_us/default": 4.0, "eager_us/reduce-overhead": 8.0, "default_us": 1.0}) == {"eager_us": 6.0}
    assert eager_us({"eager_us/default": 4.0}) == {"eager_us": 4.0}
    assert eager_us({"eager_us": 4.0, "default_us": 1.0}) == {}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"eager": rounds(10.0, 12.5, 12.6)}, {"eager_us": 11.25}),
        ({"eager": rounds(10.0, 12.6)}, {}),  # a single round near the fastest
        ({"eager": rounds(10.0)}, {}),
        ({}, {}),
        ({"eager": rounds(10.0, 10.0), "default": rounds(5.0, 5.0)}, {}),
    ],
)
def test_eager_calls_alone_need_two_rounds_that_agree(found: dict[str, list[list[float]]], expected: dict[str, float]):
    assert eager_alone_us(found) == expected


def test_a_mode_needs_two_rounds_and_its_eager_calls_one():
    latency = {
        "default": rounds(4.0, 5.0),
        "eager/default": rounds(10.0, 20.0),
        "eager/reduce-overhead": rounds(11.0, 11.0),
    }
    latency["reduce-overhead"] = rounds(2.0, 2.6)
    assert undisturbed(latency, ()) == {"default": (4.5, 10.0)}
    assert undisturbed(latency, ("default",)) == {}
    assert undisturbed(latency | {"eager/default": rounds(20.0, 20.0)}, ()) == {}
    assert undisturbed({}, ()) == {}


def test_quiet_rounds_are_those_between_quiet_probes():
    """Probes up to 5.5 are quiet: rounds 0, 3, 4 and 5; of their pairs of probes the means are 5.25, 5.2, 5.2, 5."""
    probes = [5.0, 5.5, 9.0, 5.4, 5.0, 5.4, 4.6 + 0.4]
    record = {"probes_us": probes, "latency_us": {"eager": rounds(*range(6))}, "eager_host_us": [1.0] * 5, "model": "m"}
    found = quiet_rounds(record)
    assert found["latency_us"] == {"eager": rounds(0, 3, 4, 5)}
    assert found["probe_us"] == pytest.approx(5.2)
    assert "eager_host_us" not in found
    assert found["model"] == "m"


def test_three_rounds_count_at_least():
    record = {"probes_us": [9.5, 9.0, 8.0, 7.0, 6.0], "latency_us": {"eager": rounds(0, 1, 2, 3)}}
    assert quiet_rounds(record)["latency_us"] == {"eager": rounds(1, 2, 3)}


def test_slow_calls_are_dropped_with_what_stands_beside_them():
    whole = {"default_us": 10.0, "eager_us/default": 20.0, "graph_us": 5.0, "eager_us/reduce-overhead": 24.0}
    fast = whole | {"eager_us": 22.0}
    slow = fast | {"graph_us": 6.3}  # a quarter more would be 6.25
    first, second = without_slow([case(fast), case(slow)])
    assert first.medians == fast
    assert second.medians == {"default_us": 10.0, "eager_us/default": 20.0, "eager_us": 20.0}
    assert without_slow([case(fast), case(fast | {"graph_us": 6.25})])[1].medians["graph_us"] == 6.25


def test_a_host_bound_call_is_compared_at_equal_speed_and_a_replay_never():
    fast = {"default_us": 10.0, "eager_us/default": 20.0, "default_host_us": 9.0, "eager_host_us": 19.0}
    slow = {name: us * 1.5 for name, us in fast.items()}
    assert without_slow([case(fast), case(slow, speed=1 / 1.5)])[1].medians["default_us"] == 15.0
    assert "default_us" not in without_slow([case(fast), case(slow)])[1].medians
    light = {
        "default_us": 10.0,
        "eager_us/default": 20.0,
        "default_host_us": 8.0,
        "eager_host_us": 1.0,
    }  # of 10 no more
    taken = without_slow([case(light), case(light | {"default_us": 15.0}, speed=1 / 1.5)])
    assert "default_us" not in taken[1].medians
