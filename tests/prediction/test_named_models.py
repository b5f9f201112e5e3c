"""Predictions of models given by name, in Python."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import costmodel
from costmodel.errors import RequestError, UnknownModelError

H200 = "nvidia-h200"


def test_a_name_is_predicted_as_the_command_line_does() -> None:
    report = costmodel.predict("alexnet", batch_size=2, img_size=128, precision="float16", hardware=H200)
    assert (report.model, report.input_shape, report.precision) == ("alexnet", (2, 3, 128, 128), "float16")
    assert report.graphs.count == 1  # of the list of models known to be one graph
    assert report.parameters == 61_100_840  # torchvision's documentation
    assert report.tree().module_type == "AlexNet"


def test_a_name_can_be_replaced_in_the_report() -> None:
    report = costmodel.predict("alexnet", model_name="ours", channels_last=True, hardware=H200, check=False)
    assert (report.model, report.layout) == ("ours", "nhwc")


def test_an_unknown_name_suggests_others() -> None:
    with pytest.raises(UnknownModelError, match="alexnet"):
        costmodel.predict("alexnte", hardware=H200)


@pytest.mark.parametrize("option", [{"batch_size": 2}, {"img_size": 64}, {"precision": "float16"}])
def test_a_module_decides_what_options_decide_for_a_name(option: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(option))} is an option of a model given by name"):
        costmodel.predict(nn.ReLU(), (torch.empty(4),), hardware=H200, **option)  # type: ignore[arg-type]


def test_a_named_model_brings_its_own_inputs() -> None:
    with pytest.raises(RequestError, match="alexnet brings its own inputs; leave out inputs"):
        costmodel.predict("alexnet", (torch.empty(4),), hardware=H200)
