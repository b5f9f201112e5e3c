"""Memory between two passes: sizes derived by hand."""

from __future__ import annotations

import torch
from torch import nn

from costmodel.measurement.peak_memory import saved_activation_bytes

ROWS, WIDTH = 128, 256
TENSOR = 4 * ROWS * WIDTH
"""Bytes of one activation, a multiple of the allocator's rounding."""


def test_tanh_saves_its_result_which_is_the_output():
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())
    assert saved_activation_bytes(module, (torch.randn(ROWS, WIDTH),)) == TENSOR


def test_each_hidden_layer_adds_an_activation():
    layers = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    assert saved_activation_bytes(nn.Sequential(*layers), (torch.randn(ROWS, WIDTH),)) == 3 * TENSOR


def test_without_gradients_only_the_output_stays():
    layers = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    module = nn.Sequential(*layers).requires_grad_(False)
    assert saved_activation_bytes(module, (torch.randn(ROWS, WIDTH),)) == TENSOR
