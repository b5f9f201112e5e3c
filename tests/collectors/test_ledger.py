"""Ledger: written rows stay intact, and other environments and files are refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import costmodel
from collectors.processes.environment import differences, environment
from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import UnitCase
from costmodel.errors import DatasetError

ROOT = Path(costmodel.__file__).parent.parent
HERE = {"device": "test"}


def case_of(op: str, size: int = 64, unit: str = "") -> UnitCase:
    kind = f"float32[{size}]"
    return UnitCase(f"graph _ {{\n  input %a0: {kind}\n  %0 = {op}(self=%a0) : {kind}\n  return %0\n}}", "aten", unit)


def ends(path: Path) -> list[str]:
    with Ledger(path) as ledger:
        return [row["status"] for row in ledger.rows()]


FILL = """
import resource, signal, sys
from pathlib import Path
from collectors.workloads.cases import UnitCase
from collectors.sweep.ledger import Ledger
from costmodel.errors import DatasetError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
ledger = Ledger(Path(sys.argv[1]), {"device": "test"})
try:
    for number in range(10_000):
        ledger.finish(UnitCase(f"graph {number}", "aten"), "ok", {"error": "x" * 500})
        print(number, flush=True)
except DatasetError as error:
    print(error, file=sys.stderr)
    sys.exit(7)
"""


class TestLedger:
    """Written rows stay intact, and other environments and files are refused."""

    @pytest.mark.slow
    def test_a_full_disk_is_named_and_loses_nothing_that_was_written(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        command = [sys.executable, "-c", FILL, str(path), "300000"]
        filled = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert filled.returncode == 7, filled.stderr
        assert f"{path}: cannot be written: " in filled.stderr
        written = len(filled.stdout.split())
        assert written > 10
        assert len(ends(path)) in (written, written + 1)
        with Ledger(path, HERE) as ledger:
            ledger.finish(case_of("relu"), "ok", {})

    def test_a_half_written_file_is_refused(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        with Ledger(path, HERE) as ledger:
            for number in range(200):
                ledger.finish(UnitCase(f"graph {number}", "aten"), "ok", {"error": "x" * 500})
        whole = path.read_bytes()
        for size in (50, len(whole) // 3, len(whole) - 5000):
            path.write_bytes(whole[:size])
            with pytest.raises(DatasetError, match=r"ledger\.sqlite: (not a ledger|damaged)"):
                Ledger(path, HERE)
            assert path.stat().st_size == size

    def test_a_file_of_another_kind_is_refused_and_left_alone(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        path.write_text("not a database, but long enough to be taken for one\n" * 100)
        before = path.read_bytes()
        with pytest.raises(DatasetError, match="not a ledger"):
            Ledger(path, HERE)
        assert path.read_bytes() == before
        with pytest.raises(DatasetError, match="not a ledger"):
            Ledger(tmp_path, HERE)

    def test_another_programs_database_is_refused_and_left_alone(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE bookmarks (url TEXT)")
        database.close()
        before = path.read_bytes()
        with pytest.raises(DatasetError, match="it has the table bookmarks"):
            Ledger(path, HERE)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("record", ["[]", "null", "5", "{", None])
    def test_a_damaged_record_is_refused(self, tmp_path: Path, record: str | None):
        path = tmp_path / "ledger.sqlite"
        with Ledger(path, HERE) as ledger:
            ledger.finish(case_of("relu"), "ok", {})
        with sqlite3.connect(path) as database:
            database.execute("UPDATE results SET record = ?", (record,))
        database.close()
        with Ledger(path) as ledger, pytest.raises(DatasetError, match=r"ledger\.sqlite: cannot be read: "):
            list(ledger.rows())

    def test_another_environment_is_refused_by_what_differs(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        Ledger(path, {"torch": "2.11.0", "driver": "570", "device": "test"}).close()
        changed = "driver was 570 and is 580, torch was 2.11.0 and is 2.13.0"
        with pytest.raises(DatasetError, match=f"begun in another environment: {changed}; use a new file"):
            Ledger(path, {"torch": "2.13.0", "driver": "580", "device": "test"})

    def test_another_memory_size_is_another_device(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        Ledger(path, {"device": "NVIDIA H100", "memory_bytes": str(80 << 30)}).close()
        Ledger(path, {"device": "NVIDIA H100"}).close()  # recorded before sizes were
        Ledger(path, {"device": "NVIDIA H100", "memory_bytes": str(79 << 30)}).close()  # as another driver says
        with pytest.raises(DatasetError, match=r"memory_bytes was 85899345920 and is 100931731456; use a new file"):
            Ledger(path, {"device": "NVIDIA H100", "memory_bytes": str(94 << 30)})

    def test_another_way_of_measuring_is_another_environment(self):
        here = environment("cpu")
        assert differences(here, here) == ""
        assert differences({**here, "method": "0"}, here) == "method was 0 and is 1"
        without = {key: value for key, value in here.items() if key != "method"}
        assert differences(without, here) == ""  # ledgers of the first method did not say so

    def test_another_schema_is_refused(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        Ledger(path, HERE).close()
        with sqlite3.connect(path) as database:
            database.execute("UPDATE about SET value = '9' WHERE name = 'schema'")
        database.close()
        with pytest.raises(DatasetError, match="a ledger of schema 9, not 1"):
            Ledger(path, HERE)

    def test_reading_one_that_is_not_there_makes_none(self, tmp_path: Path):
        with pytest.raises(DatasetError, match="no such ledger"):
            Ledger(tmp_path / "ledger.sqlite")
        assert not (tmp_path / "ledger.sqlite").exists()

    @pytest.mark.parametrize("alone", [True, False])
    def test_a_crashed_case_is_retried_once(self, alone: bool, tmp_path: Path):
        case = case_of("relu")
        with Ledger(tmp_path / "ledger.sqlite", HERE) as ledger:
            if alone:
                ledger.start(case)
            assert not ledger.crash(case, {"error": "killed by SIGKILL"})
            assert ledger.finished() == set()
            assert ledger.crashed_once() == {(case.key, "")}
            assert list(ledger.rows()) == []
            if alone:
                ledger.start(case)
            assert ledger.crash(case, {"error": "killed by SIGSEGV"})
            assert ledger.finished() == {(case.key, "")}
            assert ledger.crashed_once() == set()
            (row,) = ledger.rows()
        assert (row["status"], row["error"], row["attempt"]) == ("crashed", "killed by SIGSEGV", 2)

    def test_a_killed_sweep_counts_against_the_case_that_ran_alone(self, tmp_path: Path):
        case = case_of("relu")
        with Ledger(tmp_path / "ledger.sqlite", HERE) as ledger:
            for again in (True, False):
                ledger.start(case)
                ledger.end_started("the sweep was killed")
                assert (ledger.crashed_once() == {(case.key, "")}) == again
            (row,) = ledger.rows()
        assert (row["status"], row["error"], row["attempt"]) == ("crashed", "the sweep was killed", 2)

    def test_an_interruption_is_not_held_against_a_case(self, tmp_path: Path):
        case = case_of("relu")
        with Ledger(tmp_path / "ledger.sqlite", HERE) as ledger:
            ledger.start(case)
            ledger.forget_started()
            ledger.start(case)
            assert not ledger.crash(case, {"error": "killed by SIGKILL"})  # the first attempt
            assert list(ledger.rows()) == []


def test_the_environment_names_all_that_times_depend_on():
    found = environment("cpu")
    assert set(found) >= {"python", "torch", "host_cpu", "cores", "device", "threads", "method"}
    assert json.loads(json.dumps(found)) == found
    assert all(isinstance(value, str) for value in found.values())
