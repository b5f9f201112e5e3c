"""Reasons behind a prediction, for modules made so that each reason applies."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

import costmodel
from costmodel.errors import RequestError
from costmodel.report import Reason, render


def explained(module: nn.Module, *shape: int) -> costmodel.Report:
    image = torch.empty(*shape, device="meta")
    return costmodel.predict(module.eval(), (image,), hardware="nvidia-h200", explain=True)


def about(report: costmodel.Report, topic: str) -> list[Reason]:
    return [item for item in report.explanation if item.topic == topic]


class Branching(nn.Module):
    """A convolution, an in-place ReLU, and a branch on data."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 64, 3), nn.Linear(64, 4)

    def forward(self, x):
        x = torch.relu_(self.conv(x)).mean((2, 3))
        return self.head(x) if x.sum() > 0 else x


def test_every_mode_is_bounded_by_host_or_device():
    report = explained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), 1, 3, 32, 32)
    assert [item.where for item in about(report, "mode")] == list(report.modes)
    assert about(report, "mode")[0].why.startswith("host-bound")
    large = explained(nn.Sequential(nn.Conv2d(64, 512, 3), nn.ReLU()), 64, 64, 112, 112)
    assert about(large, "mode")[0].why.startswith("device-bound")


def test_breaks_and_mutations_are_named():
    report = explained(Branching(), 2, 3, 32, 32)
    (stop,) = about(report, "break")
    assert "test_explain.py" in stop.where
    assert "not predicted: head" in stop.why
    (mutation,) = about(report, "mutation")
    assert mutation.where == "relu (1)"


def test_what_inductor_leaves_to_aten_is_named():
    layer, x = nn.LSTM(8, 8).eval(), torch.empty(4, 2, 8)
    whole = costmodel.predict(layer, (x,), hardware="nvidia-h200", explain=True, check=False)
    (lstm,) = about(whole, "fall-back")
    assert lstm.where == "lstm"
    assert lstm.why.startswith("Inductor calls ATen 1 times")
    assert not about(explained(nn.LSTM(8, 8), 4, 2, 8), "fall-back")  # Dynamo leaves it out of its graphs
    assert not about(explained(nn.Sequential(nn.Linear(8, 8), nn.GELU()), 4, 8), "fall-back")


def test_a_lone_convolution_loses_to_the_conversion_of_its_layout():
    report = explained(nn.Sequential(nn.Conv2d(3, 64, 3)), 2, 3, 32, 32)
    losing = [layer.name for layer in report.layers if layer.speedup and layer.speedup < 0.97]
    assert [item.where for item in about(report, "layer")] == losing == ["0"]
    assert "layout conversion" in about(report, "layer")[0].why


def test_what_a_layer_loses_is_the_sum_of_its_causes():
    """Layers that change the memory order pay for copies: every loss has a cause with a figure."""
    report = costmodel.predict("densenet121", batch_size=1, hardware="nvidia-h200", explain=True)
    losses = about(report, "layer")
    assert losses
    for item in losses:
        was, now, causes = re.fullmatch(r"([\d.]+) us to ([\d.]+) us: (.+)", item.why).groups()
        more = [float(found) for found in re.findall(r"([\d.]+) us (?:more|slower|longer)", causes)]
        lost = float(now) - float(was)
        assert more
        assert sum(more) > 0.6 * lost  # four parts; those that are not named are below a fifth of it, or a gain


def test_a_view_made_in_place_is_no_mutation():
    class Turned(nn.Module):
        def forward(self, x):
            x = x * 2
            x[:, 0].exp_()
            return x.transpose_(2, 3)

    (mutation,) = about(explained(Turned(), 2, 3, 8, 8), "mutation")
    assert mutation.where == "exp (1)"


@pytest.mark.parametrize("form", ["table", "md", "html"])
def test_every_format_for_people_shows_them(form):
    report = explained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), 1, 3, 32, 32)
    assert "host-bound" in render(report, form)


def test_json_has_them_only_where_they_were_asked_for():
    module, image = nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), torch.empty(1, 3, 8, 8)
    assert "explanation" not in json.loads(render(costmodel.predict(module, (image,), hardware="nvidia-h200"), "json"))
    found = json.loads(render(explained(module, 1, 3, 8, 8), "json"))["explanation"]
    assert {"topic", "where", "why"} == set(found[0])


def test_what_a_list_of_shapes_recompiles():
    module, image = nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), torch.empty(1, 3, 32, 32, device="meta")
    later = [(8, 3, 32, 32), (16, 3, 32, 32), (8, 3, 64, 64)]
    report = costmodel.predict(module, (image,), hardware="nvidia-h200", explain=True, shapes=later)
    (reason,) = about(report, "recompilation")
    assert reason.where == "4 input shapes"
    assert reason.why.startswith("3 variants, about ")
    assert reason.why.endswith(": 1x3x32x32, ?x3x32x32, ?x3x?x?. reduce-overhead captures 4 CUDA graphs")
    with pytest.raises(RequestError, match="the shape 8x3 does not fit this model's input; give one like 1x3x32x32"):
        costmodel.predict(module, (image,), hardware="nvidia-h200", explain=True, shapes=[(8, 3)])
