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


def test_an_unstable_measurement_replaces_none(tmp_path: Path) -> None:
    found = read(tmp_path, record(0), record(1, disturbed=["default"]))
    assert [case.medians["default_us"] for case in found] == [10.0, 10.0]
    assert [unstable(case) for case in found] == [False, True]


def test_rounds_that_differ_by_more_than_a_quarter_are_unstable() -> None:
    def case(*medians: float) -> Measured:
        rounds = [[0.0, 0.0, median, 0.0, 0.0] for median in medians]
        return Measured("alexnet", 1, "float32", "nchw", {}, {"latency_us": {"eager/default": rounds}})

    assert not unstable(case(8.0, 10.0))
    assert unstable(case(8.0, 10.1))
