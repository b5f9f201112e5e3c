"""Whole models as they were measured: which of several measurements of a case count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from costmodel.measured import Measured, read_measured, unstable

CASE = {"model": "alexnet", "batch_size": 1, "precision": "float32", "layout": "nchw"}
MODES = ("default", "reduce-overhead")


def record(environment: int, modes: tuple[str, ...] = MODES, us: float = 10.0, **fields: Any) -> dict[str, Any]:
    """A case whose eager call takes twice as long as each mode's."""
    latency = {name: [[0.0, 0.0, time, 0.0, 0.0]] * 2 for mode in modes for name, time in _times(mode, us)}
    quantiles = [0.0, 0.0, us, 0.0, 0.0]
    hosts = {f"{mode}_host_us": quantiles for mode in ("eager", *modes)}
    return {
        **CASE,
        "environment": environment,
        "latency_us": latency,
        "default_device_us": quantiles,
        **hosts,
        **fields,
    }


def _times(mode: str, us: float) -> list[tuple[str, float]]:
    return [(mode, us), (f"eager/{mode}", 2 * us)]


def read(tmp_path: Path, *records: dict[str, Any]) -> list[Measured]:
    """What is read of records; the second environment is with room on the stack."""
    header = {"schema": 1, "environments": [{"device": "a"}, {"device": "a", "python_stack": "with room"}]}
    path = tmp_path / "models.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (header, *records)))
    return read_measured(path)[0]


def test_a_mode_measured_with_room_on_the_stack_replaces_one_without(tmp_path: Path) -> None:
    first, second = read(tmp_path, record(0), record(1, ("default",), us=8.0))
    assert first.medians == {
        "default_device_us": 10.0,
        "reduce-overhead_host_us": 10.0,
        "graph_us": 10.0,
        "eager_us/reduce-overhead": 20.0,
    }
    assert second.medians["default_us"] == 8.0
    assert second.medians["eager_us"] == 16.0


def test_other_cases_and_machines_with_room_keep_theirs(tmp_path: Path) -> None:
    other, larger = record(0, batch_size=8), record(0, img_size=64)
    found = read(tmp_path, other, larger, record(1), record(1, us=9.0))
    assert [case.medians["default_us"] for case in found] == [10.0, 10.0, 10.0, 9.0]


def test_a_disturbed_measurement_replaces_none(tmp_path: Path) -> None:
    first, second = read(tmp_path, record(0), record(1, disturbed=["default"], us=8.0))
    assert first.medians["default_us"] == 10.0
    assert "graph_us" not in first.medians
    assert second.medians["graph_us"] == 8.0
    assert "default_us" not in second.medians


def rounds(*medians: float) -> list[list[float]]:
    """Quantiles of rounds with such medians."""
    return [[0.0, 0.0, median, 0.0, 0.0] for median in medians]


def timed(
    tmp_path: Path, default: list[float], beside: list[float], graph: list[float], other: list[float]
) -> Measured:
    """A case by the rounds of its modes, and those of the eager calls beside either."""
    names = {"default": default, "eager/default": beside, "reduce-overhead": graph, "eager/reduce-overhead": other}
    return read(tmp_path, record(0, latency_us={name: rounds(*us) for name, us in names.items()}))[0]


def test_a_round_slower_than_the_fastest_by_more_than_a_quarter_is_left_out(tmp_path: Path) -> None:
    case = timed(tmp_path, [10.0, 12.0], [20.0, 25.1], [4.0, 6.0, 5.0], [22.0, 24.0])
    assert case.medians["default_us"] == 11.0
    assert case.medians["eager_us/default"] == 20.0  # 25.1 is more than 1.25 times 20
    assert case.medians["graph_us"] == 4.5
    assert case.medians["eager_us/reduce-overhead"] == 23.0
    assert case.medians["eager_us"] == 21.5


def test_a_mode_of_which_one_round_is_left_is_left_out(tmp_path: Path) -> None:
    case = timed(tmp_path, [10.0, 13.0], [20.0, 20.0], [4.0, 4.0], [20.0, 20.0])
    assert "default_us" not in case.medians
    assert "eager_us/default" not in case.medians
    assert case.medians["graph_us"] == 4.0
    assert not unstable(case)


def test_a_mode_whose_eager_calls_were_all_disturbed_is_left_out(tmp_path: Path) -> None:
    case = timed(tmp_path, [10.0, 10.0], [26.0, 27.0], [4.0, 4.0], [20.0, 20.0])
    assert "default_us" not in case.medians
    assert case.medians["eager_us"] == 20.0


def test_a_case_of_which_no_mode_is_left_is_unstable(tmp_path: Path) -> None:
    case = timed(tmp_path, [10.0, 13.0], [20.0, 20.0], [4.0, 5.1], [20.0, 20.0])
    assert unstable(case)
    assert case.medians["default_device_us"] == 10.0


def test_what_a_collector_names_disturbed_is_left_out(tmp_path: Path) -> None:
    case = read(tmp_path, record(0, disturbed=["reduce-overhead", "eager host"]))[0]
    assert {"graph_us", "eager_host_us"}.isdisjoint(case.medians)
    assert {"default_us", "default_host_us", "reduce-overhead_host_us"} <= set(case.medians)


def test_a_case_that_was_not_timed_is_not_unstable(tmp_path: Path) -> None:
    assert not unstable(read(tmp_path, record(0, ()))[0])
