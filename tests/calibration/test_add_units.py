"""Units added to a trained model: recalled at once, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.calibration.add_units import remembering
from costmodel.training.kernel_models import TrainingSettings, fit_group
from costmodel.training.tables import Table

FAST = TrainingSettings(hidden=(4,), epochs=3, trees=3)


def table(rows: int, seed: int) -> Table:
    """Kernels of random sizes that take twice their bound."""
    raw = np.random.default_rng(seed).uniform(1, 20, (rows, 2)).astype(np.float32)
    bound = 2.0 ** raw[:, 0].astype(float)
    return Table(("log_bound_us", "rank"), raw, bound, 2 * bound, np.arange(rows))


def test_added_kernels_are_recalled_and_others_are_as_before() -> None:
    model = fit_group(table(80, 0), FAST)
    added = replace(table(5, 1), time_us=table(5, 1).bound_us * 7)
    grown = remembering(model, added)
    x = (added.raw - model.mean) / model.scale
    assert np.exp(grown.recollect(x).log_ratio) == pytest.approx([7.0] * 5, rel=1e-3)
    assert (len(grown.memory), len(grown.places), len(grown.residual)) == (85, 85, 85)
    known = (table(80, 0).raw - model.mean) / model.scale
    assert np.array_equal(grown.expected(known), model.expected(known))
    assert np.exp(grown.recollect(known).log_ratio) == pytest.approx([2.0] * 80, rel=1e-3)
    assert grown.networks is model.networks
