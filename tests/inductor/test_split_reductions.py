"""Reductions in levels, against numbers derived by hand from Inductor's rules for 132 multiprocessors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.inductor.split_reductions import (
    _nearest_divisor,
    _per_thread,
    levels,
    split_factor,
    split_reduction,
)


class Sum(nn.Module):
    """Sums everything."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


class Tokens(nn.Module):
    """Pixels as tokens, a class token before them, normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(384)
        self.first = nn.Parameter(torch.zeros(1, 1, 384))
        self.position = nn.Parameter(torch.zeros(1, 197, 384))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        return self.norm(torch.cat([self.first.expand(len(x), -1, -1), tokens], dim=1) + self.position)


class Halves(nn.Module):
    """Sums over what two tensors are joined to."""

    def __init__(self, along: int) -> None:
        super().__init__()
        self.along = along

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y], dim=self.along).sum(-1)


def launches_of(module: nn.Module, *shapes: tuple[int, ...]) -> list[int]:
    graph = capture(module.eval(), tuple(torch.empty(shape, device="meta") for shape in shapes))
    return [kernel.launches for kernel in compiled_kernels(graph) if kernel.backend == "triton"]


@pytest.mark.parametrize(
    ("outer", "inner", "contiguous", "parts"),
    [
        (264, 10**6, True, 1),  # 2 x 132 multiprocessors have work
        (263, 8193, True, 2),  # blocks of 256 threads, 32 elements each
        (263, 8192, True, 1),
        (1, 8193, False, 2),  # one result: how it is read does not matter
        (64, 32, False, 1),
        (8448, 1000, False, 1),  # 64 results for each of 132 multiprocessors
        (512, 49, False, 1),  # ceil(49 / 128)
        (64, 3136, False, 25),  # ceil(3136 / 128)
        (64, 10**6, True, 9),  # 528 blocks, 9 a result; 435 elements a thread, of which no divisor is near
        (1, 2**28, True, 2048),  # 512 elements a thread
        (1024, 2**14, False, 128),  # 1056 blocks, 132 for each of 8 columns: 4 x 32 elements a thread
    ],
)
def test_split_factor(outer: int, inner: int, contiguous: bool, parts: int) -> None:
    assert split_factor(outer, inner, contiguous, multiprocessors=132) == parts


@pytest.mark.parametrize(
    ("outer", "inner", "contiguous", "expected"),
    [
        (1, 8192, True, 1),
        (1, 200704, True, 2),  # 25 parts of 8,029
        (1, 200704, False, 3),  # 25 parts, each of 63 parts, of 128
        (197, 384, False, 2),  # 3 parts of 128
        (197, 384, True, 1),
    ],
)
def test_levels(outer: int, inner: int, contiguous: bool, expected: int) -> None:
    assert levels(outer, inner, contiguous, contiguous, multiprocessors=132) == expected


def test_channels_and_pixels_are_summed_in_rows_first_and_then_in_columns() -> None:
    """32 results of 12,544 elements: 2 parts each; 64 parts of 6,272: 49 each; 128 elements need no more."""
    assert levels(32, 12544, contiguous=True, in_runs=False, multiprocessors=132) == 3
    assert levels(32, 12544, contiguous=True, in_runs=True, multiprocessors=132) == 2


def test_one_long_sum() -> None:
    """All of an image to one number: too few results to fill a GPU, so that parts are summed first."""
    graph = capture(Sum(), (torch.empty(1, 64, 64, 64, device="meta"),))
    assert split_reduction(graph, graph.ops[0], lambda _: None, multiprocessors=132).levels == 2
    assert launches_of(Sum(), (1, 64, 64, 64)) == [2]


def test_many_short_sums() -> None:
    assert launches_of(nn.AdaptiveAvgPool2d(1), (8, 64, 32, 32)) == [1]


def test_a_norm_of_tokens_in_plain_order_is_one_kernel() -> None:
    assert launches_of(nn.LayerNorm(384), (1, 197, 384)) == [1]


def test_a_norm_of_tokens_that_lie_transposed_is_split() -> None:
    """As often as it reads rows, of the positions, it reads columns, of the pixels: 3 parts of 128."""
    assert launches_of(Tokens(), (1, 384, 14, 14)) == [2, 1]


def test_a_group_norm_in_channels_last_order_takes_three_levels() -> None:
    module = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1, bias=False), nn.GroupNorm(1, 64))
    assert launches_of(module, (1, 16, 56, 56))[-2:] == [3, 1]


def test_a_group_norm_of_few_channels_last_is_summed_by_itself() -> None:
    """4 channels of 784 pixels each: in rows, not split, but crosswise to the order in which the result is written."""
    module = nn.Sequential(nn.Conv2d(16, 128, 3, padding=1, bias=False), nn.GroupNorm(32, 128))
    assert launches_of(module, (1, 16, 28, 28))[-2:] == [1, 1]
    assert launches_of(nn.GroupNorm(32, 128), (1, 128, 28, 28)) == [1]


def test_dimensions_are_named_in_any_order() -> None:
    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x - x.mean((-1, -2), keepdim=True)).relu()

    assert launches_of(Mean(), (2, 300, 7, 7)) == [1]


@pytest.mark.parametrize(("along", "expected"), [(0, [1]), (1, [2])])
def test_what_is_joined_along_the_reduction_counts_as_no_row(along: int, expected: list[int]) -> None:
    """64 or 32 results of 512 or 1,024 elements: rows are summed at once, in other orders 4 or 8 parts."""
    assert launches_of(Halves(along), (32, 512), (32, 512)) == expected


def test_a_device_of_fewer_multiprocessors_is_filled_by_fewer_parts() -> None:
    """2 x 66 multiprocessors have work with 132 results; 64 results need ceil(264 / 64) = 5 parts each, not 9."""
    assert split_factor(132, 10**6, contiguous=True, multiprocessors=66) == 1
    assert split_factor(132, 10**6, contiguous=True, multiprocessors=132) > 1
    graph = capture(nn.AdaptiveAvgPool2d(1), (torch.empty(1, 64, 224, 224, device="meta"),))
    launches = {count: [k.launches for k in compiled_kernels(graph, multiprocessors=count)] for count in (1, 132)}
    assert launches == {1: [1], 132: [2]}


@pytest.mark.parametrize(
    ("number", "wanted", "nearest"),
    [(12, 4, 4), (12, 100, 12), (7, 3, 1), (7, 5, 7), (1, 9, 1), (36, 7, 6), (100, 512, 100)],
)
def test_the_nearest_divisor_by_hand(number: int, wanted: int, nearest: int) -> None:
    assert _nearest_divisor(number, wanted) == nearest


@pytest.mark.parametrize(
    ("outer", "inner", "threads", "elements"),
    [
        (2, 1600, 100, 32),  # 32 elements for each thread and no more
        (1, 2**20, 2048, 512),  # 512 for each and more
        (1, 470 * 7919, 100, 470),  # a divisor less than 50 away from 512
        (1, 7919 * 461, 100, 512),  # 461 is 51 away
    ],
)
def test_elements_of_a_thread(outer: int, inner: int, threads: int, elements: int) -> None:
    assert _per_thread(outer, inner, width=1, threads=threads, splits=1, near=30) == elements


@pytest.mark.parametrize(("inner", "near", "elements"), [(100, 1, 100), (101, 2, 101), (96, 30, 96), (10007, 30, 501)])
def test_elements_of_a_thread_fill_the_device(inner: int, near: int, elements: int) -> None:
    """Between 32 and 512 elements: as many as the splits leave, or a divisor that is near."""
    splits = 1 if inner < 1000 else 20
    assert _per_thread(1, inner, width=1, threads=max(1, inner // 100), splits=splits, near=near) == elements
