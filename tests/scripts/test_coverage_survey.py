"""Survey of covered models: outcomes, and a table that survives crashes, hangs and interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
from coverage_survey import (
    FAILED,
    OK,
    PARTIAL,
    UNSUPPORTED,
    Outcome,
    cover,
    names_of,
    one_of_each_family,
    read_table,
    survey,
    totals,
    write_table,
)

from costmodel.errors import DatasetError, RequestError

NETS = """
import os, time, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

def fine(): return Net(lambda x: x.relu() + 1)
def by_data(): return Net(lambda x: x.relu() if x.exp().sum() > 0 else x)
def rare(): return Net(lambda x: torch.special.bessel_j0(x))
def wrong(): return Net(lambda x: x.no_such_thing)
def dies(): os.kill(os.getpid(), 9)
"""


@pytest.fixture
def nets(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(NETS)
    return f"{tmp_path}/nets.py:"


class TestCover:
    def test_whole(self, nets: str) -> None:
        outcome = cover(f"{nets}fine")
        assert (outcome.status, outcome.reason, outcome.operators) == (OK, "", 2)
        assert (outcome.eager_kernels, outcome.compiled_kernels) == (2, 1)  # relu and add are one fused kernel

    @pytest.mark.parametrize(
        ("name", "status", "reason"),
        [
            ("by_data", PARTIAL, "stop control_flow @function"),
            ("rare", UNSUPPORTED, "no rule for special_bessel_j0"),
            ("wrong", FAILED, "no_such_thing"),
            ("absent", FAILED, "has no 'absent'"),
        ],
    )
    def test_not_whole(self, nets: str, name: str, status: str, reason: str) -> None:
        outcome = cover(f"{nets}{name}")
        assert outcome.status == status
        assert reason.replace("@function", "@") in outcome.reason
        assert "\n" not in outcome.reason


class TestSurvey:
    def test_survives_a_model_that_kills_its_process_and_resumes(self, nets: str, tmp_path: Path) -> None:
        table = tmp_path / "coverage.csv"
        fine = Outcome(f"{nets}fine", OK, "", 1, 2, 3, 0.5)
        write_table(table, [fine])
        seen: list[str] = []
        specs = [f"{nets}dies", fine.model]
        outcomes = survey(specs, table, tick=lambda outcome: seen.append(outcome.model))
        assert outcomes == (Outcome(specs[0], FAILED, "its process died or hung"), fine)
        assert seen == specs[:1]
        assert survey(specs, table) == outcomes

    def test_an_unfinished_row_is_dropped(self, tmp_path: Path) -> None:
        table = tmp_path / "coverage.csv"
        whole = (Outcome("a", OK, "", 1, 2, 3, 0.5), Outcome("b", FAILED, 'it said, "no"'))
        write_table(table, whole)
        with table.open("a") as file:
            file.write("c,ok,,12")
        assert read_table(table) == whole
        assert survey(["a"], table) == whole[:1]
        assert read_table(table) == whole

    @pytest.mark.parametrize("text", ["", "a,b\n", "model,status\nx,ok\n"])
    def test_another_file_is_refused(self, tmp_path: Path, text: str) -> None:
        table = tmp_path / "notes.csv"
        table.write_text(text)
        with pytest.raises(DatasetError, match="notes"):
            survey(["a"], table)
        assert table.read_text() == text

    def test_totals(self) -> None:
        outcomes = [Outcome("a", OK), Outcome("b", FAILED), Outcome("c", OK)]
        assert totals(outcomes) == {OK: 2, PARTIAL: 0, UNSUPPORTED: 0, FAILED: 1}


class TestNames:
    def test_of_torchvision(self) -> None:
        assert {"resnet50", "fasterrcnn_resnet50_fpn", "raft_large"} <= set(names_of("torchvision"))

    def test_of_timm(self) -> None:
        pytest.importorskip("timm")
        names = names_of("timm")
        assert len(names) > 1000
        families = one_of_each_family((*names, "resnet18"))
        assert 50 < len(families) < 200
        assert families[-1] == "resnet18"
        assert sum(name.startswith("timm:resnet18") for name in families) == 0

    def test_of_no_such_source(self) -> None:
        with pytest.raises(RequestError, match="unknown source 'zoo'"):
            names_of("zoo")
