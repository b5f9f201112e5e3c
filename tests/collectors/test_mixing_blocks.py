"""Blocks of random widths: their results, and the fused kernels in them."""

from __future__ import annotations

import torch
from torch import nn

from collectors.workloads import block_parts, mixing_blocks
from costmodel.ir import parse


def test_tokens_and_maps_keep_their_shape():
    x, tokens = torch.randn(2, 8, 6, 6), torch.randn(2, 36, 8)
    for module in (
        block_parts.Pooled(),
        block_parts.ChannelsLast(nn.LayerNorm(8)),
        block_parts.Gate(8, 4, nn.ReLU, nn.Sigmoid),
    ):
        assert module.eval()(x).shape == x.shape
    for module in (block_parts.Attention(8, 2, has_bias=True), block_parts.Transposed(nn.Linear(36, 36))):
        assert module(tokens).shape == tokens.shape
    assert block_parts.Merge(8)(x.permute(0, 2, 3, 1)).shape == (2, 3, 3, 16)


def test_channels_are_interleaved():
    block = block_parts.Shuffle(4, nn.Identity).eval()
    block.branch = nn.Identity()
    x = torch.arange(4.0).view(1, 4, 1, 1)
    assert block(x).flatten().tolist() == [0, 2, 1, 3]


def test_a_shifted_window_attends_to_what_is_in_it_after_the_shift():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 4, 8)
    for shift in (0, 1):
        block = block_parts.Windows(8, heads=2, window=2, size=4, shift=shift).eval()
        changed = x.clone()
        changed[0, 1, 1] += 1.0
        moved = (block(changed) - block(x)).abs().amax(-1)[0] > 1e-6
        rows = {tuple(place) for place in moved.nonzero().tolist()}
        near = (1, 2) if shift else (0, 1)
        assert rows == {(row, column) for row in near for column in near}


def test_a_scale_is_applied_along_its_axis():
    block = block_parts.Scaled(nn.Identity(), 3, 1, has_scale=True)
    assert block.scale is not None
    with torch.no_grad():
        block.scale.copy_(torch.tensor([0.0, 1.0, 2.0]).view(1, 3, 1, 1))
    assert block(torch.ones(1, 3, 1, 1)).flatten().tolist() == [1, 2, 3]


def test_the_sample_is_repeatable_and_of_every_kind():
    first = list(mixing_blocks.sample(40, seed=3))
    assert [case.key for case in first] == [case.key for case in mixing_blocks.sample(40, seed=3)]
    compiled = {case.graph for case in first if case.runner == "inductor"}
    for part in ("var_mean", "roll", "avg_pool2d", "mean.dim", "amax", "gelu", "native_batch_norm"):
        assert any(part in text for text in compiled), part
    assert any("native_group_norm" in case.graph for case in first)
    single = mixing_blocks.sample(2, seed=3, dtype=torch.float32)
    assert {value.type.dtype for case in single for value in parse(case.graph).values} <= {"float32", "int64"}
