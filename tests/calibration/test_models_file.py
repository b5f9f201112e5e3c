"""Whole models as they were measured: which of several measurements of a case count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costmodel.calibration.measured_model import MeasuredModel
from costmodel.calibration.models_file import read_measured
from costmodel.calibration.outliers import unstable

CASE = {"model": "alexnet", "batch_size": 1, "precision": "float32", "layout": "nchw"}
MODES = ("default", "reduce-overhead")


def record(environment: int, modes: tuple[str, ...] = MODES, us: float = 10.0, **fields: Any) -> dict[str, Any]:
    """A case whose eager call takes twice as long as each mode's."""
    latency = {name: [[time] * 5] * 2 for mode in modes for name, time in _times(mode, us)}
    quantiles = [us] * 5
    hosts = {f"{mode}_host_us": quantiles for mode in modes} | {"eager_host_us": [2 * us] * 5}
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


def read(tmp_path: Path, *records: dict[str, Any]) -> list[MeasuredModel]:
    """Write records of two environments, each a machine, to a file, and read them."""
    header = {"schema": 1, "environments": [{"device": "a"}, {"device": "b"}]}
    path = tmp_path / "models.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (header, *records)))
    return read_measured(path)[0]


def test_a_mode_that_took_much_longer_than_on_another_machine_is_left_out(tmp_path: Path) -> None:
    first, second = read(tmp_path, record(0, us=12.6), record(1, us=10.0))
    assert first.medians == {"default_device_us": 12.6}
    assert second.medians["default_us"] == 10.0
    assert second.medians["eager_us"] == 20.0
    assert not unstable(first)  # its rounds agreed


def test_a_quarter_longer_stays(tmp_path: Path) -> None:
    first, second = read(tmp_path, record(0, us=12.5), record(1, us=10.0))
    assert first.medians["default_us"] == 12.5
    assert second.medians["default_us"] == 10.0


def test_other_cases_are_not_compared(tmp_path: Path) -> None:
    other, larger = record(0, batch_size=8, us=20.0), record(0, img_size=64, us=20.0)
    found = read(tmp_path, other, larger, record(1))
    assert [case.medians["default_us"] for case in found] == [20.0, 20.0, 10.0]


def test_what_the_host_decides_is_compared_at_equal_speed(tmp_path: Path) -> None:
    slow, fast = record(0, us=15.0, probe_us=9.0), record(1, us=10.0, probe_us=6.0)
    first, second = read(tmp_path, slow, fast)
    assert first.host_speed * 9.0 == pytest.approx(second.host_speed * 6.0)
    assert first.medians["default_us"] == 15.0
    assert first.medians["default_host_us"] == 15.0
    assert "graph_us" not in first.medians  # a device does not take longer where the host is slow


def test_what_the_device_decides_is_compared_as_it_is(tmp_path: Path) -> None:
    hosts = {name: [1.0] * 5 for name in ("eager_host_us", "default_host_us", "reduce-overhead_host_us")}
    first, second = (record(0, us=10.0, probe_us=6.0), record(1, us=10.0, probe_us=9.0))
    found = read(tmp_path, first | hosts, second | hosts)
    assert [case.medians["default_us"] for case in found] == [10.0, 10.0]
    assert "default_host_us" not in found[0].medians  # at equal speed it took half as long again


def test_the_probes_around_a_case_tell_the_speed_of_its_host(tmp_path: Path) -> None:
    probes = [6.0, 6.0, 9.0, 6.0, 6.0, 12.0]
    cases = [record(0, batch_size=size, probe_us=us) for size, us in enumerate(probes, 1)]
    other = record(1, batch_size=9, probe_us=12.0)
    found = read(tmp_path, *cases[:3], other, *cases[3:])
    # medians of 6 6 9, 6 6 9 6, 6 6 9 6 6, 6 9 6 6 12, 9 6 6 12, 6 6 12; the other machine's are its own
    usual = 6.0  # of the machines' 6 and 12, that of the least disturbed
    expected = [usual / us for us in (6.0, 6.0, 6.0, 12.0, 6.0, 7.5, 6.0)]
    assert [case.host_speed for case in found] == pytest.approx(expected)


def test_a_session_is_of_one_machine(tmp_path: Path) -> None:
    noted = [record(0, batch_size=1) | {"session": "a"}, record(0, batch_size=2) | {"session": "a"}]
    noted += [record(0, batch_size=3) | {"session": "b"}, record(1, batch_size=4) | {"session": "a"}]
    plain = [record(1, batch_size=5), record(1, batch_size=6)]
    sessions = [case.session for case in read(tmp_path, *noted, *plain)]
    assert sessions[0] == sessions[1]
    assert sessions[4] == sessions[5]
    assert len(set(sessions)) == 4


def test_a_machine_that_was_not_probed_is_as_fast_as_usual(tmp_path: Path) -> None:
    found = read(tmp_path, record(0), record(1, batch_size=8, probe_us=6.0))
    assert [case.host_speed for case in found] == [1.0, 1.0]


def rounds(*medians: float) -> list[list[float]]:
    """Quantiles of rounds with such medians."""
    return [[median] * 5 for median in medians]


def timed(
    tmp_path: Path, default: list[float], beside: list[float], graph: list[float], other: list[float]
) -> MeasuredModel:
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


def test_a_round_half_of_whose_calls_were_disturbed_is_left_out(tmp_path: Path) -> None:
    steady, uneven = [8.0, 9.0, 10.0, 11.0, 12.0], [7.9, 8.0, 10.0, 10.0, 10.0]  # 10 is 1.25 times 8
    latency = {mode: [steady] * 2 for mode in ("default", "eager/default", "eager/reduce-overhead")}
    latency["reduce-overhead"] = [steady, uneven]
    case = read(tmp_path, record(0, latency_us=latency, default_host_us=uneven))[0]
    assert case.medians["default_us"] == 10.0
    assert "graph_us" not in case.medians
    assert "default_host_us" not in case.medians
    assert case.medians["eager_us"] == 10.0


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


def test_slow_calls_stay_where_they_are_asked_for(tmp_path: Path) -> None:
    read(tmp_path, record(0, us=20.0), record(1))
    first, _ = read_measured(tmp_path / "models.jsonl", slow=True)[0]
    assert first.medians["default_us"] == 20.0


def in_rounds(probes_us: list[float], eager_us: list[float], **fields: Any) -> dict[str, Any]:
    """Record of a process that measured eager calls alone, in rounds between probes of its host."""
    rounds = {"eager": [[us] * 5 for us in eager_us]}
    return {**CASE, "environment": 0, "latency_us": rounds, "probes_us": probes_us, "probe_us": 99.0, **fields}


def test_rounds_count_beside_which_the_host_was_quiet(tmp_path: Path) -> None:
    # near 5: the first two probes, and the last three; so the first, the fourth and the fifth round
    probes = [5.0, 5.4, 9.0, 5.2, 5.0, 5.0]
    (case,) = read(tmp_path, in_rounds(probes, [20.0, 40.0, 39.0, 22.0, 21.0], eager_host_us=[50.0] * 5))
    assert case.medians == {"eager_us": 21.0}
    assert case.probe_us == pytest.approx(5.1)  # of 5.2, 5.1 and 5.0, the means beside them
    assert not unstable(case)


def test_three_rounds_count_at_least_for_the_host_that_they_found(tmp_path: Path) -> None:
    (case,) = read(tmp_path, in_rounds([5.0, 6.0, 7.0, 8.0, 9.0], [20.0, 21.0, 22.0, 30.0]))
    assert case.medians == {"eager_us": 21.0}
    assert case.probe_us == 6.5


def test_a_process_knows_its_host_better_than_its_neighbours_do(tmp_path: Path) -> None:
    slow, quick = (in_rounds([us] * 5, [20.0] * 4, process=number) for number, us in enumerate((6.0, 5.0), 1))
    neighbour = record(0, probe_us=5.0)
    found = read(tmp_path, neighbour, slow, quick, neighbour)
    assert [case.host_speed for case in found] == pytest.approx([1.0, 5 / 6, 1.0, 1.0])  # 5 is usual


def test_a_process_that_never_found_its_host_quiet_is_left_out(tmp_path: Path) -> None:
    probes = [5.0] * 4 + [6.2, 6.4]  # a quarter above the quietest tenth is 6.25
    rows = [in_rounds([us] * 5, [4.0 * us] * 4, session="a") for us in probes]
    other = in_rounds([9.0] * 5, [20.0] * 4, session="b")  # the fastest probes of its session
    found = read(tmp_path, *rows, other)
    assert [case.probe_us for case in found] == [*probes[:-1], 9.0]
    kept, _ = read_measured(tmp_path / "models.jsonl", slow=True)
    assert len(kept) == 7


def test_a_host_whose_process_did_not_probe_it_is_not_judged(tmp_path: Path) -> None:
    quick = in_rounds([5.0] * 5, [20.0] * 4, session="a")
    found = read(tmp_path, quick, record(0, probe_us=9.0, session="a"))
    assert len(found) == 2


def test_a_process_that_was_slow_although_its_host_was_not_is_left_out(tmp_path: Path) -> None:
    first, second = read(tmp_path, in_rounds([5.0] * 5, [26.0] * 4), in_rounds([5.0] * 5, [20.0] * 4))
    assert first.medians == {}
    assert second.medians == {"eager_us": 20.0}


def test_eager_rounds_that_disagree_tell_nothing(tmp_path: Path) -> None:
    (case,) = read(tmp_path, in_rounds([5.0] * 4, [20.0, 30.0, 31.0]))
    assert case.medians == {}
    assert unstable(case)
