"""Random weights that let something through."""

from __future__ import annotations

import torch
from torch import nn

from costmodel.zoo import load_real
from costmodel.zoo.random_weights import replace_tiny_weights


class Shy(nn.Module):
    """A normalised layer with tiny weights, a scale of 1e-6, and a head of zeros, as models are made."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 1e-6))
        nn.init.zeros_(self.head.weight)
        nn.init.normal_(self.conv.weight, std=0.1)

    def forward(self, x):
        return self.head((self.norm(self.conv(x)) * self.scale).relu().mean((2, 3)))


def test_outputs_do_not_vanish_and_statistics_are_the_inputs():
    module, x = Shy().eval(), torch.randn(4, 3, 16, 16)
    kept = module.conv.weight.clone()
    assert torch.equal(module(x), module.head.bias.expand(4, 4))
    replace_tiny_weights(module, (x,))
    assert not module.training
    assert not module.norm.training
    assert module.norm.momentum == 0.1
    assert torch.equal(module.conv.weight, kept)
    assert module.scale.unique().tolist() == [1.0]
    assert module(x).std(0).min() > 0
    made = module.conv(x)
    torch.testing.assert_close(module.norm.running_mean, made.mean((0, 2, 3)))
    torch.testing.assert_close(module.norm.running_var, made.var((0, 2, 3)))


def test_a_single_value_a_channel_has_no_variance():
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12)).eval()
    replace_tiny_weights(module, (torch.randn(1, 3, 2, 2),))
    assert module[1].running_var.tolist() == [1.0] * 12
    assert not module[1].training


def test_models_of_the_zoo_are_lively():
    loaded = load_real("mobilenet_v3_small", torch.device("cpu"), batch_size=2, img_size=64)
    with torch.no_grad():
        assert loaded.module(*loaded.inputs).abs().max() > 1e-3


def test_what_a_users_code_returns_stays_as_it_was_made(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\n"
        "def build():\n"
        "    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))\n"
        "    nn.init.zeros_(net[0].weight)\n"
        "    return net\n"
    )
    loaded = load_real(f"{file}:build", torch.device("cpu"), batch_size=2, img_size=8)
    assert not loaded.module[0].weight.any()
    assert loaded.module[1].running_var.tolist() == [1.0] * 4
