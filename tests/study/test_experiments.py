"""Every experiment in a quick run on the CPU: points, rows, figure and verdict, with tiny models and no compiler."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from study import (
    abstraction_calls,
    abstraction_levels,
    conv_in_model,
    end_to_end,
    hardware,
    layer_times,
    levels,
    oracles,
    plots,
    recomputation,
    speedup_network,
    timer_validation,
    training_batches,
    twelve_models,
)
from study.catalog import EXPERIMENTS
from study.experiment import Experiment, Setup
from study.models import bound
from study.running import measured
from study.summary import judged
from study.table import Table, skipped
from torch import nn

from costmodel import zoo
from costmodel.execution.planned_module import apply
from costmodel.measurement.layer_sequence import Layers
from costmodel.zoo import Loaded

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
ON_CUDA_ONLY = {"cuDNN": "cuDNN's fused convolutions run on CUDA only", "CUDA graph": "CUDA graphs exist on CUDA only"}


class Tiny(nn.Module):
    """Network with a convolution, batch norm, a residual addition and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head((x + self.conv(x)).mean((2, 3)))


def tiny(name: str, _setup: object = None, batch_size: int = 1, **_: object):
    return Tiny().eval(), (torch.randn(batch_size, 3, 8, 8),)


def deep(*_: object) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Network whose blocks have activations to recompute."""
    blocks = (
        nn.Sequential(nn.Conv2d(3 if first else 16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Sigmoid())
        for first in (True, False, False)
    )
    return nn.Sequential(*blocks).eval(), (torch.randn(2, 3, 16, 16),)


def tiny_loaded(spec: str, *_: object, batch_size: int | None = 1, **__: object) -> Loaded:
    module, inputs = tiny(spec, batch_size=batch_size or 1)
    return Loaded(module, inputs, spec)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models in place of those of the zoo, and graphs that run as they are in place of compiled ones."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    for module in (conv_in_model, end_to_end, layer_times, oracles, timer_validation):
        monkeypatch.setattr(module, "load_model", tiny)
    monkeypatch.setattr(recomputation, "load_model", deep)
    for module in (abstraction_levels, training_batches, twelve_models):
        monkeypatch.setattr(module, "load_real", tiny_loaded)
    monkeypatch.setattr(twelve_models, "load", tiny_loaded)
    without = {name: level for name, level in levels.LEVELS.items() if name != "C++ runtime"}
    for module in (abstraction_levels, abstraction_calls):
        monkeypatch.setattr(module, "LEVELS", without)
    monkeypatch.setattr(oracles, "plan", lambda *_, **__: None)
    monkeypatch.setattr(oracles, "apply", lambda module, *_: module)
    monkeypatch.setattr(speedup_network, "read_frame", lambda _: (units(), {}))
    for cached in (speedup_network.speedup_table, speedup_network.time_table):
        cached.cache_clear()
    yield
    for cached in (speedup_network.speedup_table, speedup_network.time_table):
        cached.cache_clear()


CONVOLUTION = (
    "graph _ {{\n  input %a0: float32[{batch},8,{size},{size}]\n  param %p0: float32[16,8,1,1]\n"
    "  %0 = convolution(input=%a0, weight=%p0, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], "
    "transposed=False, output_padding=[0, 0], groups=1) : float32[{batch},16,{size},{size}]\n  return %0\n}}"
)


def units() -> pd.DataFrame:
    """Dataset of convolutions of models, and of units that were measured in two ways."""
    rows = []
    for number in range(40):
        batch, size = 1 + number % 2, 4 + number // 2
        graph = CONVOLUTION.format(batch=batch, size=size)
        common = {"graph": graph, "status": "ok", "device_us_p50": 5.0 + number, "host_us_p25": 20.0}
        rows.append(
            {**common, "key": f"k{number}", "runner": "aten", "unit": "", "way": "", "position": 0.5, "source": "tv:x"}
        )
        unit = f"conv-{batch}-8-16-{size}-1-1-0-1-1-float32-1-0-1"
        for way, runner in (("eager", "aten"), ("inductor", "inductor")):
            rows.append({**common, "key": unit + way, "runner": runner, "unit": unit, "way": way, "source": "conv"})
    return pd.DataFrame(rows)


def measured_table(experiment: Experiment, directory: Path) -> pd.DataFrame:
    setup = Setup("cpu", True, directory, rehearses=True)
    table = Table(directory / f"{experiment.name}.csv", {"device": "cpu", "torch": torch.__version__})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for point in experiment.run(setup):
            table.add(point.name, measured(point))
    return table.frame


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_quick_run_measures_every_point_draws_and_judges(experiment: Experiment, tmp_path: Path):
    frame = measured_table(experiment, tmp_path)
    lacking = {point: reason for point, reason in skipped(frame).items() if reason not in ON_CUDA_ONLY.values()}
    if experiment.name == "conv-in-model":  # without Inductor there is no compiled call to read
        assert lacking.popitem() == ("inside the model", "the compiled model calls 0 convolutions, the eager one 2")
    assert not lacking
    with_values = frame[frame["value"].notna()]
    assert len(with_values)
    assert (with_values["quantity"] != "").all()
    found = judged(experiment, frame)
    assert found.measured
    assert "too few" not in found.measured
    figure = experiment.figure(with_values)
    assert any(axes.has_data() for axes in figure.axes)
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)


@pytest.mark.parametrize("level", ON_CUDA_ONLY)
def test_a_level_that_the_device_lacks_is_left_out_with_its_reason(level: str, tmp_path: Path):
    points = {point.name: point for point in abstraction_calls.EXPERIMENT.run(Setup("cpu", True, tmp_path))}
    (row,) = measured(points[level])
    assert row["note"] == f"skipped: {ON_CUDA_ONLY[level]}"


def test_equal_figures_are_equal_files(tmp_path: Path):
    written = []
    for directory in (tmp_path / "a", tmp_path / "b"):
        directory.mkdir()
        figure, (panel,) = plots.new_figure()
        panel.plot([1, 2], [3, 4])
        written.append([path.read_bytes() for path in plots.save(figure, directory, "x")])
    assert written[0] == written[1]
    png, svg = written[0]
    assert png.startswith(b"\x89PNG")
    assert b"</svg>" in svg


def test_eager_and_traced_levels_compute_the_same():
    module, inputs = tiny("x")
    expected = bound(module, inputs)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = levels.torchscript(module, inputs)()
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_plan_of_the_cudnn_level_fuses_convolutions_with_a_relu():
    module, inputs = tiny("x")
    plan = levels.cudnn_plan(module, inputs)
    assert [region.backend for region in plan.regions].count("cudnn") == 1
    assert plan.launch == "stream"
    eager = replace(plan, regions=tuple(replace(region, backend="eager") for region in plan.regions))
    assert torch.allclose(bound(apply(module, eager, inputs), inputs)(), bound(module, inputs)(), atol=1e-5)


def test_python_calls_are_counted_from_the_convolution_module():
    module = abstraction_calls.Convolution().eval()
    image = torch.randn(1, abstraction_calls.CHANNELS, 8, 8)
    assert abstraction_calls.python_calls(bound(module, (image,))) == 2  # forward and _conv_forward
    assert abstraction_calls.python_calls(bound(torch.relu, (image,))) == 0


def test_random_rows_and_shapes_are_split_into_folds():
    folds = speedup_network.random_rows(10)
    assert sorted(folds.tests.tolist()).count(0) in (2, 3)
    assert (folds.learns.sum(0) == speedup_network.FOLDS - 1).all()


def test_shapes_are_drawn_with_all_their_rows():
    shape = np.array([3, 1, 2, 3, 1, 3])
    for rows in (1, 2, 3, 4, 6):
        mask = speedup_network.whole_shapes(shape, rows)
        assert mask.sum() >= rows
        assert not set(shape[mask]) & set(shape[~mask])
    assert speedup_network.whole_shapes(shape, 100).all()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("conv-1-3-7-15-1-1-0-1-1-float32-1-0-1", [1, 2, 3, 4, 1, 1, 0, 1, 1, 0]),
        ("conv-wide-1-3", None),
        ("matmul-1", None),
    ],
)
def test_parameters_in_a_units_name(name: str, fields: list[float] | None):
    assert speedup_network.unit_fields(name) == fields


def test_shapes_do_not_depend_on_batch_and_precision():
    names = ("conv-1-3-7-15-1-1-0-1-1-float32-1-0-1", "conv-8-3-7-15-1-1-0-1-1-float16-1-0-1")
    assert len({speedup_network.shape_of(name) for name in names}) == 1
    assert speedup_network.shape_of(names[0]) != speedup_network.shape_of(names[0].replace("-7-15", "-7-16"))


def test_layers_in_series_are_a_chain_of_costs_without_switching():
    costs = oracles.LayerCosts([{"eager": 3.0, "compiled": 2.0}, {"eager": 1.0, "compiled": 5.0}])
    for strategy in oracles.STRATEGIES.values():
        decision = strategy(oracles.chain(2), costs)
        assert decision.cost == 3.0
        assert decision.choices == {0: "compiled", 1: "eager"}
    found = oracles.oracle_costs(costs.times)
    assert found == {"all eager": 4.0, "all compiled": 7.0} | dict.fromkeys(oracles.STRATEGIES, 3.0)


@pytest.mark.parametrize(
    ("cpu", "profile"), [("Intel(R) Xeon(R)", "intel-xeon-16-threads"), ("x", "amd-epyc-2-threads")]
)
def test_a_cpu_has_the_profile_of_a_like_one(cpu: str, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hardware, "environment", lambda _: {"host_cpu": cpu})
    assert hardware.profile_name(Setup("cpu", True, tmp_path)) == profile


@pytest.mark.parametrize(
    ("model", "blocks"),
    [
        ("alexnet", 13 + 2 + 7),  # features, pooling and flattening, classifier
        ("densenet121", 4 + 7 + 1 + 4),  # stem, dense blocks with transitions, norm, head
        ("googlenet", 5 + 2 + 1 + 5 + 1 + 2 + 4),  # stem, inceptions with pools, head
        ("mobilenet_v2", 19 + 4),  # features, head
        ("resnet50", 4 + 16 + 3),  # stem, blocks, head
        ("squeezenet1_1", 13 + 5),  # features, head
    ],
)
def test_each_model_of_the_study_is_a_sequence_of_blocks(model: str, blocks: int):
    assert len(Layers(zoo.load(model).module, "block").names) == blocks


def test_layer_times_measure_modes_that_search_last_and_without_templates_of_convolutions(tmp_path: Path):
    from torch._inductor import config

    names = [point.name for point in layer_times.run(Setup("cuda", False, tmp_path))]
    searching = ["max-autotune" in name for name in names]
    assert searching == sorted(searching)
    assert sum(searching) == 2
    assert len(names) == 20
    with layer_times._library_convolutions():
        assert config.max_autotune_conv_backends == "ATEN"
    assert config.max_autotune_conv_backends != "ATEN"
