"""Last lines of `costmodel collect`, and the workloads that it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from collectors.sweep import sweep
from collectors.whole_models import records
from collectors.workloads import catalog
from costmodel.cli import main
from costmodel.cli.collect import _print_summary
from costmodel.errors import CostmodelError, RequestError


@pytest.mark.parametrize(("given", "asked"), [([], ()), (["conv", "host"], ("conv", "host"))])
def test_the_workloads_are_those_that_were_named(
    monkeypatch: pytest.MonkeyPatch, given: list[str], asked: tuple[str, ...]
):
    seen = []

    def check(names: object) -> None:
        seen.append(tuple(names))
        raise RequestError("no more")

    monkeypatch.setattr(catalog, "check", check)
    assert main(["collect", *given]) == 2
    assert seen == [asked]


def test_without_names_the_default_units_are_measured_and_each_workload_once():
    assert catalog.check(()) == catalog.DEFAULT == ("conv", "matmul", "layer")
    assert catalog.check(("conv", "host", "conv")) == ("conv", "host")


def test_nothing_measured_is_an_error(tmp_path: Path):
    with pytest.raises(CostmodelError, match=r"^nothing was measured; give a larger --budget$"):
        _print_summary(tmp_path, "mine")


def test_a_summary_counts_units_and_models_and_names_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "ledger.sqlite").touch()
    ends = Counter({"ok": 5, "failed": 2})
    monkeypatch.setattr(sweep, "tally", lambda path: (3, ends) if path == tmp_path / "ledger.sqlite" else None)
    _print_summary(tmp_path, "mine")
    assert capsys.readouterr().out.splitlines() == [
        "3 units, measured in 7 cases: 5 ok, 2 failed",
        f"ledger: {tmp_path / 'ledger.sqlite'}",
        "next: costmodel train --hardware mine",
    ]
    ends.clear()
    (tmp_path / "models.jsonl").touch()
    monkeypatch.setattr(records, "done_keys", lambda path: {"a", "b"} if path == tmp_path / "models.jsonl" else None)
    _print_summary(tmp_path, "mine")
    assert capsys.readouterr().out.splitlines() == [
        "3 units, measured in 0 cases: none yet",
        f"ledger: {tmp_path / 'ledger.sqlite'}",
        f"2 whole models: {tmp_path / 'models.jsonl'}",
        "next: costmodel train --hardware mine",
    ]
