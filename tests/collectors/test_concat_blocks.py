"""Blocks of random widths whose branches are concatenated: their results, and the kernels in them."""

from __future__ import annotations

import re
from itertools import islice

import torch
from torch import nn

from collectors.workloads import concat_blocks
from collectors.workloads.from_models import harvest
from costmodel.capture.trace import capture


def test_a_dense_block_ends_with_half_of_all_channels_at_half_the_size():
    block = concat_blocks.DenseBlock(12, growth=4, layers=3, bottleneck=2, act=nn.ReLU).eval()
    assert block(torch.randn(2, 12, 7, 7)).shape == (2, (12 + 3 * 4) // 2, 4, 4)


def test_branches_and_split_stages_keep_the_size():
    x = torch.randn(2, 16, 5, 5)
    assert concat_blocks.Branches(16, [[8], [4, 12]], nn.SiLU).eval()(x).shape == (2, 8 + 12, 5, 5)
    assert concat_blocks.SplitStage(16, inner=8, links=2, act=nn.GELU).eval()(x).shape == x.shape


def test_a_dense_block_concatenates_two_then_three_then_four_tensors():
    with torch.device("meta"):
        block = concat_blocks.DenseBlock(16, growth=8, layers=3, bottleneck=0, act=nn.ReLU).eval()
        graph = capture(block, (torch.empty(1, 16, 8, 8),), "block")
    eager = [case.graph for case in harvest(graph, "joins") if case.runner == "aten"]
    joined = [len(re.findall(r"%a\d+", re.search(r"tensors=\[(.*?)\]", text)[1])) for text in eager if "cat(" in text]
    assert joined == [1, 2, 3, 4]


def test_the_sample_is_repeatable_and_holds_copies_of_one_tensor_into_several_concatenations():
    first = list(concat_blocks.sample(6, seed=3))
    assert [case.key for case in first] == [case.key for case in concat_blocks.sample(6, seed=3)]
    assert {case.key for case in first} != {case.key for case in concat_blocks.sample(6, seed=4)}
    compiled = [case.graph for case in first if case.runner == "inductor"]
    assert any(text.count("clone(self=%a0)") >= 2 for text in compiled)
    assert all(case.source == "joins" for case in islice(first, 10))


def test_a_sample_of_one_precision():
    kernels = [case.graph for case in concat_blocks.sample(3, seed=5, dtype=torch.float16)]
    convolved = [text for text in kernels if "= convolution(" in text]
    assert convolved
    assert all("input %a0: float16[" in text for text in convolved)
