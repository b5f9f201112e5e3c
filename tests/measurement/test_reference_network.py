"""Reference network of the host probe: its operators, and the state that it leaves unchanged."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from costmodel.measurement import timers
from costmodel.measurement.reference_network import LAUNCHES, ReferenceNetwork, reference_pass
from costmodel.measurement.timers import PASSES, host_probe


class Count(TorchDispatchMode):
    """Counts calls of operators."""

    calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_a_pass_calls_as_many_operators_as_its_constant_was_found_for():
    network, image = ReferenceNetwork().eval(), torch.ones(1, 3, 32, 32)
    with torch.no_grad(), Count() as counted:
        out = network(image)
    assert counted.calls == pytest.approx(339, abs=20)  # releases of torch differ by a few views
    assert out.shape == (1, 10)


def test_the_callers_random_numbers_and_types_stay_as_they_were():
    reference_pass.cache_clear()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    try:
        out = reference_pass("cpu")()
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.rand(3), expected)
    assert out.dtype == torch.float32
    assert not out.requires_grad
    assert out.isfinite().all()


def test_the_probe_is_the_median_of_the_last_passes_over_the_launches_of_one(monkeypatch: pytest.MonkeyPatch):
    now = [0]
    took = iter([9_000_000, *range(1_000_000, 1_000_000 + PASSES * 100_000, 100_000), 10**12])

    def one_pass() -> None:
        now[0] += next(took)

    monkeypatch.setattr(timers, "reference_pass", lambda _: one_pass)
    monkeypatch.setattr(timers.time, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(timers.time, "perf_counter", lambda: now[0] / 1e9)
    probe = host_probe("cpu", seconds=0.0235)  # the first pass is forgotten: 9 ms, and 14.5 of ten others
    assert probe == pytest.approx(1450.0 / LAUNCHES, rel=1e-4)
