"""Figures of the benchmark of speed, by hand."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.support.scripts import load_script


@pytest.fixture
def script() -> ModuleType:
    return load_script("speed")


def test_figures_are_medians_of_ratios_within_a_round(script: ModuleType):
    def one(imported: float, predicted: float, planned: float, kernels: float, peak: float) -> dict[str, object]:
        cost = script.Cost
        return {
            "import": cost(imported, 400.0),
            "predict densenet121": cost(predicted, peak),
            "plan resnet50": cost(planned, 500.0),
            "export": cost(2.0, 0.0),
            "7000 kernels, new": cost(kernels, 0.0),
        }

    # ratios of predict 1.25, 1.5 and 1.0; of plan (10 - 4) / 4, (8 - 2) / 2 and (9 - 4) / 4; of kernels 1, 2 and 3
    rounds = [one(4.0, 5.0, 10.0, 2.0, 480.0), one(2.0, 3.0, 8.0, 4.0, 440.0), one(4.0, 4.0, 9.0, 6.0, 500.0)]
    assert script.figures(rounds) == {
        "runs": 3,
        "import_s": 4.0,
        "import_peak_mib": 400.0,
        "export_resnet50_s": 2.0,
        "predict densenet121": {"cpu_s": 4.0, "unit": "import", "ratio": 1.25, "peak_mib": 480.0, "peak_ratio": 1.2},
        "plan resnet50": {"cpu_s": 6.0, "unit": "import", "ratio": 1.5},
        "7000 kernels, new": {"cpu_s": 4.0, "unit": "export", "ratio": 2.0},
    }


def test_a_process_costs_its_own_time_or_the_number_that_it_prints(script: ModuleType):
    whole = script.run(sys.executable, "-c", "print(12.5)")
    assert 0 < whole.cpu_s < 12.5
    assert whole.peak_mib > 1
    assert script.run(sys.executable, "-c", "print(1, 12.5)", printed=True).cpu_s == 12.5
    with pytest.raises(SystemExit, match="failed: "):
        script.run(sys.executable, "-c", "raise SystemExit(3)")
