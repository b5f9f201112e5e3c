"""Autocast during a capture: the casts of CUDA's policies, against lists by hand and against torch's own on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costmodel.capture.autocast import CPU_POLICIES, POLICIES
from costmodel.capture.executable import capture_exactly
from costmodel.capture.trace import capture
from costmodel.errors import CaptureError
from costmodel.ir import Graph, Ref

X = torch.empty(2, 4, device="meta")


class Calls(nn.Module):
    """A linear layer and a forward pass that is given."""

    def __init__(self, function: Callable[..., Any], requires_grad: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).requires_grad_(requires_grad)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def casts(graph: Graph) -> list[tuple[str, str]]:
    """Each cast of a graph: the value that it reads, and the precision that it makes."""
    found = []
    for op in graph.ops:
        if op.base == "_to_copy":
            source = op.arg("self")
            assert isinstance(source, Ref)
            found.append((source.name, op.type.dtype))
    return found


def test_the_policies_are_of_the_operators_that_torch_has_kernels_for() -> None:
    names = torch._C._dispatch_get_all_op_names()
    known = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCUDA")}
    assert {f"aten::{name}" for name in POLICIES} == known


def test_those_of_a_cpu_too() -> None:
    """Some releases of torch have further overloads for named dimensions, which no model has."""
    names = torch._C._dispatch_get_all_op_names()
    known = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU")}
    assert {f"aten::{name}" for name in CPU_POLICIES} == {name for name in known if "imname" not in name}


def test_casts_of_three_layers_by_hand() -> None:
    """A convolution in half precision, batch norm as it comes, layer norm in float32: six casts."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 4), nn.LayerNorm(4)).eval()
    graph = capture(net, (torch.empty(1, 3, 4, 4, device="meta"),), amp="float16")
    named = {op.name: op for op in graph.ops}
    product = next(op for op in graph.ops if op.base == "addmm")
    assert casts(graph) == [
        ("x", "float16"),
        ("0.weight", "float16"),
        ("0.bias", "float16"),
        ("3.weight", "float16"),
        ("3.bias", "float16"),
        (product.name, "float32"),  # for the layer norm, whose parameters are float32 already
    ]
    assert {op.base: op.type.dtype for op in named.values() if op.base != "_to_copy"} == {
        "convolution": "float16",
        "native_batch_norm": "float16",
        "view": "float16",
        "t": "float16",
        "addmm": "float16",
        "native_layer_norm": "float32",
    }


@pytest.mark.parametrize(
    ("half_to_float", "amp"), [(True, "float16"), (False, "bfloat16")], ids=["one kernel", "after a cast"]
)
def test_softmax_returns_float32(half_to_float: bool, amp: str) -> None:
    """ATen's softmax converts within its kernel for float16 alone."""
    graph = capture(Calls(lambda net, x: net.linear(x).softmax(-1)), (X,), amp=amp)
    assert graph.ops[-1].base == "_softmax"
    assert graph.ops[-1].type.dtype == "float32"
    assert graph.ops[-1].arg("half_to_float") is half_to_float
    assert len(casts(graph)) == 4 - half_to_float


def test_operands_of_a_mixed_operator_take_the_widest_precision() -> None:
    graph = capture(Calls(lambda net, x: torch.addcmul(x, net.linear(x), x)), (X,), amp="float16")
    assert casts(graph)[-1] == (graph.ops[-3].name, "float32")
    assert graph.ops[-1].type.dtype == "float32"


def test_float64_and_integers_are_not_cast() -> None:
    wide = capture(Calls(lambda _, x: x.double() @ x.double().t()), (X,), amp="float16")
    assert {dtype for _, dtype in casts(wide)} == {"float64"}
    assert casts(capture(Calls(lambda _, x: x.long().sum()), (X,), amp="float16")) == [("x", "int64")]


class TestCacheOfWeights:
    """`cached_cast` in torch's autocast_mode.cpp."""

    def test_a_weight_is_cast_once_in_a_region(self) -> None:
        graph = capture(Calls(lambda net, x: net.linear(net.linear(x))), (X,), amp="float16")
        assert casts(graph) == [("x", "float16"), ("linear.weight", "float16"), ("linear.bias", "float16")]

    def test_a_frozen_weight_is_cast_at_each_use(self) -> None:
        net = Calls(lambda net, x: net.linear(net.linear(x)), requires_grad=False)
        assert [name for name, _ in casts(capture(net, (X,), amp="float16"))].count("linear.weight") == 2

    def test_the_outermost_region_forgets(self) -> None:
        def twice(net: Calls, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                with torch.autocast("cuda", torch.float16), torch.autocast("cuda", torch.float16):
                    x = net.linear(x)
            return x

        assert [name for name, _ in casts(capture(Calls(twice), (X,)))].count("linear.weight") == 2
        assert [name for name, _ in casts(capture(Calls(twice), (X,), amp="float16"))].count("linear.weight") == 1

    def test_a_region_without_the_cache(self) -> None:
        def uncached(net: Calls, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", torch.float16, cache_enabled=False):
                return net.linear(net.linear(x))

        assert [name for name, _ in casts(capture(Calls(uncached), (X,)))].count("linear.weight") == 2


class TestRegionsOfTheModel:
    def test_it_is_captured_as_under_amp(self) -> None:
        def within(net: Calls, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                return net.linear(x)

        plain = capture(Calls(lambda net, x: net.linear(x)), (X,), amp="bfloat16")
        assert capture(Calls(within), (X,)).ops == plain.ops

    def test_turned_off_within_a_region(self) -> None:
        def careful(net: Calls, x: torch.Tensor) -> torch.Tensor:
            y = net.linear(x)
            with torch.autocast("cuda", enabled=False):
                return y.float() @ y.float().t()

        graph = capture(Calls(careful), (X,), amp="float16")
        assert [op.type.dtype for op in graph.ops if op.base in ("addmm", "mm")] == ["float16", "float32"]

    def test_questions(self) -> None:
        seen: list[Any] = []

        def asks(net: Calls, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda")))
            with torch.autocast(x.device.type, torch.bfloat16):
                seen.append((torch.is_autocast_enabled(x.device.type), torch.get_autocast_dtype("cuda")))
            return net.linear(x)

        capture(Calls(asks), (X,))
        assert seen[:2] == [(False, False), (True, torch.bfloat16)]

    def test_as_a_decorator(self) -> None:
        def made_within(net: Calls, x: torch.Tensor) -> torch.Tensor:
            inner: Callable[..., torch.Tensor] = torch.autocast("cuda", torch.float16)(lambda: net.linear(x))
            return inner()

        assert capture(Calls(made_within), (X,)).ops[-1].type.dtype == "float16"

    def test_a_region_of_the_caller(self) -> None:
        with entered("cuda", torch.bfloat16):
            graph = capture(Calls(lambda net, x: net.linear(x)), (X,))
        assert graph.ops[-1].type.dtype == "bfloat16"


@contextmanager
def entered(device: str, dtype: torch.dtype) -> Iterator[None]:
    """Autocast of a device that need not be there."""
    before = torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, False)
        torch.set_autocast_dtype(device, before)


class TestRefusals:
    def test_a_region_of_the_cpu(self) -> None:
        def on_cpu(net: Calls, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return net.linear(x)

        with pytest.raises(CaptureError, match="runs under autocast of the device 'cpu'"):
            capture(Calls(on_cpu), (X,))
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(CaptureError, match="of the device 'cpu'"):
            capture(Calls(lambda net, x: net.linear(x)), (X,))

    def test_a_graph_that_will_be_run(self) -> None:
        """On a CPU the region of a GPU would cast nothing."""

        def within(net: Calls, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", torch.float16):
                return net.linear(x)

        with pytest.raises(CaptureError, match="which a plan cannot run; leave the region out"):
            capture_exactly(Calls(within), (torch.ones(2, 4),), "net")

    def test_a_precision_that_a_gpu_has_not(self) -> None:
        def strange(net: Calls, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", torch.float64):
                return net.linear(x)

        with pytest.raises(
            CaptureError, match=r"autocast of torch\.float64; a GPU has autocast of float16 and bfloat16"
        ):
            capture(Calls(strange), (X,))

    def test_binary_cross_entropy(self) -> None:
        net = Calls(lambda net, x: nn.functional.binary_cross_entropy(net.linear(x).sigmoid(), x))
        with pytest.raises(CaptureError, match="binary_cross_entropy_with_logits"):
            capture(net, (X,), amp="float16")


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_it(fails: bool) -> None:
    def maybe(net: Calls, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = net.linear(x)
        if fails:
            raise ValueError("mine")
        return y

    try:
        capture(Calls(maybe), (X,), amp="float16")
    except CaptureError:
        assert fails
    assert torch._C._dispatch_tls_is_dispatch_key_excluded("AutocastIPU")
    assert not torch._C._dispatch_tls_is_dispatch_key_included("AutocastIPU")
    assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype is torch.float32
    assert not torch.is_autocast_enabled("cuda")


class Log(TorchDispatchMode):
    """Names of the operators that run, and the precisions of their first results."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        dtypes = [leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.ops.append((func._schema.name.partition("::")[2], str(dtypes[0]).partition(".")[2]))
        return result


class Attends(nn.Module):
    """Multi-head attention written out, with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.packed, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.reshape(2, 5, 2, 4).transpose(1, 2) for part in self.packed(x).chunk(3, -1))
        powers = (query @ key.transpose(-2, -1)) * 0.5
        mixed: torch.Tensor = (torch.relu(powers) @ value).transpose(1, 2).reshape(2, 5, 8)
        return x + self.out(mixed)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), (2, 5, 8)),
    "shared": (lambda: nn.Sequential(*[nn.Linear(8, 8)] * 3), (2, 8)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GELU(), nn.Conv2d(8, 4, 1)), (2, 3, 6, 6)),
    "attention": (Attends, (2, 5, 8)),
    "embedded": (lambda: nn.Sequential(nn.Conv1d(8, 8, 1), nn.Flatten(), nn.Linear(40, 2)), (2, 8, 5)),
}
"""Networks of operators that the CPU's autocast casts as CUDA's does."""


@pytest.mark.parametrize("name", NETS)
def test_as_torchs_own_autocast_on_a_cpu(name: str) -> None:
    make, shape = NETS[name]
    net, x = make().eval(), torch.ones(shape)
    log = Log()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), log:
        net(x)
    graph = capture(net, (x,), amp="bfloat16")
    assert [(op.base, op.type.dtype) for op in graph.ops] == log.ops


class Pools(nn.Module):
    """Operators that a CPU casts to float32, to the widest precision, and not at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = nn.functional.adaptive_avg_pool3d(x, 2)
        wide = torch.cat([x.to(torch.bfloat16).flatten(1), half.flatten(1)], 1)
        return torch.stack([wide.softmax(-1), wide.exp()]).prod() + nn.functional.mse_loss(wide, wide)


OF_A_CPU: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = NETS | {
    "norms": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Softmax(-1), nn.Linear(8, 8)),
        (2, 8),
    ),
    "pools": (Pools, (2, 3, 4, 4, 4)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.PReLU()), (1, 3, 4, 4)),
}


@pytest.mark.parametrize("name", OF_A_CPU)
@pytest.mark.parametrize("inside", [False, True])
def test_a_graph_for_a_cpu_casts_as_torch_does_there(name: str, inside: bool) -> None:
    """With the region around the pass, and within it."""
    make, shape = OF_A_CPU[name]
    net, x = make().eval(), torch.ones(shape)
    log = Log()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), log:
        net(x)
    if inside:

        def within(_: Calls, x: torch.Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16), torch.autocast("meta", enabled=False):
                return net(x)

        calls = Calls(within)
        calls.net = net
        graph = capture_exactly(calls, (x,), "net", device="cpu").graph
    else:
        graph = capture_exactly(net, (x,), "net", "bfloat16", "cpu").graph
    assert [(op.base, op.type.dtype) for op in graph.ops] == log.ops


def test_regions_within_a_graph_for_a_gpu() -> None:
    """Of the GPU they cast, of the CPU they do not."""

    def within(net: Calls, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = net.linear(x)
        with torch.autocast("cuda", torch.float16), torch.autocast("cpu", enabled=False):
            return net.linear(y)

    graph = capture_exactly(Calls(within), (X,), "net", device="cuda").graph
    assert [op.type.dtype for op in graph.ops if op.base == "addmm"] == ["float32", "float16"]


def test_a_recurrent_layer_in_a_region_of_a_cpu_is_refused() -> None:
    with pytest.raises(CaptureError, match="runs lstm under autocast of a CPU"):
        capture_exactly(nn.LSTM(4, 4).eval(), (torch.ones(2, 1, 4),), "net", "bfloat16", "cpu")
