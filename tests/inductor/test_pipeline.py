"""Kernels that Inductor makes of a graph, counted by hand and against those that an H200 was seen to launch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.inductor.channels_last import in_channels_last
from costmodel.inductor.layout import prefers_channels_last
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.ir.op_table import Role
from costmodel.ir.operators import lookup
from costmodel.kernels.kernel import Kernel
from costmodel.zoo import load
from tests.support.work import calls_made

IMAGE = (8, 16, 32, 32)


def kernels_of(module: nn.Module, *shapes: tuple[int, ...], on_cpu: bool = False) -> tuple[Kernel, ...]:
    """Compiled kernels of a module that lies in channels-last order already, so that nothing need be converted."""
    module = module.eval().to(memory_format=torch.channels_last)
    inputs = [torch.empty(shape, device="meta") for shape in shapes or (IMAGE,)]
    return compiled_kernels(
        capture(module, [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]),
        on_cpu,
    )


def lowered_in_channels_last(module: nn.Module, shape: tuple[int, ...]) -> Graph:
    """A module as Inductor lays it out where it prefers that order."""
    return in_channels_last(capture(module.eval(), [torch.empty(shape, device="meta")]), runnable=False)


def summary(kernels: tuple[Kernel, ...]) -> list[tuple[str, list[str]]]:
    """Backend and operators, views left out."""
    return [
        (kernel.backend, [op.base for op in kernel.graph.ops if lookup(op).role is not Role.VIEW]) for kernel in kernels
    ]


class Residual(nn.Module):
    """Convolution, batch norm, addition of the input, ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)) + x)


class DenseLayer(nn.Module):
    """Norm, ReLU and convolution of everything so far, which its result is joined to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(16), nn.BatchNorm2d(24)
        self.conv1, self.conv2 = nn.Conv2d(16, 8, 3, padding=1, bias=False), nn.Conv2d(24, 8, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grown = torch.cat([x, self.conv1(torch.relu(self.norm1(x)))], 1)
        return self.conv2(torch.relu(self.norm2(grown)))


class SqueezeExcite(nn.Module):
    """Scales channels by what two convolutions make of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.down, self.up = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.up(torch.relu(self.down(self.pool(x)))))


class Twice(nn.Module):
    """Two convolutions of what comes first."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.one, self.other = (nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(x)
        return self.one(x), self.other(x)


class Halves(nn.Module):
    """Two halves of one result, each copied into an order of its own, and their product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.relu(x).view(8, 16, 2, 16).permute(2, 0, 1, 3).unbind()
        return torch.bmm(first.contiguous(), second.transpose(1, 2).contiguous())


class BiasedAttention(nn.Module):
    """Attention of pixels with a bias that lies turned round in its table."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(16, 3 * 16, 1, bias=False)
        self.table = nn.Parameter(torch.zeros(16, 16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).view(8, 3, 4, 4, 16).transpose(-2, -1).contiguous().unbind(1)
        bias = self.table.permute(2, 0, 1).unsqueeze(0).contiguous()
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)


class TestFusion:
    def test_what_is_computed_anew_reaches_no_memory(self) -> None:
        copies = [kernel for kernel in kernels_of(Halves(), (8, 16, 32)) if kernel.backend == "triton"]
        assert [[op.base for op in kernel.graph.ops][:3] for kernel in copies] == [["relu", "view", "permute"]] * 2
        written = [[kernel.graph.type_of(ref).numel for ref in kernel.graph.outputs] for kernel in copies]
        assert written == [[8 * 16 * 16], [8 * 16 * 16]]  # a half each, and not what both begin with

    def test_what_two_kernels_read_is_written(self) -> None:
        shared = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.ReLU())
        kernels = kernels_of(Twice(shared))
        assert summary(kernels)[:2] == [("aten", ["convolution"]), ("triton", ["relu"])]
        assert [len(kernel.graph.outputs) for kernel in kernels] == [1] * len(kernels)

    def test_attention_gets_its_bias_in_plain_order(self) -> None:
        graph = lowered_in_channels_last(BiasedAttention(), (8, 16, 4, 4))
        (attention,) = (op for op in graph.ops if op.base == "scaled_dot_product_attention")
        bias = attention.arg("attn_mask")
        assert isinstance(bias, Ref)
        assert graph.type_of(bias).layout == "nchw"

    def test_convolution_batch_norm_relu(self) -> None:
        module = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        assert summary(kernels_of(module)) == [("aten", ["convolution"]), ("triton", ["native_batch_norm", "relu"])]

    def test_a_convolutions_bias_is_added_by_the_kernel_after_it(self) -> None:
        module = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        assert summary(kernels_of(module)) == [("aten", ["convolution"]), ("triton", ["add", "relu"])]

    def test_residual_addition(self) -> None:
        assert summary(kernels_of(Residual())) == [
            ("aten", ["convolution"]),
            ("triton", ["native_batch_norm", "add", "relu"]),
        ]

    def test_dense_layer_joins_inside_the_next_norm(self) -> None:
        assert summary(kernels_of(DenseLayer())) == [
            ("triton", ["native_batch_norm", "relu"]),
            ("aten", ["convolution"]),
            ("triton", ["cat", "native_batch_norm", "relu"]),
            ("aten", ["convolution"]),
        ]

    def test_squeeze_and_excite(self) -> None:
        assert summary(kernels_of(SqueezeExcite())) == [
            ("triton", ["mean"]),
            ("aten", ["convolution"]),
            ("triton", ["add", "relu"]),
            ("aten", ["convolution"]),
            ("triton", ["add", "sigmoid", "mul"]),
        ]

    def test_layer_norm_linear_gelu(self) -> None:
        module = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU())
        assert summary(kernels_of(module, (8, 49, 64))) == [
            ("triton", ["var_mean", "sub", "add", "rsqrt", "mul", "mul", "add"]),
            ("aten", ["mm"]),
            ("triton", ["add", "gelu"]),
        ]

    def test_a_linear_layer_that_is_returned_keeps_its_bias(self) -> None:
        assert summary(kernels_of(nn.Linear(64, 10), (8, 64))) == [("aten", ["addmm"])]

    def test_views_cost_nothing(self) -> None:
        assert kernels_of(nn.Flatten(), (8, 16, 32)) == ()

    def test_a_view_of_another_layout_is_a_copy(self) -> None:
        assert summary(kernels_of(nn.Flatten())) == [("triton", ["clone"])]

    def test_a_model_without_operators_has_no_kernels(self) -> None:
        assert kernels_of(nn.Identity()) == ()

    def test_pooling_keeps_its_input_in_memory(self) -> None:
        assert summary(kernels_of(nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.ReLU()))) == [
            ("triton", ["relu"]),
            ("triton", ["max_pool2d_with_indices", "relu"]),
        ]


class TestLayout:
    def test_grouped_convolutions_stay_as_they_are(self) -> None:
        """1.358 for grouped convolutions is above 1; depthwise ones are not grouped in that sense."""
        x = (torch.empty(1, 128, 16, 16, device="meta"),)
        assert not prefers_channels_last(capture(nn.Conv2d(128, 128, 3, groups=4), x))
        assert prefers_channels_last(capture(nn.Conv2d(128, 128, 3, groups=128), x))
        assert prefers_channels_last(capture(nn.Conv2d(128, 128, 3), x))

    def test_flops_decide_between_them(self) -> None:
        """Plain 128 -> 128: 0.823 of F; grouped by 2: 1.358 of F / 2. Two grouped: (0.823 + 1.358) / 2 = 1.09 > 1."""
        x = (torch.empty(1, 128, 16, 16, device="meta"),)
        plain, grouped = nn.Conv2d(128, 128, 1), nn.Conv2d(128, 128, 1, groups=2)
        # (0.823 + 0.5 * 1.358) / 1.5 = 1.0013
        assert not prefers_channels_last(capture(nn.Sequential(plain, grouped), x))
        # (2 * 0.823 + 0.5 * 1.358) / 2.5 = 0.930
        assert prefers_channels_last(capture(nn.Sequential(plain, grouped, nn.Conv2d(128, 128, 1)), x))

    def test_models_without_convolutions_stay_as_they_are(self) -> None:
        graph = capture(nn.Linear(4, 4), (torch.empty(2, 4, device="meta"),))
        assert not prefers_channels_last(graph)

    def test_a_contiguous_model_is_converted_on_every_call(self) -> None:
        """The input once, the weight once; the weight's copy belongs to no input."""
        module = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.ReLU())
        graph = capture(module, (torch.empty(IMAGE, device="meta"),))
        assert summary(compiled_kernels(graph)) == [
            ("triton", ["clone"]),
            ("triton", ["clone"]),
            ("aten", ["convolution"]),
            ("triton", ["relu"]),
        ]

    def test_a_pointwise_weight_needs_no_conversion(self) -> None:
        """1 x 1 kernels lie alike in both orders."""
        graph = capture(nn.Conv2d(16, 16, 1, bias=False), (torch.empty(IMAGE, device="meta"),))
        assert summary(compiled_kernels(graph)) == [("triton", ["clone"]), ("aten", ["convolution"])]

    def test_resnets_are_converted(self, graph_of: Callable[..., Graph]) -> None:
        assert prefers_channels_last(graph_of("resnet50"))
        assert prefers_channels_last(graph_of("densenet121"))


MEASURED = {
    "resnet50": 68,
    "resnet18": 36,
    "mobilenet_v2": 54,
    "vgg11": 24,
    "resnext50_32x4d": 68,
    "alexnet": 16,
    "regnet_x_1_6gf": 75,
    "squeezenet1_1": 31,
    "timm:repvgg_a2": 45,
}
"""Triton kernels launched in one forward pass on an H200 (torch 2.11, batch 32, float32, nchw)."""


class TokenMixer(nn.Module):
    """A layer norm whose result a product reads transposed, as in MLP-Mixer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(64), nn.Linear(48, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(self.norm(x).transpose(1, 2))


def test_a_norm_that_is_read_transposed_is_one_kernel() -> None:
    """The product reads the norm's result through a view; loops that write it transposed take the norm's order."""
    for images in (1, 2):
        graph = capture(TokenMixer().eval(), (torch.empty((images, 48, 64), device="meta"),))
        fused = [kernel for kernel in compiled_kernels(graph) if kernel.backend == "triton"]
        assert [kernel.launches for kernel in fused[:-1]] == [1]
        assert {"var_mean", "rsqrt"} <= {op.base for op in fused[0].graph.ops}


class TestMeasuredCounts:
    @staticmethod
    def launches(graph: Graph) -> int:
        return sum(kernel.launches for kernel in compiled_kernels(graph) if kernel.backend == "triton")

    @pytest.mark.parametrize("model", MEASURED)
    def test_exact(self, graph_of: Callable[..., Graph], model: str) -> None:
        if model.startswith("timm:"):
            pytest.importorskip("timm")
        assert self.launches(graph_of(model, 32)) == MEASURED[model]

    def test_densenet121_within_five_percent(self, graph_of: Callable[..., Graph]) -> None:
        assert self.launches(graph_of("densenet121", 32)) == pytest.approx(326, rel=0.05)


SCHEDULED = {
    "convnext_tiny": 64,
    "swin_t": 116,
    "timm:cait_xxs24_224": 275,
    "timm:convnextv2_tiny": 115,
    "timm:deit_small_patch16_224": 39,
    "timm:efficientformer_l1": 60,
    "timm:gmlp_s16_224": 97,
    "timm:hrnet_w18": 546,
    "timm:levit_128s": 75,
    "timm:mixer_b16_224": 111,
    "timm:mobilevitv2_100": 164,
    "timm:nest_tiny": 98,
    "timm:poolformer_s12": 130,
    "timm:pvt_v2_b1": 46,
    "timm:twins_svt_small": 129,
    "timm:xcit_tiny_12_p16_224": 161,
    "vit_b_16": 75,
}
"""Kernels that Inductor's own scheduler makes of one image for an H200 (torch 2.11, scripts/scheduled_kernels.py)."""


@pytest.mark.parametrize("model", SCHEDULED)
def test_as_many_kernels_as_inductor_schedules(graph_of: Callable[..., Graph], model: str) -> None:
    if model.startswith("timm:"):
        pytest.importorskip("timm")
    assert TestMeasuredCounts.launches(graph_of(model, 1)) == pytest.approx(SCHEDULED[model], rel=0.05)


@pytest.mark.parametrize("model", ["densenet121", "swin_t", "mobilenet_v3_small", "googlenet"])
def test_kernels_are_whole(graph_of: Callable[..., Graph], model: str) -> None:
    """Each kernel's graph is valid, and every operator that computes is in one kernel at least."""
    graph = graph_of(model)
    kernels = compiled_kernels(graph)
    for kernel in kernels:
        kernel.graph.verify()
    covered = {name.partition(".")[0] for kernel in kernels for name in kernel.ops}
    idle = (Role.VIEW, Role.SOURCE)
    assert {op.name for op in graph.ops if lookup(op).role not in idle} <= covered


@pytest.mark.parametrize("pattern", ["convolutions", "pointwise", "reductions", "views"])
def test_work_grows_as_the_model(pattern: str) -> None:
    """Operators that each read the one before: four times as many take four times the calls, not sixteen."""
    few, many = (long_chain(pattern, length) for length in (400, 1600))
    assert calls_made(lambda: compiled_kernels(many)) < 6 * calls_made(lambda: compiled_kernels(few))


def long_chain(pattern: str, length: int) -> Graph:
    image, mean = TensorType("float32", (8, 16, 32, 32)), TensorType("float32", (8, 16, 1, 1))
    weight = Value("w", TensorType("float32", (16, 16, 3, 3)), "param")
    filters = (("weight", Ref("w")), ("bias", None), ("stride", (1, 1)), ("padding", (1, 1)), ("groups", 1))
    operators = [Op("0", "relu", (("self", Ref("x")),), (image,))]
    for index in range(1, length):
        last, name = Ref(operators[-1].name), str(index)
        earlier = Ref(str(max(0, index - 3)))
        addition = Op(name, "add.Tensor", (("self", last), ("other", earlier)), (image,))
        made = {
            "convolutions": addition if index % 2 else Op(name, "convolution", (("input", last), *filters), (image,)),
            "pointwise": addition,
            "reductions": addition if index % 2 else Op(name, "mean.dim", (("self", last), ("dim", (2, 3))), (mean,)),
            "views": Op(name, "transpose.int", (("self", last), ("dim0", 2)), (image,)),
        }
        operators.append(made[pattern])
    return Graph(pattern, (Value("x", image), weight), tuple(operators), (Ref(operators[-1].name),)).verify()


class Gated(nn.Module):
    """Two feature maps, each times the sigmoid of the same channel weights."""

    def forward(self, large: torch.Tensor, small: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gate = torch.sigmoid(weights)
        return large * gate, small * gate


class TestOnACpu:
    """Differences between Inductor on a CPU and on a GPU."""

    def test_convolutions_always_run_channels_last(self):
        module = nn.Conv2d(64, 64, 3, groups=4, bias=False).eval()  # grouped: not worth it on a GPU
        graph = capture(module, (torch.empty(1, 64, 8, 8, device="meta"),))
        assert (prefers_channels_last(graph), prefers_channels_last(graph, on_cpu=True)) == (False, True)
        assert not prefers_channels_last(capture(nn.ReLU(), (torch.empty(2, 2, device="meta"),)), on_cpu=True)
        made = compiled_kernels(graph, on_cpu=True)
        assert sorted(map(str, summary(made))) == sorted(
            map(str, [("triton", ["clone"]), ("triton", ["clone"]), ("aten", ["convolution"])])
        )  # the input and the weights are converted on every call

    def test_a_bias_stays_with_its_library_call(self):
        module = nn.Sequential(nn.Conv2d(16, 8, 3), nn.ReLU())
        assert summary(kernels_of(module)) == [("aten", ["convolution"]), ("triton", ["add", "relu"])]
        assert summary(kernels_of(module, on_cpu=True)) == [("aten", ["convolution"]), ("triton", ["relu"])]
        linear = nn.Sequential(nn.Linear(16, 8), nn.ReLU())
        assert summary(kernels_of(linear, (4, 16))) == [("aten", ["mm"]), ("triton", ["add", "relu"])]
        assert summary(kernels_of(linear, (4, 16), on_cpu=True)) == [("aten", ["addmm"]), ("triton", ["relu"])]

    def test_two_tensors_are_joined_in_memory(self):
        on_gpu, on_cpu = (
            [op for _, names in summary(kernels_of(DenseLayer(), on_cpu=cpu)) for op in names] for cpu in (False, True)
        )
        assert ("cat" in on_gpu, "concat_in_place" in on_gpu, "clone" in on_gpu) == (True, False, False)
        assert "cat" not in on_cpu
        assert on_cpu.count("clone") == 2

    def test_a_sigmoid_that_two_kernels_read_is_computed_once(self):
        shapes = ((8, 16, 32, 32), (8, 16, 8, 8), (8, 16, 1, 1))
        assert summary(kernels_of(Gated(), *shapes)) == [("triton", ["sigmoid", "mul"])] * 2
        expected = [("triton", ["sigmoid"]), ("triton", ["mul"]), ("triton", ["mul"])]
        assert summary(kernels_of(Gated(), *shapes, on_cpu=True)) == expected

    @pytest.mark.parametrize(
        ("model", "loops", "short"), [("resnet18", 36, 0), ("googlenet", 99, 7), ("densenet121", 356, 12)]
    )
    def test_as_many_loops_as_inductor_writes(self, model: str, loops: int, short: int):
        """Against loops counted in what Inductor of torch 2.13 writes for these models; some of them are missed."""
        loaded = load(model)
        made = compiled_kernels(capture(loaded.module, loaded.inputs, model), on_cpu=True)
        assert sum(kernel.backend == "triton" for kernel in made) == loops - short

    def test_no_reduction_is_split(self):
        launches = [kernels_of(Total(), (1, 1 << 20), on_cpu=cpu)[0].launches for cpu in (False, True)]
        assert launches == [2, 1]


class Total(nn.Module):
    """The sum of everything."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()
