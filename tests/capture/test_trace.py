"""Capture: what is recorded, what is refused and in which words, and that the module is left as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from costmodel import ir, zoo
from costmodel.capture.executable import capture_exactly
from costmodel.capture.intercepts import unrolled_attention
from costmodel.capture.trace import capture, lower, trace
from costmodel.errors import CaptureError
from costmodel.ir import Graph, parse
from costmodel.ir.operators import UNKNOWN, lookup
from costmodel.kernels.eager_dispatch import eager_kernels

X = torch.empty(2, 3, 8, 8, device="meta")


class Calls(nn.Module):
    """A module whose forward pass is a function of itself and its inputs."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()
    loss: float | None = None


class Plain:
    """An output class that is no dataclass, and that knows itself."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.me = self
        self.logits = logits


class Named(dict[str, torch.Tensor]):
    pass


def bases(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops]


def captured(function: Callable[..., Any], *inputs: Any, **attributes: Any) -> Graph:
    return capture(Calls(function, **attributes).eval(), inputs or (X,), "g")


def refusal(module: nn.Module, *inputs: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        capture(module, inputs or (X,))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("model", ["alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1"])
def test_golden(graph_of: Callable[..., Graph], golden: Callable[[str, str], None], model: str) -> None:
    graph = graph_of(model)
    assert parse(str(graph)) == graph
    golden(model, str(graph))


class TestRecords:
    def test_operators_with_types_and_modules(self) -> None:
        graph = capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (X,), "tiny")
        assert str(graph) == (
            "graph tiny calls 3 checks 1 {\n"
            "  input %x: float32[2,3,8,8]\n"
            "  param %0.weight: float32[4,3,3,3]\n"
            "  param %0.bias: float32[4]\n"
            "  %0 = convolution(input=%x, weight=%0.weight, bias=%0.bias, stride=[1, 1], padding=[0, 0], "
            "dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1) : float32[2,4,6,6] @0\n"
            "  %1 = relu(self=%0) : float32[2,4,6,6] @1\n"
            "  return %1\n"
            "}"
        )

    def test_the_same_graph_from_real_weights(self) -> None:
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
        real = capture(module, (torch.randn(2, 3, 8, 8),))
        assert real == capture(module.to("meta"), (X,))

    def test_layouts(self) -> None:
        module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        graph = capture(module, (X.contiguous(memory_format=torch.channels_last),))
        assert [value.type.layout for value in graph.values] == ["nhwc", "nhwc", "nchw"]
        assert graph.ops[0].type.layout == "nhwc"

    def test_a_channels_last_model_stays_so(self) -> None:
        loaded = zoo.load("resnet18", channels_last=True)
        graph = capture(loaded.module, loaded.inputs)
        images = [op for op in graph.ops if len(op.type.shape) == 4 and op.type.shape[2] > 1]
        assert len(images) > 50
        assert {op.type.layout for op in images} == {"nhwc"}

    def test_attention_whole(self) -> None:
        tokens = torch.empty(2, 4, 10, 16, device="meta")
        direct = captured(lambda _, q: torch.nn.functional.scaled_dot_product_attention(q, q, q), tokens)
        assert bases(direct) == ["scaled_dot_product_attention"]
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        with unrolled_attention():
            library = capture(layer, (torch.empty(2, 5, 16, device="meta"),))
        assert "scaled_dot_product_attention" in bases(library)

    def test_attention_has_no_fused_kernel_where_rows_are_not_side_by_side(self) -> None:
        """As ATen's `check_last_dim_stride_equals_1` has it, of queries, keys, values and the mask."""
        attention, tokens = nn.functional.scaled_dot_product_attention, torch.empty(2, 4, 16, 16, device="meta")
        turned, mask = tokens.transpose(2, 3), torch.empty(2, 4, 16, 1, device="meta").expand(2, 4, 16, 16)
        rows = (
            (turned, tokens, tokens),
            (tokens, turned, tokens),
            (tokens, tokens, turned),
            (tokens, tokens, tokens, mask),
        )
        for given in rows:
            graph = captured(lambda _, *inputs: attention(*inputs), *given)
            assert "bmm" in bases(graph)
            assert "scaled_dot_product_attention" not in bases(graph)

    def test_what_python_calls_beside_operators(self) -> None:
        def forward(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
            batch = x.shape[0]  # a query
            y = module.idle(x).to(torch.float32).contiguous()  # idle: a dropout, two conversions
            return y.view(batch, -1).t() + y.flatten(1).relu().t()  # views; of `+` and relu each an operator

        graph = captured(forward, idle=nn.Dropout())
        assert graph.calls == ir.Calls(modules=2, views=4, idle=3, queries=1)

    def test_writes_of_constants_into_parts_of_constants(self) -> None:
        def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
            mask = x.new_zeros(4, 4)
            mask[:2, 2:] = 1.0  # as Swin makes its masks
            mask[2:] = 2.0
            mask += 1.0  # all of it: an operator of its own
            weighted = x[..., :4, :4] * mask
            weighted[0] = 0.0  # no constant
            return weighted

        graph = captured(forward)
        assert graph.calls.writes == 2
        assert bases(graph).count("add") == 1
        assert "copy" not in bases(graph)[: bases(graph).index("mul")]

    def test_multi_head_attention_asks_nothing_that_a_pass_does_not(self) -> None:
        layer = nn.MultiheadAttention(32, 4, batch_first=True).eval()
        graph = captured(lambda m, x: m.heads(x, x, x, need_weights=False)[0], torch.empty(2, 5, 32), heads=layer)
        assert graph.calls == ir.Calls(modules=2, views=9)

    def test_products_fold_their_batch_where_weights_need_gradients(self) -> None:
        """As ATen's matmul does, even where no gradients are tracked."""
        layer, tokens = nn.Linear(8, 4), torch.empty(2, 8, 5, device="meta").transpose(1, 2)
        assert bases(capture(layer, (tokens,))) == ["t", "clone", "_unsafe_view", "mm", "_unsafe_view", "add"]
        assert "bmm" in bases(capture(layer.requires_grad_(False), (tokens,)))

    def test_operators_of_others_keep_their_library(self) -> None:
        """`mylib::relu` is not ATen's, whatever it does."""
        with torch.library._scoped_library("costmodel_test", "DEF") as library:
            library.define("relu(Tensor x) -> Tensor")
            library.impl("relu", torch.empty_like, "Meta")
            graph = captured(lambda _, x: torch.ops.costmodel_test.relu(x))
        assert bases(graph) == ["costmodel_test_relu"]
        assert lookup(graph.ops[0]) is UNKNOWN

    def test_dead_operators_are_dropped(self) -> None:
        assert bases(captured(lambda _, x: (x.exp(), x.relu())[1])) == ["relu"]

    def test_names_that_the_text_cannot_hold(self) -> None:
        module = nn.Sequential()
        module.add_module("my conv:1", nn.Conv2d(3, 4, 1))
        graph = capture(module, (X,), "my model")
        assert parse(str(graph)) == graph
        assert graph.ops[0].module == "my_conv:1"

    def test_a_parameter_called_as_the_input(self) -> None:
        graph = captured(lambda m, x: x + m.x, X, x=nn.Parameter(torch.ones(8)))
        assert [value.name for value in graph.values] == ["x_", "x"]


class TestInputs:
    def test_several(self) -> None:
        assert str(captured(lambda _, a, b: a - b, X, X).ops[0]).startswith("%0 = sub.Tensor(self=%x, other=%x1)")

    def test_nested_and_other_values(self) -> None:
        graph = captured(lambda _, pair, factor, named: pair[0] + pair[1] * factor + named["z"], [X, X], 3, {"z": X})
        assert [value.name for value in graph.inputs] == ["x", "x1", "x2"]
        assert graph.ops[0].arg("other") == 3

    def test_stay_as_they_were(self) -> None:
        x = torch.ones(2, 3)
        captured(lambda _, t: t.add_(1).unsqueeze_(0) * 2, x)
        assert x.shape == (2, 3)
        assert x.eq(1).all()


class TestOutputs:
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda a, b: (a, b),
            lambda a, b: [a, [b, None, 3]],
            lambda a, b: {"a": a, "b": {"c": b}},
            lambda a, b: Named(a=a, b=b),
            lambda a, b: Output(a, (b,)),
            lambda a, b: (Plain(a), Plain(b)),
        ],
        ids=["tuple", "list", "dict", "mapping", "dataclass", "object"],
    )
    def test_of_every_kind(self, wrap: Callable[..., Any]) -> None:
        graph = captured(lambda _, x: wrap(x.relu(), x.exp()))
        assert bases(graph) == ["relu", "exp"]
        assert len(graph.outputs) == 2

    def test_an_empty_model_has_no_operators(self) -> None:
        graph = capture(nn.Identity(), (X,))
        assert graph.ops == ()
        assert str(graph.outputs[0]) == "%x"

    @pytest.mark.parametrize("result", [None, 3, [], {"a": "b"}])
    def test_without_tensors_are_refused(self, result: Any) -> None:
        assert refusal(Calls(lambda _, x: result)) == "the forward pass of Calls returned no tensor"


class TestWeights:
    def test_a_module_called_twice(self) -> None:
        layer = nn.Linear(8, 8)
        graph = capture(nn.Sequential(layer, layer), (X,))
        assert bases(graph).count("addmm") == 2
        assert sum(value.role == "param" for value in graph.values) == 2

    def test_tied(self) -> None:
        module = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
        module[1].weight = module[0].weight
        assert sum(value.role == "param" for value in capture(module, (X,)).values) == 1

    @pytest.mark.parametrize(
        "function",
        [
            lambda m, x: x + m.c,
            lambda m, x: torch.cat([x, m.c.expand(2, 3, 8, 8)]),
            lambda m, x: x + m.c.to(x.device),
            lambda m, x: x[..., m.c.long()],
            lambda m, x: x + torch.tensor([1.0] * 8),
        ],
    )
    def test_a_plain_tensor_elsewhere_is_a_constant(self, function: Callable[..., Any]) -> None:
        graph = captured(function, X, c=torch.ones(8))
        (constant,) = [value for value in graph.values if value.role == "param"]
        assert constant.type.shape == (8,)

    def test_values_of_constants_may_be_read(self) -> None:
        graph = captured(lambda _, x: [x * rate.item() for rate in torch.linspace(0, 1, 2)])
        assert [op.arg("other") for op in graph.ops] == [0.0, 1.0]

    @pytest.mark.parametrize(
        ("function", "held"),
        [
            (lambda _, x: x[:, [2, 0]], [2, 0]),
            (lambda _, x: x[..., 0] * torch.tensor([3] * 8, device=x.device), [3] * 8),
            (lambda _, x: x * torch.tensor([1, 2, 3, 4] * 2, device=x.device).add_(1), [1, 2, 3, 4] * 2),
            (lambda _, x: x * torch.tensor([1, 2, 3, 4] * 2).add_(1), [1, 2, 3, 4] * 2),
        ],
    )
    def test_constants_are_as_they_were_before_the_pass(self, function: Callable[..., Any], held: list[int]) -> None:
        exact = capture_exactly(Calls(function), (X,), "constant")
        (constant,) = [exact.constants[value.name] for value in exact.graph.values if value.role == "param"]
        assert constant.tolist() == held

    def test_a_convolution_of_channels_last_values_makes_such(self) -> None:
        """As cuDNN does, whatever the order of inputs and weights (ConvNeXt's blocks)."""
        graph = capture(
            Calls(lambda m, x: m.c(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)), c=nn.Conv2d(3, 4, 3)), (X,)
        )
        assert graph.ops[-1].type.layout == "nhwc"


class TestWrites:
    def test_in_place_is_a_new_value(self) -> None:
        graph = captured(lambda _, x: x.mul(2).add_(1).relu_())
        assert [str(op.op) for op in graph.ops] == ["mul.Tensor", "add.Tensor", "relu"]

    def test_through_a_view_reach_the_whole(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            y = x * 1
            y[:, 0].add_(1)
            return y.relu()

        graph = captured(forward)
        assert bases(graph) == ["mul", "select", "add", "as_strided_scatter", "relu"]
        assert [kernel.kind for kernel in eager_kernels(graph)] == ["mul", "add", "relu"]

    def test_to_the_whole_reach_a_view(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            y = x * 1
            rows = y.view(2, -1)
            y.exp_()
            return rows.relu()

        assert bases(captured(forward)) == ["mul", "exp", "as_strided", "relu"]

    def test_assigning_a_slice_copies_it(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            y = torch.zeros_like(x)
            y[:, 1:] = x[:, :2]
            return y

        graph = captured(forward)
        assert bases(graph)[-2:] == ["copy", "as_strided_scatter"]

    def test_compute_the_same(self) -> None:
        from costmodel.execution.fx_module import build_module

        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            y = x * 1
            rows = y.view(2, -1)
            y[:, 0].add_(1)
            y[:, :, 2:4] = x[:, :, :2]
            rows.mul_(2)
            y.transpose(2, 3)[0, 1].neg_()
            return torch.cat([y.flatten(1), rows], 1)

        x = torch.randn(2, 3, 8, 8)
        (got,) = build_module(captured(forward))(x)
        torch.testing.assert_close(got, forward(None, x))

    def test_into_a_part_of_an_attention_keep_the_attention(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.scaled_dot_product_attention(x, x, x)
            y[:, 0].zero_()
            return y

        scattered = ["permute", "as_strided_scatter", "as_strided"]
        assert bases(captured(forward)) == ["scaled_dot_product_attention", "select", "zero", *scattered]

    def test_of_many_tensors_at_once_are_seen(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = [x * 1, x + 1]
            torch._foreach_mul_(made, 2.0)
            return tuple(made)

        graph = captured(forward)
        assert bases(graph) == ["mul", "add", "_foreach_mul"]
        assert [str(ref) for ref in graph.outputs] == [f"%{graph.ops[2].name}", f"%{graph.ops[2].name}#1"]

    def test_of_a_wider_type_are_converted_where_the_graph_is_to_be_run(self) -> None:
        module = Calls(lambda _, x: x.mul(1).add_(x.double()))
        graph = capture_exactly(module, (X,), "wider").graph
        assert [str(op.type.dtype) for op in graph.ops] == ["float32", "float64", "float64", "float32"]
        assert bases(capture(module, (X,))) == ["mul", "_to_copy", "add"]  # eager converts within the addition

    def test_into_a_constant_elsewhere_are_refused(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            y = torch.zeros(2, 3, 8, 8)
            y[:, 1:] = x[:, :2]
            return y

        assert refusal(Calls(forward)).startswith("Calls writes into a tensor on cpu")


class TestRefusals:
    @pytest.mark.parametrize(
        "function",
        [
            lambda _, x: x * 2 if x.sum() > 0 else x,
            lambda _, x: x * x.sum().item(),
            lambda _, x: x.nonzero(),
            lambda _, x: x[x > 0],
            lambda m, x: x * m.scale.item(),
            lambda _, x: x if torch.equal(x, x * 2) else -x,
        ],
    )
    def test_what_depends_on_data(self, function: Callable[..., Any]) -> None:
        module = nn.Sequential(nn.ReLU(), Calls(function, scale=nn.Buffer(torch.ones(()))))
        assert refusal(module).startswith("1 needs the values of a tensor (.item(), a branch")

    @pytest.mark.parametrize("function", [lambda _, x: x * x.sum().tolist(), lambda _, x: x.numpy()])
    def test_what_copies_data_out(self, function: Callable[..., Any]) -> None:
        assert refusal(nn.Sequential(Calls(function))).startswith("the forward pass failed in 0: ")

    @pytest.mark.parametrize(
        "layer",
        [
            nn.BatchNorm2d(3),
            nn.Dropout(),
            nn.Dropout2d(),
            nn.InstanceNorm2d(3, track_running_stats=True),
            Calls(lambda m, x: nn.functional.dropout(x, 0.5, m.training)),
            Calls(lambda m, x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)),
        ],
        ids=lambda layer: type(layer).__name__,
    )
    def test_training_mode(self, layer: nn.Module) -> None:
        assert refusal(nn.Sequential(layer)).startswith("0 is in training mode; call .eval() on the model")
        if not isinstance(layer, Calls):
            capture(nn.Sequential(layer).eval(), (X,))

    def test_training_mode_that_changes_nothing_is_accepted(self) -> None:
        graph = capture(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout(0.0)), (X,))
        assert bases(graph) == ["convolution", "relu"]

    def test_errors_keep_their_words_and_name_the_module(self) -> None:
        def boom(*_: Any) -> None:
            raise ValueError("my own words\nand more")

        module = nn.Sequential(nn.ReLU(), nn.Sequential(Calls(boom)))
        line = boom.__code__.co_firstlineno + 1
        assert re.fullmatch(
            rf"the forward pass failed in 1.0: ValueError: my own words \(\S*test_trace.py:{line}\)", refusal(module)
        )

    def test_a_wrong_shape_names_the_layer(self) -> None:
        assert refusal(nn.Sequential(nn.ReLU(), nn.Linear(5, 5))).startswith(
            "the forward pass failed in 1: RuntimeError"
        )

    def test_a_wrong_number_of_inputs(self) -> None:
        assert "TypeError" in refusal(nn.ReLU(), X, X)

    def test_leaving_the_program_is_an_error(self) -> None:
        def leave(*_: Any) -> None:
            raise SystemExit(3)

        assert "SystemExit" in refusal(Calls(leave))

    def test_parameters_without_a_shape(self) -> None:
        assert "weight is not initialised" in refusal(nn.LazyLinear(3))


class TestAutocast:
    """Regions of a GPU are followed (test_autocast.py); turned off, they are nothing; the CPU's are refused."""

    @pytest.mark.parametrize("device", ["meta", "cuda", "cpu"])
    def test_turned_off_it_is_nothing(self, device: str) -> None:
        def careful(_: Any, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, enabled=False):
                return x.float() * 2

        assert bases(captured(careful)) == ["mul"]

    def test_turned_on_for_a_cpu_it_is_refused(self) -> None:
        def casts(_: Any, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return x @ x

        assert refusal(nn.Sequential(nn.ReLU(), Calls(casts))).startswith("1 runs under autocast of the device 'cpu'")
        with torch.autocast("cpu", torch.bfloat16):
            assert "convert the model and its inputs" in refusal(nn.Linear(2, 2), torch.ones(1, 2))
        assert torch.autocast("cpu", torch.bfloat16).fast_dtype == torch.bfloat16  # as it was before


class TestModuleIsUntouched:
    @staticmethod
    def state(module: nn.Module) -> dict[str, Any]:
        return {
            name: {key: dict(value) if isinstance(value, dict) else value for key, value in vars(child).items()}
            for name, child in module.named_modules()
        }

    def test_after_success_and_failure(self) -> None:
        def boom(*_: Any) -> None:
            raise ValueError

        for last in (nn.ReLU(), Calls(boom)):
            module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), last).eval()
            before = self.state(module)
            with contextlib.suppress(CaptureError):
                capture(module, (X,))
            after = self.state(module)
            assert before.keys() == after.keys()
            for name, attributes in before.items():
                assert attributes.keys() == after[name].keys()
                assert all(
                    value is after[name][key] for key, value in attributes.items() if not isinstance(value, dict)
                )
                for registry in ("_parameters", "_buffers", "_modules"):
                    assert all(value is after[name][registry][key] for key, value in attributes[registry].items())
            assert not nn.modules.module._global_forward_hooks
            assert not nn.modules.module._global_forward_pre_hooks
            assert torch.nn.functional.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"

    def test_attributes_that_the_pass_assigns(self) -> None:
        def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
            module.cache = x * 2
            module.count = module.count + 1
            return module.cache + 1

        module = Calls(forward, count=nn.Buffer(torch.zeros(())))
        capture(module, (X,))
        assert not hasattr(module, "cache")
        assert module.count == 0
        assert not module.count.is_meta

    def test_what_the_pass_keeps_in_dicts_and_lists(self) -> None:
        def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
            if "twice" not in module.cache:
                module.cache["twice"] = x * 2
            module.seen.append(x.shape)
            result: torch.Tensor = module.cache["twice"] + 1
            return result

        cache, seen = {"other": 1}, ["before"]
        module = Calls(forward, cache=cache, seen=seen)
        first, second = capture(module, (X,)), capture(module, (X,))
        assert (module.cache, module.seen) == ({"other": 1}, ["before"])
        assert module.cache is cache
        assert module.seen is seen
        assert str(first) == str(second)
        assert [op.base for op in second.ops] == ["mul", "add"]

    @pytest.mark.parametrize("keep", [dict, list])
    def test_what_the_first_pass_keeps_is_there_in_the_pass_that_is_recorded(self, keep: type) -> None:
        def from_dict(module: Any, x: torch.Tensor) -> torch.Tensor:
            if not module.cache:
                module.cache["weights"] = module.scale * 2
            result: torch.Tensor = x + module.cache["weights"]
            return result

        def from_list(module: Any, x: torch.Tensor) -> torch.Tensor:
            if not module.cache:
                module.cache.append(module.scale * 2)
            result: torch.Tensor = x + module.cache[0]
            return result

        cache = keep()
        function = from_dict if keep is dict else from_list
        module = Calls(function, cache=cache, scale=nn.Parameter(torch.ones(3, 1, 1)))
        graph = capture(module, (X,))
        assert bases(graph) == ["add"]
        assert [value.type.shape for value in graph.values if value.role == "param"] == [(3, 1, 1)]
        assert bases(capture_exactly(module, (X,), "g").graph) == ["mul", "add"]  # a plan needs its value
        assert module.cache is cache
        assert not cache

    def test_what_the_first_pass_puts_in_place_of_a_buffer_is_there_too(self) -> None:
        def forward(module: Any, x: torch.Tensor) -> torch.Tensor:
            if module.grid.shape[0] != x.shape[-1]:  # as ConViT keeps positions for one size of image
                module.grid = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) * 2
            result: torch.Tensor = x + module.grid
            return result

        module = Calls(forward)
        module.register_buffer("grid", torch.zeros(1), persistent=False)
        graph = capture(module, (X,))
        assert bases(graph) == ["add"]
        assert [(value.name, value.type.shape) for value in graph.values[1:]] == [("grid", X.shape[-1:])]
        assert module.grid.tolist() == [0.0]

    def test_a_module_without_a_steady_state_is_recorded_in_its_first_pass(self) -> None:
        def grow(module: Any, x: torch.Tensor) -> torch.Tensor:
            module.seen.append(x)
            return torch.cat(module.seen)

        def fail(module: Any, x: torch.Tensor) -> torch.Tensor:
            module.calls.add(len(module.calls))
            if len(module.calls) > 1:
                raise ValueError
            return x.relu()

        assert capture(Calls(grow, seen=[]), (X,)).ops[0].type.shape[0] == X.shape[0]
        assert bases(capture(Calls(fail, calls=set()), (X,))) == ["relu"]

    def test_an_exception_that_a_module_catches_leaves_the_scopes_right(self) -> None:
        def boom(*_: Any) -> None:
            raise ValueError

        def careful(module: Any, x: torch.Tensor) -> torch.Tensor:
            with contextlib.suppress(ValueError):
                module.inner(x)
            return x.relu()

        module = nn.Sequential(Calls(careful, inner=Calls(boom)), nn.ReLU())
        assert [op.module for op in capture(module, (X,)).ops][-1] == "1"


def test_trace_and_lower_are_the_two_halves() -> None:
    module = nn.Linear(8, 8)
    assert lower(trace(module, (X,)), "g") == capture(module, (X,), "g")


class TestLifetimes:
    def test_what_is_let_go_of_is_noted_where_it_happens(self) -> None:
        def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
            kept = x.exp()
            y = x.sin().cos()  # the sine dies here
            return y + kept  # these when the call has returned, which is after the last operator

        graph = captured(forward, torch.empty(4))
        assert [(op.base, sorted(map(str, op.frees))) for op in graph.ops] == [
            ("exp", []),
            ("sin", []),
            ("cos", ["%1"]),
            ("add", ["%0", "%2"]),
        ]

    def test_results_that_nobody_reads_die_at_once(self) -> None:
        graph = captured(lambda _, x: nn.functional.max_pool2d(x, 2), torch.empty(1, 1, 4, 4))
        assert [str(ref) for ref in graph.ops[0].frees] == ["%0#1"]

    def test_writes_in_place_are_marked_and_not_printed(self) -> None:
        graph = captured(lambda _, x: x.exp().relu_(), torch.empty(4))
        assert [op.inplace for op in graph.ops] == [False, True]
        assert str(parse(str(graph))) == str(graph)
        assert parse(str(graph)) == graph


class TestTraining:
    def test_modules_train_whatever_their_mode(self) -> None:
        module = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5)).eval()
        graph = capture(module, (torch.empty(2, 3, 4, 4),), training=True)
        assert bases(graph) == ["native_batch_norm", "native_dropout"]
        assert graph.ops[0].arg("training") is True
        assert [str(kind) for kind in graph.ops[1].types] == ["float32[2,3,4,4]", "bool[2,3,4,4]"]
        assert not module[0].training

    def test_products_fold_their_batch_as_where_a_weight_needs_a_gradient(self) -> None:
        module = nn.Linear(4, 4, bias=False)
        x = torch.empty(3, 2, 4).transpose(0, 1)  # no plain view of it is two-dimensional
        assert "bmm" in bases(capture(module.requires_grad_(False), (x,)))
        assert "bmm" not in bases(capture(module, (x,), training=True))
