"""Compiled training steps whose gradients take unusual ways."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.training_step import capture_training_step
from costmodel.inductor.training import compile_step


class Predicts(nn.Module):
    """Weights of a convolution made by another layer, as of a template in tracking."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Linear(4, 8 * 3 * 3 * 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.weights(x.mean((2, 3))[:1].repeat(1, 2)[:, :4])
        return nn.functional.conv2d(x, weights.view(8, 3, 3, 3)).mean((2, 3))


class Samples(nn.Module):
    """Places at which an image is read, from parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(2 * 6 * 6 * 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.grid_sample(x, self.places.view(2, 6, 6, 2), align_corners=False).mean((2, 3))


@pytest.mark.parametrize("kind", [Predicts, Samples])
def test_a_view_of_a_second_gradient_has_the_strides_of_that_gradient(kind: type[nn.Module]):
    """The first gradient, by the input, is not computed: the second one has another number of dimensions."""
    compiled = capture_training_step(kind(), (torch.empty(2, 3, 12, 12),)).compiled
    assert compiled is not None
    _, backward = compile_step(compiled.forward, compiled.backward, compiled.saved)
    viewed = [op for op in backward.graph.ops if op.base in ("reshape", "view") and op.refs()[0].index == 1]
    assert [op.type.layout for op in viewed] == ["nchw"] * len(viewed)
    assert viewed
