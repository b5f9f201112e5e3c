"""Kernels as Inductor schedules them, counted without a GPU, beside those that are predicted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from costmodel.hardware import load_profile
from costmodel.measured import read_measured
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent
ROWS = ROOT / "docs" / "scheduled_kernels.csv"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")


@needs_compiler
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_inductor_schedules_for_a_gpu_that_is_not_there():
    """16 kernels and 8 calls of libraries are what an H200 launches for alexnet (see test_compile.py)."""
    script = load_script("scheduled_kernels")
    assert script.scheduled("alexnet", 1) == script.counted("alexnet", 1) == (16, 8)


def test_a_summary_tells_measured_models_from_others():
    frame = pd.DataFrame({"model": ["a", "b", "c"], "scheduled": [100, 100, 50], "predicted": [100, 104, 40]})
    lines = load_script("scheduled_kernels").summary(frame, {"a", "b"}).splitlines()
    assert lines[2] == "| measured ones | 2 | 50 % | 100 % | 100 % | 2.0 % |"
    assert lines[3] == "| others | 1 | 0 % | 0 % | 0 % | 20.0 % |"


def test_the_page_tells_what_was_counted():
    script = load_script("scheduled_kernels")
    measured, _ = read_measured(load_profile("nvidia-h200").path / "models.jsonl")
    expected = script.summary(pd.read_csv(ROWS), {case.model for case in measured})
    _, _, rest = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").partition(script.BEGIN)
    assert rest.partition(script.END)[0].strip() == expected
