"""Regimes that were hardly measured: by features of libraries' choices, however near other kernels are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.support import ENOUGH, LEAST_ALIKE, REGIME, UNSUPPORTED_FACTOR, hardly_measured, regimes_of
from costmodel.profiles.profile import Profile

NAMES = ("log_bound_us", *REGIME)
CHANNELS, SIDE = NAMES.index("log_out_channels"), NAMES.index("kernel_size")


def kernel(channels: float, side: float, bound: float = 0.0) -> list[float]:
    """Scaled features of a kernel, zero but for these."""
    found = [0.0] * len(NAMES)
    found[0], found[CHANNELS], found[SIDE] = bound, channels, side
    return found


def lonely(asked: list[list[float]], measured: list[list[float]], scale: float = 1.0) -> list[bool]:
    regimes = regimes_of(NAMES, np.array(measured, dtype=np.float32))
    x = np.array(asked, dtype=np.float32)
    return hardly_measured(NAMES, np.full(len(NAMES), scale, dtype=np.float32), x, *regimes).tolist()


def test_measured_kernels_must_agree_in_every_feature_of_the_regime() -> None:
    """Features have the scale 2: 0.2 octaves of channels are 0.1, half an element of the side is 0.25."""
    asked = [kernel(1.0, 1.0, 5.0), kernel(1.09, 1.24), kernel(1.2, 1.0), kernel(1.0, 1.3)]
    assert lonely(asked, [kernel(1.0, 1.0)] * 25_000, scale=2.0) == [False, False, True, True]


def test_a_group_without_these_features_has_no_regimes() -> None:
    regimes, counts = regimes_of(("log_bound_us", "kernel_size"), np.zeros((ENOUGH, 2), dtype=np.float32))
    assert len(regimes) == len(counts) == 0
    x = np.ones((3, 2), dtype=np.float32)
    assert not hardly_measured(("log_bound_us", "kernel_size"), x[0], x, regimes, counts).any()


def test_regimes_are_counted() -> None:
    measured = [kernel(1.0, 1.0, bound) for bound in range(15_000)] + [kernel(2.0, 1.0)] * 5_000
    regimes, counts = regimes_of(NAMES, np.array(measured, dtype=np.float32))
    assert counts.tolist() == [15_000, 5_000]
    assert regimes.shape == (2, len(REGIME))


@pytest.mark.parametrize(("alike", "is_lonely"), [(LEAST_ALIKE - 1, True), (LEAST_ALIKE, False)])
def test_so_many_are_needed(alike: int, is_lonely: bool) -> None:
    measured = [kernel(4.0, 1.0)] * 30_000 + [kernel(1.0, 1.0)] * alike
    assert lonely([kernel(1.0, 1.0)], measured) == [is_lonely]


@pytest.mark.parametrize(("count", "is_lonely"), [(ENOUGH - 1, False), (ENOUGH, True)])
def test_from_few_measured_kernels_nothing_follows(count: int, is_lonely: bool) -> None:
    assert lonely([kernel(1.0, 1.0), kernel(3.0, 1.0)], [kernel(1.0, 1.0)] * count) == [False, is_lonely]


@pytest.fixture
def convolve(h200: Profile) -> Callable[[int, int], Estimate]:
    def estimate(outputs: int, side: int) -> Estimate:
        layer = nn.Conv2d(64, outputs, side, padding=side // 2).eval()
        kernels = eager_kernels(capture(layer, (torch.empty(2, 64, 90, 110, device="meta"),)))
        return h200.predictor.predict(kernels, [0.9])[0]

    return estimate


@pytest.mark.parametrize(("outputs", "side"), [(1, 3), (2, 3), (3, 3), (1, 9), (3, 9)])
def test_few_channels_by_large_kernels_were_hardly_measured(
    convolve: Callable[[int, int], Estimate], outputs: int, side: int
) -> None:
    """Upwards the interval is wide: such convolutions took up to nine times as long as predicted."""
    found = convolve(outputs, side)
    assert not found.in_range
    assert found.high_us / found.us >= UNSUPPORTED_FACTOR - 1e-6
    assert found.us / found.low_us < found.high_us / found.us


@pytest.mark.parametrize(("outputs", "side"), [(64, 3), (128, 1), (32, 3), (16, 1)])
def test_common_convolutions_are_no_regime_of_their_own(
    convolve: Callable[[int, int], Estimate], outputs: int, side: int
) -> None:
    found = convolve(outputs, side)
    assert found.in_range
    assert found.high_us / found.us == pytest.approx(found.us / found.low_us)
