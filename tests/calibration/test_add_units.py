"""Units added to a trained model: recalled at once, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.calibration.add_units import _is_trained, remembering
from costmodel.features import Roofline
from costmodel.predictor.network import scaled
from costmodel.predictor.predictor import Predictor
from costmodel.training.kernel_models import TrainingSettings, fit_group
from costmodel.training.tables import Table

FAST = TrainingSettings(hidden=(4,), epochs=3, trees=3)


def table(rows: int, seed: int) -> Table:
    """Kernels of random sizes that take twice their bound."""
    raw = np.random.default_rng(seed).uniform(1, 20, (rows, 2)).astype(np.float32)
    bound = 2.0 ** raw[:, 0].astype(float)
    hashes = np.random.default_rng(seed).integers(-(2**62), 2**62, rows)
    return Table(("log_bound_us", "rank"), raw, bound, 2 * bound, np.arange(rows), hashes=hashes)


def test_added_kernels_are_recalled_and_others_are_as_before() -> None:
    model = fit_group(table(80, 0), FAST)
    added = replace(table(5, 1), time_us=table(5, 1).bound_us * 7)
    grown = remembering(model, added)
    x, known = (scaled(some.raw, model.mean, model.scale) for some in (added, table(80, 0)))
    assert np.exp(grown.log_ratio(x)[0]) == pytest.approx([7.0] * 5, rel=1e-3)
    assert (len(grown.recall.hashes), len(grown.sample), len(grown.residual)) == (85, 85, 85)
    places = np.searchsorted(grown.recall.hashes, added.hashes)
    assert [grown.recall.us_at(place) for place in places] == pytest.approx(added.time_us, rel=2.5e-4)
    assert np.array_equal(grown.expected(known), model.expected(known))
    assert np.exp(grown.log_ratio(known)[0]) == pytest.approx([2.0] * 80, rel=1e-3)
    assert grown.networks is model.networks


@pytest.mark.parametrize(
    ("group", "trained"),
    [("gemm", False), ("gemm_tf32", True), ("rare_aten", True), ("unmeasured", False), ("unruled", False)],
)
def test_rare_groups_and_those_that_the_profile_lacks_are_trained(group: str, trained: bool) -> None:
    predictor = Predictor({"gemm": fit_group(table(80, 0), FAST)}, Roofline(1.0, {}, 1.0), 132)
    assert _is_trained(group, predictor) is trained
