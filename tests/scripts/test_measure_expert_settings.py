"""Plans beside an expert's settings: the summary by hand, flags put back, failures kept as rows, files resumed."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from pathlib import Path

import expert_settings
import measure_expert_settings as script
import pytest
import torch
from expert_settings import OURS, SETTINGS, ExpertCase, caller_of, in_force, in_order, within
from torch import nn
from torch._dynamo.testing import CompileCounter

CASE = ExpertCase("resnet18", 1, "float32", "cpu", None, ("eager", "default", "plan"))


def test_the_summary_compares_with_the_best_setting_of_each_case():
    """4 / 2 = 2.0 and 1 / 2 = 0.5, whose geometric mean is 1.0; the backend 4 / 1 = 4.0."""
    times = {
        "a": {"eager": 8.0, "default": 4.0, "plan": 2.0, "backend": 1.0},
        "b": {"eager": 1.0, "default": 3.0, "plan": 2.0},
        "c": {"plan": 2.0},
    }
    lines = script.summary(times)
    assert lines[0].split() == [
        "a",
        "default",
        "4.000",
        "ms;",
        "plan",
        "2.000",
        "ms",
        "(2.00x),",
        "backend",
        "1.000",
        "ms",
        "(4.00x)",
    ]
    assert lines[1].split() == ["b", "eager", "1.000", "ms;", "plan", "2.000", "ms", "(0.50x)"]
    assert lines[2] == "plan: 1.00x the best setting (geometric mean of 2), from 0.50x"
    assert lines[3] == "backend: 4.00x the best setting (geometric mean of 1), from 4.00x"


@pytest.mark.parametrize("name", SETTINGS)
def test_flags_are_those_of_the_setting_and_are_put_back(name: str):
    before = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    tuned = SETTINGS[name].tuned
    with in_force(SETTINGS[name]):
        assert torch.backends.cudnn.benchmark == tuned
        assert torch.get_float32_matmul_precision() == ("high" if tuned else "highest")
    assert (torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()) == before


def test_plans_get_the_flags_that_an_expert_gets():
    assert all(SETTINGS[name].tuned and name.startswith(SETTINGS[name].ours) for name in OURS)


def test_a_setting_does_not_compile_again_what_another_one_compiled():
    net, x, counts = nn.Linear(2, 2), torch.ones(1, 2), [CompileCounter() for _ in range(12)]  # Dynamo's limit is 8
    torch._dynamo.reset()
    calls = [torch.compile(caller_of(net), backend=count) for count in counts]
    for _ in range(3):
        for call in calls:
            assert torch.equal(call(x), net(x))
    assert [count.frame_count for count in counts] == [1] * 12


def test_freezing_makes_parameters_constants_of_the_graph():
    """Of three inputs, a weight, a bias and an image, the image is left."""
    inputs = []

    def backend(graph, given):
        inputs.append(len(given))
        return graph

    net, x = nn.Linear(2, 2), torch.ones(1, 2)
    torch._dynamo.reset()
    for name in ("reduce-overhead, tuned", "freezing, tuned"):
        with torch.no_grad(), in_force(SETTINGS[name]):
            torch.compile(caller_of(net), backend=backend)(x)
    assert inputs == [3, 1]
    assert not torch._inductor.config.freezing


def test_shuffled_cases_are_the_same_ones_in_an_order_of_the_seed(monkeypatch: pytest.MonkeyPatch):
    def cases(*more: str) -> list[ExpertCase]:
        monkeypatch.setattr("sys.argv", ["x", *"abcdef", *more])
        return script.cases_of(script.arguments())

    plain, shuffled = cases(), cases("--shuffle", "7")
    assert shuffled != plain
    assert shuffled == cases("--shuffle", "7") != cases("--shuffle", "8")
    assert sorted(case.file_name for case in shuffled) == sorted(case.file_name for case in plain)


class Held:
    """Stands for a process that is ready, or that has ended before."""

    def __init__(self, found: dict, ready: bool = True) -> None:
        self.found, self.ready, self.record, self.begun = found, ready, None if ready else found, False

    def settled(self, end: float) -> bool:
        return True

    def start_turn(self) -> None:
        self.begun = True

    def finish_turn(self, seconds: float) -> dict:
        assert self.begun
        return self.found

    def stop(self) -> None:
        self.begun = False


ARGS = argparse.Namespace(processes=2, limit=300.0, seconds=0.1)


def test_a_setting_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch):
    found = {"eager": {"median_ms": 2.0}, "default": {"note": "late"}, "plan": {"note": "PlanError: no"}}
    monkeypatch.setattr(script, "hold", lambda case, args, log: Held(found))
    assert list(script.measure_block([CASE], ARGS)) == [
        [
            {"setting": "eager", "median_ms": 2.0},
            {"setting": "default", "note": "late"},
            {"setting": "plan", "note": "PlanError: no"},
        ]
    ]


def test_of_a_block_all_are_built_before_one_is_measured(monkeypatch: pytest.MonkeyPatch):
    held = []

    def hold(case, args, log):
        assert not any(process.begun for process in held)
        held.append(Held({name: {"median_ms": float(len(held))} for name in case.settings}))
        return held[-1]

    monkeypatch.setattr(script, "hold", hold)
    blocks = list(script.measure_block([CASE, CASE], ARGS))
    assert [rows[0]["median_ms"] for rows in blocks] == [0.0, 1.0]


def test_settings_that_search_have_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch):
    """Eager execution is measured in both; the row is of the first, as are all rows if the second crashes."""
    held = []

    def hold(case, args, log):
        held.append(case.settings)
        if len(held) == 2:
            return Held({"status": "killed by SIGSEGV", "error": "killed"}, ready=False)
        return Held({name: {"median_ms": float(len(held))} for name in case.settings})

    monkeypatch.setattr(script, "hold", hold)
    case = ExpertCase("x", 1, "float32", "cpu", None, ("eager", "autotuned matmuls, tuned", "plan"))
    assert list(script.measure_block([case], ARGS)) == [
        [
            {"setting": "eager", "median_ms": 1.0},
            {"setting": "autotuned matmuls, tuned", "note": "killed"},
            {"setting": "plan", "median_ms": 1.0},
        ]
    ]
    assert held == [("eager", "plan"), ("eager", "autotuned matmuls, tuned")]


def test_a_case_whose_process_ends_has_its_reason_in_every_row(monkeypatch: pytest.MonkeyPatch):
    ended = {"status": "killed by SIGSEGV", "error": "its process ended while preparing: killed by SIGSEGV"}
    monkeypatch.setattr(script, "hold", lambda case, args, log: Held(ended, ready=False))
    (rows,) = script.measure_block([CASE], ARGS)
    assert {row["note"] for row in rows} == {ended["error"]}


def test_a_real_process_waits_for_its_turn(tmp_path: Path):
    case = ExpertCase("alexnet", 1, "float32", "cpu", None, ("eager",), 64)
    process = script.hold(case, ARGS, tmp_path / "log")
    try:
        while not process.settled(float("inf")):
            pass
        assert process.ready, (tmp_path / "log").read_text()
        found = script.turn_of(process, 60.0)
        assert found["eager"]["median_ms"] > 0
    finally:
        process.stop()


def test_settings_are_built_from_eager_execution_to_those_that_are_seldom_the_fastest():
    names = in_order(tuple(SETTINGS))
    assert names[:2] == ["eager", "eager, tuned"]
    assert set(names[-3:]) == {"default", "reduce-overhead", "default, tuned"}
    assert sorted(names) == sorted(SETTINGS)


def wait_through_one_interruption(end: float) -> None:
    for last in (False, True):
        try:
            while time.monotonic() < end:
                pass
        except TimeoutError:
            if last:
                raise


def test_a_limit_interrupts_code_that_catches_it_once():
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="limit"), within(0.05):
        wait_through_one_interruption(begin + 20)
    assert time.monotonic() < begin + 10
    with within(0.2):
        pass
    time.sleep(0.3)  # no alarm is left


def test_what_goes_on_without_the_interrupted_part_was_not_built():
    with pytest.raises(TimeoutError, match="limit"), within(0.05):  # noqa: PT012 - the block is what ends in the error
        with suppress(TimeoutError):
            time.sleep(20)
        time.sleep(0.01)


def test_no_time_is_left_after_the_limit():
    with pytest.raises(TimeoutError), within(-1.0):
        pytest.fail("was not interrupted")


def test_a_capture_is_not_interrupted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expert_settings, "is_capturing", lambda: True)
    with within(0.01):
        time.sleep(0.1)


def test_a_case_with_a_file_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys):
    asked = []

    def measure_block(cases, args):
        for case in cases:
            asked.append(case.model)
            yield [{"setting": "eager", "median_ms": 2.0}, {"setting": "plan", "median_ms": 1.0}]

    monkeypatch.setattr(script, "measure_block", measure_block)
    command = ["x", "resnet18", "vit_b_16", "-b", "1", "--precision", "float32", "--device", "cpu", "-o", str(tmp_path)]
    for _ in range(2):
        monkeypatch.setattr("sys.argv", command)
        script.main()
    assert asked == ["resnet18", "vit_b_16"]
    assert "plan: 2.00x the best setting (geometric mean of 2)" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("*")) == [
        "environment.json",
        "resnet18-1-float32.csv",
        "vit_b_16-1-float32.csv",
    ]


def test_settings_are_measured_together_and_failures_noted(monkeypatch: pytest.MonkeyPatch):
    def built(case, setting):
        if setting.ours:
            raise ValueError("no plan today")
        return lambda: None, lambda: [torch.ones(2)]

    monkeypatch.setattr(expert_settings, "built", built)
    found = expert_settings.measure(CASE, 0.0)
    assert list(found) == list(CASE.settings)
    assert found["plan"] == {"note": "ValueError: no plan today"}
    measured = {"error", "median_ms", "low_ms", "high_ms", "rounds_ms"}
    assert found["eager"].keys() == measured
    assert found["default"].keys() == measured | {"compile_s"}
    assert float(found["default"]["error"]) == 0.0
    assert len(found["eager"]["rounds_ms"].split()) == expert_settings.ROUNDS


def test_a_setting_that_fails_in_a_later_call_leaves_the_others(monkeypatch: pytest.MonkeyPatch):
    def built(case, setting):
        def second() -> None:
            if setting.compiles:
                raise RuntimeError("overwritten by a subsequent run")

        return second, lambda: [torch.ones(2)]

    monkeypatch.setattr(expert_settings, "built", built)
    found = expert_settings.measure(CASE, 0.0)
    assert found["default"] == {"note": "RuntimeError: overwritten by a subsequent run"}
    assert "median_ms" in found["eager"]
