"""Cases of operators that few models call: complete, executable, with values that such operators really get."""

from __future__ import annotations

import pytest
import torch

from collectors.processes.argument_values import chosen_values
from collectors.processes.run_graph import arguments_of
from collectors.workloads import vision_blocks, vision_operators, vision_reads
from collectors.workloads.cases import UnitCase
from costmodel.execution.fx_module import build_module
from costmodel.features import group_of
from costmodel.ir import parse
from costmodel.training.dataset import kernel_of


@pytest.fixture(scope="module")
def smallest() -> list[UnitCase]:
    """The cases of the first block of each source, in float32 for one image."""
    blocks = {block.source: block for block in (*vision_reads.blocks(), *vision_blocks.blocks())}
    return [case for one in blocks.values() for case in vision_operators.cases_of(one, torch.float32, 1, "cuda")]


def test_every_kind_of_operator_is_measured_both_ways(smallest: list[UnitCase]) -> None:
    names = {(op.base, case.runner) for case in smallest for op in parse(case.graph).ops}
    eager = {name for name, runner in names if runner == "aten"}
    assert {
        *("_fft_r2c", "_fft_c2c", "_fft_c2r", "complex", "grid_sampler_2d", "grid_sampler_3d", "affine_grid_generator"),
        *("upsample_bicubic2d", "upsample_trilinear3d", "_upsample_bilinear2d_aa", "torchvision_deform_conv2d"),
        *("torchvision_nms", "torchvision_roi_align", "_weight_norm_interface", "native_group_norm", "convolution"),
        *("sort", "topk", "cumsum", "gather", "scatter", "scatter_add", "index_put", "max_pool3d_with_indices"),
    } <= eager
    fused = {name for name, runner in names if runner == "inductor"}
    assert {"grid_sampler_2d", "affine_grid_generator", "gather", "scatter_add", "cumsum", "sort"} <= fused
    assert fused.isdisjoint({"_fft_r2c", "topk", "grid_sampler_3d", "torchvision_deform_conv2d"})


def test_the_groups_of_rare_operators_get_most_of_the_cases(smallest: list[UnitCase]) -> None:
    groups = [group_of(kernel_of(case.graph, case.runner)) for case in smallest]
    assert {"rare_conv", "rare_aten", "rare_triton"} <= set(groups)
    assert sum(group.startswith("rare_") for group in groups) > 0.8 * len(groups)


def test_indices_point_into_the_tensor_and_each_place_is_written_once() -> None:
    graph = parse(
        """graph _ {
          input %a0: float32[2,50,3]
          input %a1: int64[2,20,3]
          input %a2: float32[2,20,3]
          %0 = scatter.src(self=%a0, dim=1, index=%a1, src=%a2) : float32[2,50,3]
          return %0
        }"""
    )
    index = chosen_values(graph, "cpu")["a1"]
    assert index.shape == (2, 20, 3)
    assert index.min() >= 0
    assert index.max() < 50
    assert all(len(set(row[:, column].tolist())) == 20 for row in index for column in range(3))


def test_indices_are_found_through_views() -> None:
    graph = parse(
        """graph _ {
          input %a0: float32[1,900,4]
          input %a1: int64[1,300]
          %0 = unsqueeze(self=%a1, dim=2) : int64[1,300,1]
          %1 = expand(self=%0, size=[1, 300, 4]) : int64[1,300,4] strided
          %2 = gather(self=%a0, dim=1, index=%1) : float32[1,300,4]
          return %2
        }"""
    )
    index = chosen_values(graph, "cpu")["a1"]
    assert len(set(index.flatten().tolist())) == 300
    assert index.max() < 900


@pytest.mark.parametrize("dims", [2, 3])
def test_a_grid_without_displacement_shows_the_image(dims: int) -> None:
    shape, kind = ",".join(["8"] * dims), "2d" if dims == 2 else "3d"
    graph = parse(
        f"""graph _ {{
          input %a0: float32[1,1,{shape}]
          input %a1: float32[1,{shape},{dims}]
          %0 = grid_sampler_{kind}(input=%a0, grid=%a1, interpolation_mode=0, padding_mode=1, align_corners=True) \
: float32[1,1,{shape}]
          return %0
        }}"""
    )
    ramp = torch.arange(8.0).expand(1, 1, *[8] * dims)  # its value is the last coordinate
    (sampled,) = build_module(graph)(ramp, arguments_of(graph, "cpu")[1])
    assert (sampled - ramp).abs().max() < 0.5  # displaced by 5 % of half the side at most
