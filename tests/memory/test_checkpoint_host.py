"""Host time of eager checkpointing, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.memory.analysis import POLICY_LAUNCHES, checkpointing_host_us
from costmodel.memory.checkpoint_regions import choose_modules
from costmodel.memory.saved_tensors import saved_tensors
from costmodel.memory.state import state_of


def test_all_operators_of_the_chosen_modules_count() -> None:
    """Each stage is a convolution, whose result is kept, and three activations."""
    stages = (
        nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.Sigmoid(), nn.Tanh(), nn.Sigmoid(), nn.Tanh())
        for _ in range(4)
    )
    module, x = nn.Sequential(*stages), torch.empty(4, 8, 16, 16, device="meta")
    graph = capture(module, (x,), training=True)
    found = choose_modules(graph, saved_tensors(graph, state_of(module, (x,)).trainable), lambda _: 1.0)
    assert 1 <= len(found.modules) <= 4
    assert found.operators == 5 * len(found.modules)


@pytest.mark.parametrize(("probe_us", "added_us"), [(5.0, 10 * 5.0 * POLICY_LAUNCHES), (None, 0.0)])
def test_a_launch_is_the_unit(probe_us: float | None, added_us: float) -> None:
    profile: Any = SimpleNamespace(summary=SimpleNamespace(host=SimpleNamespace(probe_us=probe_us)))
    assert checkpointing_host_us(10, profile) == added_us
