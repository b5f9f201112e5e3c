"""Regimes that were hardly measured: by features of libraries' choices, however near other kernels are."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.predictor.neighbours import in_steps
from costmodel.predictor.predictor import Estimate
from costmodel.predictor.support import ENOUGH, LEAST_ALIKE, UNSUPPORTED_WIDTH, hardly_measured
from costmodel.profiles.profile import Profile

NAMES = ("log_out_channels", "kernel_size", "log_bound_us")


def memory(*rows: tuple[float, float, float], count: int) -> np.ndarray:
    return in_steps(np.array(rows * count, dtype=np.float32))


def test_measured_kernels_must_agree_in_every_feature_of_the_regime() -> None:
    """Features have the scale 2: 0.2 octaves of channels are 0.1, half an element of the side is 0.25."""
    measured = memory((1.0, 1.0, 0.0), count=25_000)
    asked = np.array([(1.0, 1.0, 5.0), (1.09, 1.24, 0.0), (1.2, 1.0, 0.0), (1.0, 1.3, 0.0)], dtype=np.float32)
    scale = np.full(3, 2.0, dtype=np.float32)
    assert hardly_measured("conv", NAMES, scale, asked, measured).tolist() == [False, False, True, True]
    assert not hardly_measured("triton", NAMES, scale, asked, measured).any()


@pytest.mark.parametrize(("alike", "lonely"), [(LEAST_ALIKE - 1, True), (LEAST_ALIKE, False)])
def test_so_many_are_needed(alike: int, lonely: bool) -> None:
    others = memory((4.0, 1.0, 0.0), count=30_000)
    measured = np.concatenate([others, memory((1.0, 1.0, 0.0), count=alike)])
    asked, scale = np.array([(1.0, 1.0, 0.0)], dtype=np.float32), np.ones(3, dtype=np.float32)
    assert hardly_measured("conv", NAMES, scale, asked, measured).tolist() == [lonely]


@pytest.mark.parametrize(("count", "lonely"), [(ENOUGH - 1, False), (ENOUGH, True)])
def test_from_few_measured_kernels_nothing_follows(count: int, lonely: bool) -> None:
    measured, scale = memory((1.0, 1.0, 0.0), count=count), np.ones(3, dtype=np.float32)
    asked = np.array([(1.0, 1.0, 0.0), (3.0, 1.0, 0.0)], dtype=np.float32)
    assert hardly_measured("conv", NAMES, scale, asked, measured).tolist() == [False, lonely]


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
    assert math.log(found.high_us / found.us) >= UNSUPPORTED_WIDTH - 1e-6
    assert found.us / found.low_us < found.high_us / found.us


@pytest.mark.parametrize(("outputs", "side"), [(64, 3), (128, 1), (32, 3), (16, 1)])
def test_common_convolutions_are_no_regime_of_their_own(
    convolve: Callable[[int, int], Estimate], outputs: int, side: int
) -> None:
    found = convolve(outputs, side)
    assert found.in_range
    assert found.high_us / found.us == pytest.approx(found.us / found.low_us)
