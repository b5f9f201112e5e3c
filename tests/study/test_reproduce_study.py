"""The command: its requests, its processes, its output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from study.experiment import Experiment, Point, Setup, SkippedError, Verdict, noted, valued
from study.running import Outcome, State
from study.table import Table, read, skipped

from costmodel.errors import RequestError
from tests.support.scripts import load_script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    module = load_script("reproduce_study")
    monkeypatch.setattr(module, "EXPERIMENTS", (experiment("one"), experiment("gpu"), experiment("two")))
    monkeypatch.setattr(module, "make_cpu_deterministic", lambda _: None)  # of this process, which tests other things
    return module


def experiment(name: str) -> Experiment:
    def points(_setup: Setup):
        if name == "gpu":
            raise SkippedError("needs a GPU")
        return [Point(case, lambda case=case: [valued({"case": case}, "time_ms", 1.0)]) for case in ("a", "b")]

    def judge(frame: pd.DataFrame) -> Verdict:
        return Verdict(f"{len(frame)} cases", True)

    return Experiment(name, "Paper", f"Claim of {name}.", points, lambda _: Figure(figsize=(1, 1)), judge)


def run(script, directory: Path, *arguments: str) -> int:
    return script.run(script.parsed([*arguments, "--device", "cpu", "-o", str(directory), "--quick", "--in-process"]))


def test_all_experiments_are_listed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce_study.py", "--list"])
    assert load_script("reproduce_study").main() == 0
    listed = capsys.readouterr().out
    assert listed.count("\n") == 23
    assert "| matmul | Goldfarb 2024, figure 5.1, appendix 1 |" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["three"], "unknown experiment 'three'; there are one, gpu, two"),
        (["--budget", "9"], "impossible budget '9'"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["-o", "/proc/x/y"], "cannot use /proc/x/y"),
    ],
)
def test_wrong_requests_are_one_line(script, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["reproduce_study.py", *arguments])
    assert script.main() == script.WRONG
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_skipped_experiment_does_not_stop_the_others(script, tmp_path, capsys):
    assert run(script, tmp_path) == script.DONE
    assert "one: point 2 of 2: b" in capsys.readouterr().err
    script._recorded(script.open_record(tmp_path, script.environment("cpu"), quick=True), tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "| one | Paper | Claim of one. | 2 cases | holds | [csv](one.csv), [png](one.png), [svg](one.svg) |" in text
    assert "- gpu: skipped: needs a GPU" in text
    assert (tmp_path / "two.svg").exists()
    assert not (tmp_path / "gpu.csv").exists()


def test_experiments_are_chosen_by_name_in_the_order_of_the_catalog(script):
    assert [each.name for each in script.chosen(["two", "one"])] == ["one", "two"]
    assert len(script.chosen([])) == 3
    with pytest.raises(RequestError):
        script.chosen([""])


@pytest.mark.parametrize(("end", "fault"), [(-11, "killed by SIGSEGV"), (None, "took too long")])
def test_a_point_that_ends_its_process_is_left_out(script, tmp_path, monkeypatch, end, fault):
    """The first process dies in point a; the second does the rest."""
    begun = script.begun_file(tmp_path, "one")
    seen = []

    def waited(command, _begun, _longest_s):
        seen.append(command)
        if len(seen) == 1:
            begun.write_text("a")
            return end
        return run(script, tmp_path, "one")

    monkeypatch.setattr(script, "_waited", waited)
    args = script.parsed(["one", "--device", "cpu", "-o", str(tmp_path), "--quick"])
    assert script.run(args) == script.DONE
    frame = read(tmp_path / "one.csv")
    assert skipped(frame) == {"a": f"the process ended: {fault}"}
    assert list(frame["point"]) == ["a", "b"]
    assert not begun.exists()
    assert seen[0][-1] == "--in-process"


def test_a_process_without_a_usable_device_is_replaced(script, tmp_path, monkeypatch):
    ends = iter([script.RESTART, script.RESTART])
    monkeypatch.setattr(script, "_waited", lambda *_: next(ends, None) or run(script, tmp_path, "one"))
    assert script.run(script.parsed(["one", "--device", "cpu", "-o", str(tmp_path), "--quick"])) == script.DONE
    assert not skipped(read(tmp_path / "one.csv"))


def test_an_experiment_that_keeps_crashing_fails(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "_waited", lambda _command, begun, _: begun.write_text("a") and -9)
    args = script.parsed(["one", "--device", "cpu", "-o", str(tmp_path), "--quick"])
    assert script.run(args) == script.FAILED
    assert "5 processes ended early" in (tmp_path / "README.md").read_text()


def test_a_process_that_hangs_in_a_point_is_killed(script, tmp_path, monkeypatch):
    begun = tmp_path / ".one.begun"
    begun.write_text("a")
    assert script._waited([sys.executable, "-c", "import time; time.sleep(60)"], begun, -1.0) is None
    assert script._waited([sys.executable, "-c", "raise SystemExit(3)"], begun, 60.0) == 3


def test_a_full_disk_fails_and_the_rest_goes_on(script, tmp_path, monkeypatch):
    import study.table

    write = study.table.write_whole

    def full(path: Path, text: str) -> None:
        if path.name == "one.csv":
            raise OSError(28, "No space left on device", str(path))
        write(path, text)

    monkeypatch.setattr(study.table, "write_whole", full)
    assert run(script, tmp_path) == script.FAILED
    assert len(read(tmp_path / "two.csv")) == 2
    record = script.open_record(tmp_path, script.environment("cpu"), quick=True)
    assert record.outcomes["one"].reason.endswith("No space left on device; a is not stored")


def test_a_spent_budget_resumes_later(script, tmp_path, monkeypatch):
    args = script.parsed(["one", "--device", "cpu", "-o", str(tmp_path), "--quick", "--budget", "1s"])
    monkeypatch.setattr(script.time, "monotonic", iter([0.0, *[5.0] * 10]).__next__)
    assert script.run(args) == script.DONE
    record = script.open_record(tmp_path, script.environment("cpu"), quick=True)
    assert record.outcomes["one"].state == "paused"
    monkeypatch.undo()
    assert not (tmp_path / "one.csv").exists()


def test_a_finished_experiment_starts_no_process_until_its_table_is_removed(script, tmp_path, monkeypatch):
    run(script, tmp_path, "one")
    started = []
    monkeypatch.setattr(script, "_waited", lambda *_: started.append(1) or run(script, tmp_path, "one"))
    args = script.parsed(["one", "--device", "cpu", "-o", str(tmp_path), "--quick"])
    assert script.run(args) == script.DONE
    assert not started
    (tmp_path / "one.csv").unlink()
    assert script.run(args) == script.DONE
    assert started
    assert len(read(tmp_path / "one.csv")) == 2


def test_a_share_is_rehearsed(script, tmp_path, monkeypatch):
    run(script, tmp_path, "one")
    (tmp_path / "two.csv").write_text("damaged")
    seen = []
    monkeypatch.setattr(script, "rehearse", lambda *arguments: seen.append(arguments))
    request = ["one", "two", "--device", "cpu", "--share", "2/8", "-o", str(tmp_path)]
    assert script.run(script.parsed(request)) == script.DONE
    ((experiments, setup, share, shares, _, known),) = seen
    assert [each.name for each in experiments] == ["one", "two"]
    assert known == {"one": {"a", "b"}}
    assert (share, shares, setup.rehearses, setup.quick) == (2, 8, True, False)


def test_the_cache_is_filled_by_processes_with_a_share_each(script, tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setattr(script, "__file__", str(tmp_path / "child.py"))
    (tmp_path / "child.py").write_text(f"import sys\nopen({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n")
    request = ["one", "--device", "cpu", "--quick", "--fill-cache", "2", "-o", "out"]
    assert script.run(script.parsed(request)) == script.DONE
    lines = [f"one --device cpu -o out --quick --share {share}/2" for share in (0, 1)]
    assert sorted(log.read_text().splitlines()) == lines


def test_processes_that_fill_the_cache_end_with_the_command(tmp_path):
    """Killed, it leaves none that would disturb the next run, or keep a pipe open that something waits on."""
    (tmp_path / "child.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    command = """
import os, sys
from tests.support.scripts import load_script
child = load_script("reproduce_study")._started([sys.executable, sys.argv[1]], stdout=-1)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", command, str(tmp_path / "child.py")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -9, done.stderr
    child = Path(f"/proc/{int(done.stdout)}/cmdline")
    for _ in range(100):
        if not child.exists() or not child.read_bytes():  # gone, or dead and not yet waited for
            return
        time.sleep(0.1)
    pytest.fail("the child goes on")


def test_tables_without_values_have_no_figure(script, tmp_path):
    Table(tmp_path / "one.csv", {}).add("a", [noted({}, "skipped: no")])
    assert script.draw(experiment("one"), tmp_path) == Outcome(State.DONE)
    assert not (tmp_path / "one.png").exists()


def test_tables_that_lack_a_column_have_no_figure(script, tmp_path):
    Table(tmp_path / "one.csv", {}).add("a", [valued({}, "time_ms", 1.0)])
    lacking = replace(experiment("one"), figure=lambda frame: frame["model"])
    assert script.draw(lacking, tmp_path) == Outcome(
        State.DONE, "no figure, for too little was measured: KeyError: 'model'"
    )


def test_only_experiments_that_measure_nothing_join_results_of_another_machine(script, tmp_path, monkeypatch):
    run(script, tmp_path, "one")
    record = script.read_record(tmp_path)
    replace(record, environment={**record.environment, "torch": "another"}).write(tmp_path)
    with pytest.raises(RequestError, match="another environment: torch"):
        run(script, tmp_path, "two")
    monkeypatch.setattr(script, "EXPERIMENTS", (experiment("one"), replace(experiment("two"), measures=False)))
    assert run(script, tmp_path, "two") == script.DONE
    assert len(read(tmp_path / "two.csv")) == 2
    assert script.read_record(tmp_path).environment["torch"] == "another"


def test_ends_recorded_by_another_process_meanwhile_stay(script, tmp_path, monkeypatch):
    ran = script.run_here

    def beside(one, *others):
        known = script.read_record(tmp_path) or script.Record(script.environment("cpu"), True, {})
        known.having("elsewhere", Outcome(State.DONE)).write(tmp_path)
        return ran(one, *others)

    monkeypatch.setattr(script, "run_here", beside)
    assert run(script, tmp_path, "one") == script.DONE
    assert set(script.read_record(tmp_path).outcomes) == {"one", "elsewhere"}


def test_figures_are_drawn_anew_from_tables(script, tmp_path):
    Table(tmp_path / "one.csv", {}).add("a", [valued({"case": "a"}, "time_ms", 1.0)])
    args = script.parsed(["one", "--device", "cpu", "-o", str(tmp_path), "--quick", "--only-readme"])
    assert script.run(args) == script.DONE
    assert (tmp_path / "one.png").exists()
    assert "1 cases" in (tmp_path / "README.md").read_text()


def test_readme_and_figures_of_another_environment_are_written_anew(script, tmp_path, capsys):
    run(script, tmp_path)
    record = script.read_record(tmp_path)
    replace(record, environment={**record.environment, "torch": "another"}, quick=False).write(tmp_path)
    (tmp_path / "README.md").unlink()
    (tmp_path / "two.svg").unlink()
    args = script.parsed(["--device", "cpu", "-o", str(tmp_path), "--only-readme"])
    assert script.run(args) == script.DONE
    assert "torch another" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "two.svg").exists()
    assert "one: holds: 2 cases" in capsys.readouterr().out
