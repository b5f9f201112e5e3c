"""Rounds of a sweep share a budget, resume where they were interrupted, and measure nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from collectors.sweep import acquisition, rounds
from collectors.sweep.candidates import candidates
from collectors.sweep.ledger import Ledger
from collectors.sweep.rounds import Watch, share, sweep_in_rounds, worth
from collectors.sweep.settings import Progress, Report, SweepSettings
from collectors.workloads import matmuls
from collectors.workloads.cases import UnitCase
from costmodel.training.kernel_models import TrainingSettings

REQUEST = {"workloads": ["matmul"]}


class Machine:
    """A sweep on a clock of its own: a case takes two seconds; it may be interrupted after some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.seconds_a_case, self.interrupted_after = 0.0, 2.0, -1
        self.given: list[tuple[list[UnitCase], float]] = []
        self.ended: list[UnitCase] = []
        monkeypatch.setattr(acquisition, "QUICK", TrainingSettings(hidden=(4,), epochs=2, ensemble=2))
        monkeypatch.setattr(rounds.time, "monotonic", lambda: self.now)

    def sweep(self, cases: Sequence[UnitCase], ledger_path: Path, settings: SweepSettings, report: Report) -> None:
        self.given.append((list(cases), settings.seconds))
        begin = self.now
        with Ledger(ledger_path, {"device": "test"}) as ledger:
            finished = ledger.finished()
            todo = [case for case in cases if (case.key, case.unit) not in finished]
            for done, case in enumerate(todo, 1):
                if self.now + self.seconds_a_case > begin + settings.seconds:
                    return
                if len(self.ended) == self.interrupted_after:
                    self.interrupted_after = -1
                    raise KeyboardInterrupt
                self.now += self.seconds_a_case
                ledger.finish(case, "ok", {"device_us": [float(len(case.graph))] * 5})
                self.ended.append(case)
                report(Progress("measuring", done, len(todo), self.now - begin, done))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def collect(
    directory: Path, cases: Sequence[UnitCase], machine: Machine, seconds: float, seen: list[Progress] | None = None
) -> None:
    report = (lambda _progress: None) if seen is None else seen.append
    settings = SweepSettings("cuda", seconds)
    sweep_in_rounds(
        cases, directory / "ledger.sqlite", directory / "round.jsonl", REQUEST, settings, report, machine.sweep
    )


def test_a_budget_is_shared_out_in_four():
    assert share(1200, 1200) == 300
    assert share(1200, 419) == 419  # 119 seconds would be over, less than a round
    assert share(1200, 421) == 300
    assert share(90, 90) == 90
    assert share(300, 300) == 120


def test_a_round_is_given_what_there_is_time_for():
    pool = candidates(matmuls.sample(80, 1))
    seconds = {"aten": 2.0, "inductor": 9.0}
    assert worth(pool, 120.0, seconds) == [one.cases[0] for one in pool[:60]]
    assert worth(pool, 1.0, seconds) == [one.cases[0] for one in pool[:50]]  # but never less than fifty


def test_a_budget_is_kept_and_nothing_is_measured_twice(tmp_path: Path, machine: Machine):
    cases = list(matmuls.sample(400, 2))
    seen: list[Progress] = []
    collect(tmp_path, cases, machine, 600, seen)
    assert machine.now <= 600
    assert len(machine.ended) == 300  # two seconds each
    assert len({case.key for case in machine.ended}) == 300
    assert [seconds for _, seconds in machine.given] == [150, 150, 150, 150]
    assert sorted({one.round for one in seen}) == [1, 2, 3, 4]
    assert [one.phase for one in seen].count("choosing") == 4
    left = [one.budget_left for one in seen]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_everything_is_measured_if_there_is_time(tmp_path: Path, machine: Machine):
    cases = list(matmuls.sample(120, 2))
    collect(tmp_path, cases, machine, 5000)
    assert {case.key for case in machine.ended} == {case.key for case in cases}
    assert machine.now == 240
    rounds_before = len(machine.given)
    collect(tmp_path, cases, machine, 5000)
    assert len(machine.given) == rounds_before


@pytest.mark.parametrize("after", [0, 10, 90, 170])
def test_an_interrupted_round_goes_on_with_the_same_choice(after: int, tmp_path: Path, machine: Machine):
    cases = list(matmuls.sample(400, 2))
    machine.interrupted_after = after
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path, cases, machine, 600)
    interrupted, count = machine.given[-1][0], len(machine.given)
    collect(tmp_path, cases, machine, 600)
    assert machine.given[count][0] == interrupted
    keys = [case.key for case in machine.ended]
    assert len(keys) == len(set(keys))


def test_a_choice_for_another_request_is_not_resumed(tmp_path: Path, machine: Machine):
    machine.interrupted_after = 10
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path, list(matmuls.sample(100, 2)), machine, 600)
    other = list(matmuls.sample(100, 9))
    ledger, choice = tmp_path / "ledger.sqlite", tmp_path / "round.jsonl"
    sweep_in_rounds(other, ledger, choice, {"workloads": []}, SweepSettings("cuda", 100), lambda _: None, machine.sweep)
    assert {case.key for case in machine.given[-1][0]} <= {case.key for case in other}


def test_a_machine_that_ends_nothing_is_given_all_the_time_once_more(tmp_path: Path, machine: Machine):
    machine.seconds_a_case = 1e6
    collect(tmp_path, list(matmuls.sample(60, 2)), machine, 600)
    assert [seconds for _, seconds in machine.given] == [150, 600]


def test_what_cases_take_is_learnt_from_progress():
    watch = Watch(lambda _progress: None, 0.0)
    assert watch.seconds() == {"aten": 0.2, "aten_tf32": 0.2, "inductor": pytest.approx(0.6)}
    watch(Progress("compiling", 0, 9, 5.0))
    watch(Progress("compiling", 4, 9, 6.0))
    watch(Progress("measuring", 10, 90, 5.0))
    assert watch.seconds() == {"aten": 0.5, "aten_tf32": 0.5, "inductor": 2.0}
