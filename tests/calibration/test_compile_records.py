"""Records of compile times: seconds by hand, and their summary."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.calibration.compile_records import Calls, CompileRecord, describe


def record(model: str = "alexnet", cores: int = 8, device: str = "", **processes: Any) -> CompileRecord:
    about = {"batch_size": 1, "precision": "float32", "layout": "nchw", "mode": "default", "graphs": 1, "counts": {}}
    return CompileRecord(model=model, cores=cores, device=device, **about, **processes)


def calls(import_s: float = 0.0) -> Calls:
    return Calls(calls_s=(5.0, 1.0, 0.5), wrap_s=0.25, import_s=import_s)


def test_seconds_of_a_process_are_those_beyond_steady_calls():
    assert calls().seconds == 0.25 + 6.5 - 3 * 0.5
    one = record(cold=calls())
    assert one.seconds("compile") == pytest.approx(5.25)
    assert one.seconds("compile_warm") is None
    assert record(cold=calls(), warm=Calls(calls_s=(0.5, 0.5))).seconds("compile_warm") == 0.0


def test_a_summary_counts_models_and_takes_the_median_of_the_imports_that_were_timed():
    found = describe(
        [
            record(cold=calls(4.0), warm=calls(2.0), device="b"),
            record(cold=calls(), cores=2, device="a"),
            record("vgg11", cold=calls(9.0), cores=4, device="a"),
        ]
    )
    assert found == {"models": 2, "records": 3, "devices": ["a", "b"], "cores": 4, "import_s": 4.0}


def test_without_a_timed_import_there_is_no_median():
    assert describe([record(cold=calls())])["import_s"] is None
    assert describe([record(cold=calls())])["devices"] == []
