"""Units: every kernel and every operator in exactly one, led and named as a user would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel import zoo
from costmodel.capture.trace import capture
from costmodel.device import ASSUMED_GPU
from costmodel.ir import Graph
from costmodel.ir import operators as operators_module
from costmodel.ir.op_table import Role
from costmodel.prediction.layers import Unit, find_units, group_units
from costmodel.profiles.profile import load_profile
from costmodel.timeline.issue_trace import compiled_trace

MODELS = ("densenet121", "resnet18", "alexnet", "swin_t", "squeezenet1_1", "mobilenet_v3_small")
Graphs = Callable[[str], Graph]


def kinds(unit: Unit) -> str:
    return " ".join(operators_module.lookup(op).kind for op in unit.ops)


@pytest.mark.parametrize("model", MODELS)
def test_every_kernel_and_every_computing_operator_is_in_one_unit(graph_of: Graphs, model: str):
    graph = graph_of(model)
    kernels = compiled_trace(graph).kernels
    units = group_units(graph, kernels)
    assert sorted(index for unit in units for index in unit.kernels) == list(range(len(kernels)))
    computing = [op.name for op in graph.ops if operators_module.lookup(op).role is not Role.VIEW]
    assert Counter(op.name for unit in units for op in unit.ops) == Counter(computing)
    assert all(unit.ops and unit.kernels for unit in units)


class Pools(nn.Module):
    """A concatenation that a GPU writes in place, part by part, and a CPU in one loop."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.sigmoid(x)
        return torch.cat([y, nn.functional.max_pool2d(y, 3, 1, 1)], 1), y.sum(1)


def test_units_are_those_of_the_device():
    graph = capture(Pools(), (torch.empty(1, 4, 64, 64, device="meta"),), "pools")
    cpu = load_profile("amd-epyc-2-threads")
    assert [len(find_units(graph, device)) for device in (ASSUMED_GPU, cpu.device)] == [3, 2]


@pytest.mark.parametrize("model", MODELS)
def test_names_are_the_models_own_and_positions_rise(graph_of: Graphs, model: str):
    modules = dict(zoo.load(model).module.named_modules())
    units = find_units(graph_of(model))
    assert all(unit.name in modules or unit.name == unit.kind for unit in units)
    positions = [unit.position for unit in units]
    assert positions == sorted(positions)
    assert 0.0 == positions[0] < 0.9 < positions[-1] <= 1.0


@pytest.mark.parametrize(
    ("model", "name", "operators"),
    [
        ("resnet18", "conv1", "conv2d batch_norm relu"),
        ("resnet18", "maxpool", "max_pool2d"),
        ("resnet18", "layer1.0.conv2", "conv2d batch_norm add relu"),  # the residual addition joins
        ("resnet18", "avgpool", "batch_norm add relu mean"),  # what is reduced is computed as it is read
        ("resnet18", "fc", "linear"),
        ("densenet121", "features.conv0", "conv2d batch_norm relu"),
        ("densenet121", "features.denseblock1.denselayer2.norm1", "cat batch_norm relu"),  # before its convolution
        ("densenet121", "features.denseblock1.denselayer2.conv1", "conv2d batch_norm relu"),
        ("densenet121", "features.denseblock2.denselayer9.norm1", "cat batch_norm relu"),  # its parts written in place
        ("densenet121", "features.denseblock1.denselayer2.conv2", "conv2d"),
        ("squeezenet1_1", "features.3", "relu relu cat"),  # two branches meet: neither's unit
        ("squeezenet1_1", "features.3.squeeze", "conv2d relu"),
        ("mobilenet_v3_small", "features.1.block.1.fc2", "conv2d hardsigmoid mul"),  # squeeze-and-excitation
        ("swin_t", "features.1.0.mlp.0", "linear gelu"),
        ("swin_t", "features.1.0.norm2", "copy add layer_norm"),  # windows are put back in place on the way
        ("swin_t", "features.1.0.norm1", "layer_norm layer_norm pad copy"),  # the patches' norm, and cut into windows
    ],
)
def test_what_a_unit_is_made_of(graph_of: Graphs, model: str, name: str, operators: str):
    assert [kinds(unit) for unit in find_units(graph_of(model)) if unit.name == name] == [operators]


def test_a_weights_copy_to_another_layout_belongs_to_its_convolution(graph_of: Graphs):
    graph = graph_of("resnet18")
    kernels = compiled_trace(graph).kernels
    unit = next(unit for unit in group_units(graph, kernels) if unit.name == "layer1.0.conv1")
    assert [[op.base for op in kernels[index].graph.ops] for index in unit.kernels] == [
        ["clone"],
        ["convolution"],
        ["native_batch_norm", "relu"],
    ]


def test_modules_named_by_numbers_are_not_taken_for_operators():
    """The copy of the weight of module "2" is no part of operator 2, the ReLU."""
    layers = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
    graph = capture(layers.eval(), [torch.empty(4, 8, 32, 32)], "numbers")
    kernels = compiled_trace(graph).kernels
    units = group_units(graph, kernels)
    assert [(unit.name, kinds(unit)) for unit in units] == [("0", "conv2d relu"), ("2", "conv2d relu")]
    for unit in units:
        bases = [op.base for index in unit.kernels for op in kernels[index].graph.ops]
        assert bases.count("convolution") == 1


def test_a_model_of_pointwise_operators_is_one_unit():
    graph = capture(nn.Sequential(nn.ReLU(), nn.Sigmoid()).eval(), [torch.empty(4, 8)], "pointwise")
    (unit,) = find_units(graph)
    assert kinds(unit) == "relu sigmoid"
    assert str(unit) == f"{unit.position:5.3f} {unit.name}: relu+sigmoid (1 kernels)"


def test_no_kernels_make_no_units():
    graph = capture(nn.ReLU().eval(), [torch.empty(4)], "relu")
    assert group_units(graph, ()) == ()
