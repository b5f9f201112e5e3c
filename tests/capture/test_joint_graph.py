"""Forward and backward graphs against those that torch.compile makes on a CPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table

from costmodel.capture.training_step import capture_training_step
from costmodel.ir import Graph

OTHER_NAMES = {
    "convert_element_type": "_to_copy",
    "copy": "clone",
    "iota": "arange",
    "rand": "bernoulli",
    "rev": "flip",
}
VIEW = "permute"
"""View that the recorded graph has more of: a linear layer's weight is turned there and back."""


def conv_net() -> nn.Module:
    """Convolution, batch norm and ReLU twice, then a classifier."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
    )


def mlp() -> nn.Module:
    """Layer norm, GELU between two linear layers."""
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


class Teaches(nn.Module):
    """One network as student and, without gradients, as teacher."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(16, 32), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = self.network(x.flip(0))
        return (self.network(x) - target).square()


def spectral() -> nn.Module:
    """A linear layer whose weight is divided by an estimate of its norm, which is updated without gradients."""
    return nn.utils.parametrizations.spectral_norm(nn.Linear(16, 8))


def by_torch(module: nn.Module, x: torch.Tensor) -> list[fx.GraphModule]:
    """Forward and backward graph that torch.compile makes of a module, after Inductor's decompositions."""
    found: list[fx.GraphModule] = []

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
        from torch._inductor.fx_passes.joint_graph import joint_graph_passes

        with config.patch(joint_graph_constant_folding=False):
            joint_graph_passes(joint)
        made = min_cut_rematerialization_partition(joint, inputs, compiler="inductor", **options)
        found.extend(made)
        return made

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        partition_fn=partition,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    torch.compile(module.train(), backend=backend)(x).sum().backward()
    torch._dynamo.reset()
    return found


def names_of(graph: fx.GraphModule) -> Counter[str]:
    """Operators of an FX graph by name."""
    overloads = [node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    names = (target._schema.name.rpartition("::")[2].removesuffix("_") for target in overloads)
    return Counter(OTHER_NAMES.get(name, name) for name in names if name != VIEW)


def counted(graph: Graph) -> Counter[str]:
    """Operators of a graph by name."""
    return Counter(op.base for op in graph.ops if op.base != VIEW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "shape"), [(conv_net, (2, 3, 8, 8)), (mlp, (4, 16)), (Teaches, (4, 16)), (spectral, (4, 16))]
)
def test_the_graphs_are_those_of_torch_compile(make: Any, shape: tuple[int, ...]):
    wanted = list(map(names_of, by_torch(make(), torch.randn(shape))))
    step = capture_training_step(make(), (torch.empty(shape, device="meta"),), loss=lambda result: result.sum())
    assert step.compiled is not None, step.failure
    assert [counted(step.compiled.forward), counted(step.compiled.backward)] == wanted


class Clips(torch.autograd.Function):
    """A function with its own gradient, in whose forward pass torch disables gradients, as it does itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x.clamp(-1.0, 1.0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()


class ClipsTwice(nn.Module):
    """Layers before, between and after such a function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(Clips.apply(x).tanh())
        return x


def test_layers_around_functions_with_their_own_gradient_are_differentiated():
    step = capture_training_step(ClipsTwice(), (torch.empty(4, 8, device="meta"),))
    assert step.compiled is not None
    # three gradients by weight, and two by what the second and third layer read
    assert counted(step.eager)["mm"] == 5
    assert counted(step.compiled.backward)["mm"] >= 3


def test_saved_values_are_outputs_of_the_forward_graph():
    step = capture_training_step(conv_net(), (torch.empty(2, 3, 8, 8, device="meta"),))
    compiled = step.compiled
    assert compiled is not None
    given = {value.name: value.type for value in compiled.backward.values}
    assert compiled.saved
    for name, place in compiled.saved.items():
        assert compiled.forward.type_of(compiled.forward.outputs[place]) == given[name]


def test_backward_operators_know_their_modules():
    step = capture_training_step(conv_net(), (torch.empty(2, 3, 8, 8, device="meta"),))
    assert step.compiled is not None
    found = [op.module for op in step.compiled.backward.ops if op.base == "convolution_backward"]
    assert found == ["3", "0"]


def test_running_statistics_and_counts_are_outputs_too():
    step = capture_training_step(conv_net(), (torch.empty(2, 3, 8, 8, device="meta"),))
    assert step.compiled is not None
    forward = step.compiled.forward
    made = {op.name: op for op in forward.ops}
    written = [
        forward.type_of(ref).shape for ref in forward.outputs if made.get(ref.name) and made[ref.name].base == "clone"
    ]
    assert sorted(written) == [(), (), (8,), (8,), (8,), (8,)]  # batches, means and variances of two batch norms


def test_a_step_without_compiled_graphs_says_why(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no graph\nof this")

    monkeypatch.setattr("torch._functorch.aot_autograd.aot_module_simplified", fails)
    step = capture_training_step(mlp(), (torch.empty(4, 16),), "mlp")
    assert step.compiled is None
    assert step.failure == "mlp: AOTAutograd fails on the training step: RuntimeError: no graph"
