"""Benchmark of a sweep: samples of units, the simple loop, and both contenders on a CPU."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from types import ModuleType

import pytest
from sample import by_unit, conv_units, sample_units
from torch._dynamo.utils import counters

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import UnitCase
from costmodel.errors import MeasurementError, RequestError
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]
SHIPPED, OF_A_GPU = "intel-xeon-16-threads", "nvidia-h100"
"""Profiles that are read in a second."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("sweep")


def case_of(size: int, runner: str = "aten", unit: str = "") -> UnitCase:
    kind = f"float32[{size}]"
    return UnitCase(f"graph _ {{\n  input %a0: {kind}\n  %0 = relu(self=%a0) : {kind}\n  return %0\n}}", runner, unit)


def greedy() -> UnitCase:
    """Graph with a small result type that allocates a petabyte, so that its process must be replaced."""
    text = "graph _ {\n  input %a0: float32[4]\n  %0 = new_empty(self=%a0, size=[281474976710656]) : float32[4]\n"
    return UnitCase(text + "  return %0\n}", "aten")


class TestSample:
    """Random samples of whole units, the same for a seed."""

    def test_cases_of_a_unit_stay_together(self):
        a, b, c, d = case_of(1, unit="u"), case_of(2), case_of(3, unit="u"), case_of(4)
        assert by_unit([a, b, c, d]) == [[a, c], [b], [d]]

    def test_of_the_shipped_dataset(self):
        units = sample_units(SHIPPED, 300, 3, "cuda")
        assert units == sample_units(SHIPPED, 300, 3, "cuda")
        assert units != sample_units(SHIPPED, 300, 4, "cuda")
        cases = [case for unit in units for case in unit]
        assert by_unit(cases) == units
        assert len(units) == 300
        assert (
            0.05 < sum(case.runner == "inductor" for case in cases) / len(cases) < 0.25
        )  # about an eighth of the dataset

    def test_a_cpu_has_no_cudnn(self):
        units = sample_units(OF_A_GPU, 300, 3, "cpu")
        assert not any("cudnn" in case.graph for unit in units for case in unit)
        assert any("cudnn" in case.graph for unit in sample_units(OF_A_GPU, 300, 3, "cuda") for case in unit)

    def test_of_convolution_units(self):
        units = conv_units(40, 3)
        assert units == conv_units(40, 3)
        assert 30 < len(units) <= 40
        assert all({"eager", "eager_nhwc", "inductor", "folded"} <= {case.way for case in unit} for unit in units)

    @pytest.mark.parametrize("units", [0, 10**9])
    def test_an_impossible_size_is_refused(self, units: int):
        with pytest.raises(RequestError, match=rf"impossible number of units {units}; {SHIPPED} has \d+$"):
            sample_units(SHIPPED, units, 0, "cuda")


class TestNaiveLoop:
    """Cases measured by the simple loop."""

    def test_measures_case_after_case_until_its_time_is_up(self, script: ModuleType, tmp_path: Path):
        cases = [case_of(64), case_of(65)]
        with Ledger(tmp_path / "ledger.sqlite", {"device": "test"}) as ledger:
            assert script.naive_loop(cases, ledger, "cpu", time.monotonic() - 1)
            assert not ledger.finished()
            assert script.naive_loop(cases, ledger, "cpu", time.monotonic() + 60)
            rows = list(ledger.rows())
        assert [row["graph"] for row in rows] == [case.graph for case in cases]
        assert all(len(row["device_us"]) == 5 and row["device_us"][0] > 0 for row in rows)

    def test_goes_on_in_a_new_process_after_the_case_that_spoiled_the_old_one(self, script: ModuleType, tmp_path: Path):
        with Ledger(tmp_path / "ledger.sqlite", {"device": "test"}) as ledger:
            assert not script.naive_loop([greedy(), case_of(64)], ledger, "cpu", time.monotonic() + 60)
            assert [row["status"] for row in ledger.rows()] == ["oom"]
            assert script.naive_loop([greedy(), case_of(64)], ledger, "cpu", time.monotonic() + 60)
            assert len(ledger.finished()) == 2

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # of torch's own compiler
    @pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")
    def test_compiles_cases_of_inductor(self, script: ModuleType):
        before = counters["stats"]["unique_graphs"]
        status, record = script.measure_naively(case_of(64, "inductor"), "cpu")
        assert status == "ok"
        assert record["device_us"] == sorted(record["device_us"])
        assert counters["stats"]["unique_graphs"] == before + 1
        script.measure_naively(case_of(65), "cpu")
        assert counters["stats"]["unique_graphs"] == before + 1


class TestContenders:
    """Both contenders in real processes, with caches of their own."""

    @pytest.mark.slow
    @pytest.mark.parametrize("contender", ["naive", "sweep"])
    def test_measures_everything(self, script: ModuleType, tmp_path: Path, contender: str):
        cases = [greedy(), case_of(64), case_of(65, unit="u"), case_of(66, unit="u")]
        args = argparse.Namespace(device="cpu", processes=1, seconds=200.0, naive_seconds=200.0)
        found = script.run(contender, cases, tmp_path / contender, args)
        assert found["units"] == 3
        assert found["cases"]["aten oom"] == 1
        assert sum(found["cases"].values()) == 4
        assert ("measuring_s" in found) == (contender == "sweep")

    @pytest.mark.slow
    def test_a_failure_names_its_reason(self, script: ModuleType, tmp_path: Path):
        args = argparse.Namespace(device="cuda:banana", processes=1, seconds=20.0, naive_seconds=20.0)
        with pytest.raises(MeasurementError, match=r"naive failed: .*banana"):
            script.run("naive", [case_of(64)], tmp_path / "naive", args)
