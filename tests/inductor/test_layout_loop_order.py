"""Orders of what Inductor computes elementwise: by hand, and as Inductor itself lays buffers out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.device import ASSUMED_GPU
from costmodel.inductor.compilation import Compilation, Target
from costmodel.inductor.layout_loop_order import choose_loop_orders
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph, parse

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")
Forward = Callable[..., torch.Tensor]


def residual(x: torch.Tensor, _z: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.transpose(1, 2) + (y + y[0, 0])) @ w


def scaled(x: torch.Tensor, _z: torch.Tensor, _y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.transpose(1, 2) * 2.0) @ w


def outvoted(x: torch.Tensor, z: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.transpose(1, 2) + z.transpose(1, 2) + y) @ w


def drawn(x: torch.Tensor, _z: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.transpose(1, 2) + y).relu() @ w


class Model(nn.Module):
    """A function of tensors, as a module."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)


def with_voted_orders(graph: Graph) -> Graph:
    """Apply the pass to a graph."""
    return choose_loop_orders(Compilation(graph, Target(False, ASSUMED_GPU.multiprocessors))).graph


def voted(function: Forward, tensors: tuple[torch.Tensor, ...]) -> Graph:
    return with_voted_orders(capture(Model(function).eval(), tensors, "m"))


@needs_compiler
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@pytest.mark.parametrize(
    ("function", "layout"), [(residual, "nchw"), (scaled, "strided"), (outvoted, "strided"), (drawn, "nchw")]
)
def test_what_a_product_reads_lies_as_inductor_lays_it(function: Forward, layout: str):
    from torch._inductor.utils import run_and_get_code

    tensors = torch.randn(2, 6, 5), torch.randn(2, 6, 5), torch.randn(2, 5, 6), torch.randn(2, 6, 6)
    torch._dynamo.reset()
    _, code = run_and_get_code(torch.compile(function), *tensors)
    first = re.search(r"buf0 = empty_strided_cpu\(\(2, 5, 6\), \((\d+), (\d+), (\d+)\)", code[0])
    assert first is not None
    assert (first.groups() == ("30", "6", "1")) == (layout == "nchw")
    graph = voted(function, tensors)
    (product,) = (op for op in graph.ops if op.base in ("bmm", "matmul"))
    made = {op.name: op for op in graph.ops}
    source = made[product.refs()[0].name]
    while source.base in ("expand", "view", "_unsafe_view", "reshape"):
        source = made[source.refs()[0].name]
    assert source.type.layout == layout


CHAIN = """graph g {
  input %x: float32[1,6,5]
  input %y: float32[1,5,6]
  %0 = transpose.int(self=%x, dim0=1, dim1=2) : float32[1,5,6] strided
  %1 = add.Tensor(self=%0, other=%y) : float32[1,5,6] strided
  %2 = view(self=%1, size=[5, 6]) : float32[5,6] strided
  %3 = transpose.int(self=%1, dim0=1, dim1=2) : float32[1,6,5]
  %4 = mul.Scalar(self=%1, other=2.0) : float32[1,5,6] strided
  return %2, %3, %4
}"""


def test_views_of_what_became_plain_follow_it():
    layouts = {op.name: op.type.layout for op in with_voted_orders(parse(CHAIN)).ops}
    assert layouts == {"0": "strided", "1": "nchw", "2": "nchw", "3": "strided", "4": "nchw"}


PLAIN = """graph g {
  input %x: float32[1,5,6]
  input %y: float32[1,5,6]
  %0 = add.Tensor(self=%x, other=%y) : float32[1,5,6]
  %1 = view(self=%0, size=[5, 6]) : float32[5,6]
  %2 = mul.Scalar(self=%0, other=2.0) : float32[1,5,6]
  return %1, %2
}"""


def test_what_was_plain_stays_as_it_is():
    graph = parse(PLAIN)
    assert with_voted_orders(graph) == graph


PIXELS = """graph g {
  input %x: float32[1,6,2,5] nhwc
  %0 = reshape(self=%x, shape=[1, 6, 10]) : float32[1,6,10]
  %1 = transpose.int(self=%0, dim0=1, dim1=2) : float32[1,10,6] strided
  %2 = relu(self=%1) : float32[1,10,6] strided
  return %2
}"""


def test_pixels_in_channels_last_order_are_plain_as_rows():
    layouts = {op.name: op.type.layout for op in with_voted_orders(parse(PIXELS)).ops}
    assert layouts == {"0": "strided", "1": "nchw", "2": "nchw"}


SEVERAL = """graph g {
  input %x: float32[1,6,5]
  input %y: float32[1,6,5]
  input %z: float32[1,5,6]
  %0 = transpose.int(self=%x, dim0=1, dim1=2) : float32[1,5,6] strided
  %1 = transpose.int(self=%y, dim0=1, dim1=2) : float32[1,5,6] strided
  %2 = add.Tensor(self=%0, other=%1) : float32[1,5,6] strided
  %3 = add.Tensor(self=%2, other=%z) : float32[1,5,6] strided
  return %2, %3
}"""


def test_what_several_compute_anew_votes_by_all_that_it_reads():
    *_, last = with_voted_orders(parse(SEVERAL)).ops  # two transposed against one plain
    assert last.type.layout == "strided"


class Mixer(nn.Module):
    """A patch embedding, whose result is transposed, and two blocks of layer norm and product."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 64, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
        self.products = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        for norm, product in zip(self.norms, self.products, strict=True):
            x = x + product(norm(x))
        return x


def test_a_sum_and_the_norm_that_reads_it_are_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "costmodel.inductor.layout.prefers_channels_last", lambda *_: False
    )  # as with 300 operators or more
    kernels = compiled_kernels(capture(Mixer().eval(), (torch.empty(1, 3, 32, 32),), "mixer"))
    fused = [kernel for kernel in kernels if kernel.backend == "triton"]
    # each adds the embedding's bias again; the second adds a product and its bias, and its norm follows at once
    computed = [[op.base for op in kernel.graph.ops if op.base in ("add", "var_mean")] for kernel in fused]
    assert [bases[: bases.index("var_mean")] for bases in computed[:2]] == [["add"], ["add"] * 3]
    assert computed[2] == ["add"] * 5
    assert [kernel.launches for kernel in fused] == [1, 1, 1]
