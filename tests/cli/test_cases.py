"""Several cases of `predict`: batch sizes and hardware repeat, captures are shared, failures are kept apart."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import pty
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from costmodel.cli import main
from costmodel.cli.cases import Case, Failure, cases_of, failure_lines
from costmodel.errors import CaptureError
from costmodel.ir import Graph
from costmodel.report import Report
from tests.support import sample_reports

NET = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())

def broken():
    raise RuntimeError("no weights")
"""
GPU, CPU = "nvidia-h200", "amd-epyc-2-threads"
GAINS = {(GPU, 1): 2.0, (GPU, 4): 3.0, (CPU, 1): 1.2, (CPU, 4): 1.5}


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return "net.py:build"


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Graphs predicted, in order; each prediction has the gain of its hardware and batch size."""
    module = importlib.import_module("costmodel.prediction.predict")
    seen: list[Graph] = []

    def predict(graph: Graph, inputs: Sequence[torch.Tensor], *, hardware: str, **_: object) -> Report:
        seen.append(graph)
        size = inputs[0].shape[0]
        if size == 7 or (size == 5 and hardware == CPU):
            raise CaptureError(f"no prediction for {hardware}")
        made = sample_reports.report()
        best = replace(made.modes["reduce-overhead"], speedup=GAINS.get((hardware, size), 1.0))
        modes = {**made.modes, "reduce-overhead": best}
        return replace(made, model=graph.name, hardware=hardware, batch_size=size, modes=modes)

    monkeypatch.setattr(module, "predict_captured", predict)
    return seen


FOUR = ["-b", "1", "-b", "4", "--hardware", GPU, "--hardware", CPU, "--no-check", "-q"]


class TestCases:
    def test_json_is_a_list_in_the_order_of_the_arguments(
        self, net: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", net, *FOUR, "--format", "json"]) == 0
        found = [(record["batch_size"], record["hardware"]) for record in json.loads(capsys.readouterr().out)]
        assert found == [(1, GPU), (1, CPU), (4, GPU), (4, CPU)]

    def test_a_model_is_captured_once_a_batch_size(self, net: str, graphs: list[Graph]) -> None:
        assert main(["predict", net, *FOUR]) == 0
        assert len(graphs) == 4
        assert graphs[0] is graphs[1]
        assert graphs[2] is graphs[3]
        assert graphs[0] is not graphs[2]

    def test_the_table_of_cases_comes_last_and_the_largest_gain_first(
        self, net: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", net, *FOUR]) == 0
        table = capsys.readouterr().out.split("\n\n")[-1]
        assert table.startswith("4 cases by gain, float32, nchw\n")
        rows = re.findall(r"^net.py:build +(\S+) +(\d+) .* (\d\.\d\d)x ", table, re.MULTILINE)
        assert rows == [(GPU, "4", "3.00"), (GPU, "1", "2.00"), (CPU, "4", "1.50"), (CPU, "1", "1.20")]

    def test_csv_has_the_verdict_the_best_mode_and_the_share_extrapolated(
        self, net: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", net, *FOUR, "--format", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert len(rows) == 4 * 3
        assert {row["verdict"] for row in rows} == {"compile"}
        assert {row["best_mode"] for row in rows} == {"reduce-overhead"}
        assert {row["extrapolated_share"] for row in rows} == {"0.0"}

    @pytest.mark.parametrize("repeated", [[], ["-b", "1", "-b", "1"], ["--hardware", GPU, "--hardware", GPU]])
    def test_one_case_is_an_object_also_if_a_value_is_repeated(
        self, repeated: list[str], net: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", net, "-q", "--no-check", "--format", "json", *repeated]) == 0
        assert json.loads(capsys.readouterr().out)["batch_size"] == 1

    def test_what_cannot_be_predicted_gets_its_line_and_the_rest_is_printed(
        self, net: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
    ) -> None:
        sizes = ["-b", "4", "-b", "5", "-b", "7"]
        request = ["predict", "net.py:broken", net, *sizes, "--hardware", GPU, "--hardware", CPU, "-q", "--no-check"]
        assert main([*request, "--format", "json"]) == 2
        out, err = capsys.readouterr()
        assert [(one["batch_size"], one["hardware"]) for one in json.loads(out)] == [(4, GPU), (4, CPU), (5, GPU)]
        first, *rest = err.splitlines()
        assert first.startswith("costmodel: error: net.py:broken: ")  # one line for its three batch sizes
        assert first.count("no weights") == 1
        assert rest == [
            f"costmodel: error: {net}, batch 5, on {CPU}: no prediction for {CPU}",
            f"costmodel: error: {net}, batch 7, on {GPU}: no prediction for {GPU}",
            f"costmodel: error: {net}, batch 7, on {CPU}: no prediction for {CPU}",
        ]

    @pytest.mark.parametrize("bad", [["--hardware", "gtx"], ["--host", "nowhere"]])
    def test_bad_options_are_refused_once_before_any_work(
        self, bad: list[str], net: str, graphs: list[Graph], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", net, "-b", "1", "-b", "4", "--hardware", GPU, *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert not graphs

    def test_several_processes_print_the_same(self, net: str, capsys: pytest.CaptureFixture[str]) -> None:
        request = ["predict", net, *FOUR, "--format", "json"]
        assert main(request) == 0
        alone = capsys.readouterr().out
        assert main([*request, "--jobs", "2"]) == 0
        assert capsys.readouterr().out == alone

    def test_a_bar_shows_progress_on_a_terminal_only(
        self, net: str, graphs: list[Graph], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader, terminal = pty.openpty()
        with os.fdopen(terminal, "w") as screen, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", screen)
            assert main(["predict", net, *FOUR[:-1], "-o", os.devnull]) == 0
        assert b"predicting case 2/2" in os.read(reader, 100_000)
        os.close(reader)


class TestFailureLines:
    def test_one_hardware_and_one_batch_size_name_neither(self) -> None:
        cases = cases_of(["a", "b"], None)
        assert failure_lines([Failure(cases[0], (GPU,), "no")], cases, (GPU,)) == ["a: no"]

    def test_a_model_that_fails_everywhere_alike_gets_one_line(self) -> None:
        cases = cases_of(["a"], [1, 4])
        assert failure_lines([Failure(case, (GPU, CPU), "no") for case in cases], cases, (GPU, CPU)) == ["a: no"]

    def test_different_reasons_are_told_apart(self) -> None:
        cases = cases_of(["a"], [1, 4])
        failures = [Failure(case, (GPU,), f"no {case.batch_size}") for case in cases]
        assert failure_lines(failures, cases, (GPU,)) == ["a, batch 1: no 1", "a, batch 4: no 4"]

    def test_repeated_batch_sizes_count_once(self) -> None:
        assert cases_of(["a", "b"], [4, 1, 4]) == (
            *(Case(0, "a", 4), Case(1, "a", 1)),
            *(Case(2, "b", 4), Case(3, "b", 1)),
        )
