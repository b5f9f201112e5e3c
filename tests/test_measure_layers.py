"""Layers measured in the running model: operators aligned by hand, and a model whose layers differ much."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import costmodel
from costmodel.capture import capture
from costmodel.errors import MeasurementError
from costmodel.measure_layers import LayerResult, calls_of, match, measure_regions, profiled
from costmodel.plan import Region
from costmodel.report.plans import render_validation, validation_sheet
from tests.test_apply import plan_for


class Uneven(nn.Module):
    """A large product and a small one, with views and an addition of its own between them."""

    def __init__(self):
        super().__init__()
        self.large, self.small = nn.Linear(512, 512), nn.Linear(8, 8)

    def forward(self, x):
        x = torch.relu(self.large(x))
        return self.small((x + 1).view(-1, 8)).flatten()


NET, X = Uneven().eval(), torch.randn(256, 512)


def test_the_captured_calls_are_those_that_a_pass_makes():
    captured = calls_of(capture(NET, (X,)))
    made, us = profiled(NET, (X,))
    assert list(captured.values()) == made
    assert made == [("large", (256, 512)), ("", (256, 512)), ("", (256, 512)), ("small", (16384, 8))]
    assert all(took > 0 for took in us)
    assert max(us) == us[0]  # 134 million multiplications
    assert not nn.modules.module._global_forward_hooks


def test_calls_are_aligned_in_order():
    captured = {"0": ("a", (1,)), "1": ("b", (2,)), "2": ("b", (2,)), "3": ("c", (3,))}
    made = [("a", (1,)), ("x", (9,)), ("b", (2,)), ("b", (2,)), ("c", (4,))]
    assert match(captured, made, [1.0, 2.0, 3.0, 4.0, 5.0]) == {"0": 1.0, "1": 3.0, "2": 4.0}


@given(st.lists(st.sampled_from("abc"), max_size=8), st.data())
def test_operators_that_only_the_pass_makes_cost_no_partner(names, data):
    captured = {str(i): (name, (i,)) for i, name in enumerate(names)}
    made, us = [], []
    for i, call in enumerate(captured.values()):
        for _ in range(data.draw(st.integers(0, 2))):
            made.append(("extra", ()))
            us.append(-1.0)
        made.append(call)
        us.append(float(i))
    assert match(captured, made, us) == {str(i): float(i) for i in range(len(names))}


@pytest.fixture(scope="module")
def result():
    return costmodel.validate(NET, (X,), hardware="amd-epyc-2-threads", modes=(), seconds=0.001, layers=True)


def test_every_layer_is_predicted_and_measured(result):
    names = [layer.name for layer in costmodel.predict(NET, (X,), hardware="amd-epyc-2-threads").layers]
    assert [layer.name for layer in result.layers] == names
    assert {"large", "small"} <= set(names)
    assert all(layer.measured_us > 0 for layer in result.layers)
    assert json.loads(render_validation(result, "json"))["layers"][0]["name"] == "large"


def test_the_layers_that_take_most_are_shown_in_order(result, monkeypatch):
    monkeypatch.setattr("costmodel.report.plans.TOP_LAYERS", 1)
    (_, (title, _, rows)) = validation_sheet(result, "top").sections
    assert title == f"eager layers: the 1 of {len(result.layers)} that take most"
    assert [row[0] for row in rows] == ["large"]
    (_, (_, _, rows)) = validation_sheet(result, "all").sections
    assert [row[0] for row in rows] == [layer.name for layer in result.layers]


def test_a_layer_without_a_measurement_has_no_error():
    assert LayerResult("a", "relu", 3.0, 2.0).error == pytest.approx(0.5)
    assert LayerResult("a", "relu", 3.0, None).error is None
    assert LayerResult("a", "relu", None, 2.0).error is None


def test_every_region_of_a_plan_is_measured_alone():
    plan = plan_for(NET, (X,))
    found = costmodel.validate(NET, (X,), plan=plan, hardware="nvidia-h200", modes=(), seconds=0.001, layers=True)
    assert [region.predicted_us for region in found.regions] == [region.us for region in plan.regions]
    assert [region.kind for region in found.regions] == [region.backend for region in plan.regions]
    assert all(region.measured_us > 0 for region in found.regions)
    titles = [title for title, *_ in validation_sheet(found).sections]
    assert titles == ["predicted and measured", "regions of the plan, alone", "eager layers"]


def test_a_region_that_cannot_be_measured_has_no_time(monkeypatch):
    def refuse(*_, **__):
        raise MeasurementError("no")

    monkeypatch.setattr("costmodel.measure_layers.device_time", refuse)
    planned = costmodel.apply(NET, plan_for(NET, (X,)), (X,))
    assert {region.measured_us for region in measure_regions(planned, (X,))} == {None}
    assert torch.equal(planned(X), planned(X))


def test_modules_of_a_region_in_short():
    regions = [Region("eager", ("0",), names, 1.0) for names in ((), ("a",), ("a", "b", "c"))]
    assert [region.span for region in regions] == ["", "a", "a ... c"]
