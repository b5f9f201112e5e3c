"""Which kernels compute in TF32, and that keys and groups of all others stay as they were."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from collectors.workloads.matmuls import batched_graph, linear_graph
from costmodel.capture.trace import capture
from costmodel.features import featurize, group_of
from costmodel.features.roofline import Roofline
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.matmul_precision import in_tf32
from costmodel.training.dataset import kernel_of


class Net(nn.Module):
    """A convolution, a matmul with and without a bias, a batched matmul, attention and a matmul in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear, self.last = nn.Conv2d(3, 8, 1), nn.Linear(8, 8), nn.Linear(8, 8).half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        tokens = self.linear(tokens.contiguous()) @ self.linear.weight
        tokens = tokens @ tokens.transpose(1, 2) @ tokens
        heads = tokens.unsqueeze(1)
        tokens = nn.functional.scaled_dot_product_attention(heads, heads, heads).squeeze(1)
        return self.last(tokens.half())


def test_float32_matmuls_alone() -> None:
    kernels = in_tf32(eager_kernels(capture(Net().eval(), (torch.empty(2, 3, 4, 4, device="meta"),))))
    found = {(kernel.anchor.base, kernel.anchor.type.dtype): kernel.tf32 for kernel in kernels}
    assert {name for name, tf32 in found.items() if tf32} == {(base, "float32") for base in ("addmm", "mm", "bmm")}
    assert {("convolution", "float32"), ("scaled_dot_product_attention", "float32"), ("addmm", "float16")} <= set(found)


@pytest.mark.parametrize("graph", [linear_graph(8, 16, 32, "float32", True), batched_graph(2, 8, 16, 32, "float32")])
def test_keys_and_groups(graph) -> None:
    """A float32 matmul keeps the key of old datasets; in TF32 it has a key, a group and a ceiling of its own."""
    plain = Kernel("aten", graph, ())
    (fast,) = in_tf32([plain])
    assert plain.key == ("aten", str(graph))
    assert fast.key == ("aten_tf32", str(graph))
    assert (group_of(plain), group_of(fast)) == ("gemm", "gemm_tf32")
    roofline = Roofline(1.0, {"matmul.float32": 2.0, "matmul.tf32": 8.0}, 1.0)
    assert (roofline.peak_of(plain), roofline.peak_of(fast)) == (2.0, 8.0)
    assert set(featurize(plain, roofline, 132)) == set(featurize(fast, roofline, 132))


def test_rows_of_a_dataset_say_it_by_their_runner() -> None:
    text = str(linear_graph(8, 16, 32, "float32", True))
    assert [kernel_of(text, runner).tf32 for runner in ("aten", "aten_tf32", "inductor")] == [False, True, False]


def test_a_fused_kernel_and_half_precision_stay() -> None:
    graph = linear_graph(8, 16, 32, "float32", True)
    kernels = (Kernel("triton", graph, ()), Kernel("aten", linear_graph(8, 16, 32, "bfloat16", True), ()))
    assert in_tf32(kernels) == kernels
    assert not any(kernel.tf32 for kernel in in_tf32(kernels))
