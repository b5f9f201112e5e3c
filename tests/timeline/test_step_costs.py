"""Host costs of a training step: fit of known costs, and sums of segments by hand."""

from __future__ import annotations

import random

import pytest

from costmodel.timeline.step_costs import FIRST_COSTS, STEP_COSTS, StepRow, at_host, fit_step_costs
from costmodel.timeline.training_queue import Segment, counts_of, spread, timing_of


def test_the_fit_predicts_steps_of_other_costs():
    rng = random.Random(1)
    true = {name: us * rng.uniform(0.5, 2.0) for name, us in FIRST_COSTS.items()}

    def row() -> StepRow:
        counts = {name: rng.uniform(0, 1000) for name in true}
        return StepRow(counts, sum(counts[name] * true[name] for name in true))

    found = fit_step_costs([row() for _ in range(400)])
    for other in (row() for _ in range(20)):
        predicted = sum(amount * found[name] for name, amount in other.counts.items())
        assert predicted == pytest.approx(other.measured_us, rel=0.05)


def test_costs_that_no_step_has_keep_their_defaults():
    rows = [StepRow({"node": 100.0 + place}, 7.0 * (100.0 + place)) for place in range(50)]
    found = fit_step_costs(rows)
    assert found["node"] == pytest.approx(7.0, rel=0.02)
    assert found["counted_step"] == pytest.approx(FIRST_COSTS["counted_step"])


def test_no_cost_is_negative():
    rows = [StepRow({"node": 100.0 + place, "record": 100.0}, 1000.0 - 5.0 * place) for place in range(50)]
    assert min(fit_step_costs(rows).values()) >= 0.0


def test_further_costs_are_spread_over_the_calls():
    made = spread("eager", [10.0, 20.0], [5.0, 5.0], {"node": 4.0}, {"eager": 1.5, "node": 3.0})
    assert list(made.host_us) == [21.0, 36.0]  # 1.5 times as long, and 12 us more on two calls
    assert counts_of([made, Segment((1.0,), (0.0,), {"node": 1.0})]) == {"eager": 30.0, "node": 5.0}


def test_counts_explain_the_host_time():
    made = spread("eager", [10.0, 20.0], [5.0, 5.0], {"node": 4.0}, STEP_COSTS)
    assert sum(made.host_us) == pytest.approx(sum(amount * STEP_COSTS[name] for name, amount in made.counts.items()))


def test_the_device_runs_behind_the_host():
    segments = [Segment((10.0, 10.0), (0.0, 100.0)), Segment((10.0,), (50.0,))]
    timing = timing_of(segments, {"gap": 0.0})
    assert timing.host_us == 30.0
    assert timing.device_us == 150.0
    assert timing.latency_us == pytest.approx(20.0 + 100.0 + 50.0)  # the second call launches the first kernel


def test_a_slower_host_takes_longer_for_what_no_cost_of_inference_explains():
    found = at_host({"eager": 1.4, "node": 2.0}, 0.5)
    assert found == {"eager": 1.4, "node": 4.0}


def test_every_cost_has_a_first_guess():
    assert set(STEP_COSTS) == set(FIRST_COSTS)
