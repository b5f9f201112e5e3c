"""Times transferred between devices: ratios of known bandwidths and of launches come back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from costmodel.errors import DatasetError
from costmodel.training.transfer import RATIO, transferred

FLOOR_US = 2.0


def rows(sizes: np.ndarray, bytes_per_us: float) -> pd.DataFrame:
    """Additions of some sizes on a device of that bandwidth and a launch of 2 us."""
    graphs = [
        f"graph _ {{\n  input %a0: float32[{size}]\n  %0 = relu(self=%a0) : float32[{size}]\n  return %0\n}}"
        for size in sizes
    ]
    times = FLOOR_US + 8 * sizes / bytes_per_us
    return pd.DataFrame(
        {
            "key": [str(size) for size in sizes],
            "graph": graphs,
            "runner": "aten",
            "way": "",
            "device_us_p50": times,
            "device_us_p90": 1.1 * times,
            "host_us_p50": 5.0,
        }
    )


def test_what_moves_memory_follows_the_bandwidths_and_what_is_short_does_not() -> None:
    sizes = np.unique(np.geomspace(100, 4e8, 400).astype(int))
    asked = rows(np.array([1000, 300_000_001]), 2e6)
    made = transferred(asked, rows(sizes, 2e6), rows(sizes, 4e6))
    short, long = made["device_us_p50"] / asked["device_us_p50"]
    assert short == pytest.approx(1.0, abs=0.01)
    assert long == pytest.approx(0.5, abs=0.01)
    assert list(made["device_us_p90"] / made["device_us_p50"]) == pytest.approx([1.1, 1.1])
    assert list(made["host_us_p50"]) == [5.0, 5.0]
    assert set(made["way"]) == {RATIO}


def test_two_devices_alike_change_nothing() -> None:
    both = rows(np.arange(1000, 1200), 1e6)
    made = transferred(both, both, both)
    assert list(made["device_us_p50"]) == pytest.approx(list(both["device_us_p50"]))


def test_too_few_kernels_in_common_are_refused() -> None:
    with pytest.raises(DatasetError, match="have 3 kernels in common; at least 100"):
        transferred(rows(np.arange(5, 9), 1e6), rows(np.arange(5, 9), 1e6), rows(np.arange(6, 9), 1e6))
