"""Validation on the CPU."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import costmodel
from costmodel.errors import RequestError
from costmodel.measurement.validation import Run, bootstrap
from costmodel.measurement.validation_report import ModeResult, Validation, render_validation
from tests.execution.test_planned_module import plan_for


class Slow(nn.Module):
    """Matmul that is large enough to time."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        return torch.relu(self.b(torch.relu(self.a(x))))


def mode(predicted: float | None, measured: float | None, speedup: float | None = None) -> ModeResult:
    return ModeResult(predicted, measured, speedup=speedup)


RESULT = Validation(
    "m",
    "nvidia-h200",
    "cpu",
    (1, 3, 8, 8),
    "float32",
    {
        "eager": mode(4.0, 5.0),
        "default": mode(2.0, 2.0, 2.5),
        "max-autotune": mode(None, 1.0, 5.0),
        "broken": mode(1.0, None),
    },
)


def test_errors_by_hand():
    assert RESULT.modes["eager"].error == pytest.approx(-0.2)
    assert RESULT.modes["broken"].error is None
    assert RESULT.worst_error == pytest.approx(0.2)  # predicted 4 / 2 = 2, measured 2.5: a fifth too low
    assert replace(RESULT, modes={"eager": mode(None, 1.0)}).worst_error == 0.0


def test_a_speedup_is_the_median_of_ratios_round_by_round():
    eager, run = Run(None), Run(None)
    eager.rounds_us, run.rounds_us = [30.0, 40.0, 30.0], [20.0, 20.0, 24.0]  # 1.5, 2 and 1.25
    found = run.result(0.04, eager)
    assert (found.predicted_ms, found.measured_ms, found.speedup) == (0.04, 0.02, 1.5)
    assert 0.02 <= found.low_ms <= found.high_ms <= 0.024
    assert 1.25 <= found.speedup_low <= found.speedup_high <= 2.0
    alone = eager.result(0.05, eager)
    assert (alone.measured_ms, alone.speedup, alone.speedup_low, alone.compile_s) == (0.03, None, None, None)
    assert Run(None, "it failed").result(1.0, eager) == ModeResult(1.0, None, note="it failed")


def test_json_holds_finite_numbers_only():
    """A mode whose outputs are not numbers differs infinitely."""
    wrong = replace(RESULT.modes["default"], output_error=math.inf)
    record = json.loads(render_validation(replace(RESULT, modes={**RESULT.modes, "default": wrong}), "json"))
    assert record["modes"]["default"]["output_error"] is None
    assert record["modes"]["eager"]["measured_ms"] == 5.0


def test_plan_and_eager_are_measured_in_turn():
    net, x = Slow().eval(), torch.randn(1, 3, 24, 24)
    result = costmodel.validate(
        net, (x,), plan=plan_for(net, (x,)), hardware="nvidia-h200", modes=(), seconds=0.001, model_name="slow"
    )
    assert list(result.modes) == ["eager", "plan"]
    plan = result.modes["plan"]
    assert plan.speedup_low <= plan.speedup <= plan.speedup_high
    assert plan.low_ms <= plan.measured_ms <= plan.high_ms
    assert plan.output_error < 1e-4
    assert plan.predicted_ms == 1.0
    assert (plan.peak_bytes, result.device, result.replaced) == (None, "cpu", ())
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_plan_fits_a_module_that_keeps_what_its_first_call_computes():
    class Lazy(Slow):
        table: torch.Tensor | None = None

        def forward(self, x):
            if self.table is None:
                self.table = torch.arange(22.0) / 22
            return super().forward(x) + self.table

    net, x = Lazy().eval(), torch.randn(1, 3, 24, 24)
    plans = {"plan": plan_for(net, (x,)), "other": plan_for(net, (x,))}
    assert net.table is None  # planned before its first call, as a command does
    result = costmodel.validate(
        net, (x,), plan=plans["plan"], others={"other": plans["other"]}, hardware="nvidia-h200", modes=(), seconds=0.001
    )
    assert [result.modes[name].note for name in plans] == ["", ""]
    assert all(result.modes[name].output_error < 1e-5 for name in plans)


def test_a_way_that_fails_is_noted_and_the_others_go_on():
    net, x = Slow().eval(), torch.randn(1, 3, 24, 24)
    wrong = replace(plan_for(net, (x,)), graph="another")
    result = costmodel.validate(net, (x,), plan=wrong, hardware="nvidia-h200", modes=(), seconds=0.001)
    assert result.modes["plan"].measured_ms is None
    assert "make a plan for this model" in result.modes["plan"].note
    assert result.modes["eager"].measured_ms > 0


def test_unknown_modes_are_refused():
    net, x = Slow().eval(), torch.randn(1, 3, 24, 24)
    with pytest.raises(RequestError, match=r"modes must be a sequence of some of default, .*; 'fast' is not one"):
        costmodel.validate(net, (x,), hardware="nvidia-h200", modes=("fast",))


def test_the_bootstrap_repeats_and_narrows():
    assert bootstrap([2.0] * 7) == (2.0, 2.0)
    samples = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98]
    low, high = bootstrap(samples)
    assert bootstrap(samples) == (low, high)
    assert 0.9 <= low < 1.0 < high <= 1.1


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_every_format_shows_every_mode(form):
    text = render_validation(RESULT, form)
    assert all(name in text for name in RESULT.modes)
    assert ("20.0%" in text) == (form in ("table", "md", "html"))
