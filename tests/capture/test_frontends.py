"""Ways of capture: the same graph from each, and what each cannot do said in one line."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.frontends import WAYS, convert
from costmodel.capture.trace import capture
from costmodel.cli import options
from costmodel.errors import CaptureError
from costmodel.prediction.predict import WAYS as WAYS_OF_PREDICT
from costmodel.zoo import load

IMAGE = (torch.empty(2, 3, 16, 16, device="meta"),)


class Talking(nn.Module):
    """A pass that prints, which torch.compile cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.conv(x)).mean((2, 3))
        self.say()
        return self.head(x)

    @torch._dynamo.disable
    def say(self):
        pass


class Branching(Talking):
    """A pass that goes by data."""

    def forward(self, x):
        x = self.conv(x)
        return x * 2 if x.sum() > 0 else x


def test_the_command_offers_every_way():
    assert [way.value for way in options.Capture] == list(WAYS_OF_PREDICT) == [*WAYS, "dynamo"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["resnet18", "googlenet"])
def test_every_way_leads_to_the_same_operators(model: str, way: str):
    loaded = load(model)
    converted = convert(loaded.module, loaded.inputs, way)
    found, own = capture(converted, loaded.inputs, model), capture(loaded.module, loaded.inputs, model)
    assert [op.op for op in found.ops] == [op.op for op in own.ops]
    assert [op.types for op in found.ops] == [op.types for op in own.ops]


@pytest.mark.parametrize(("way", "said"), [("fx", "FX symbolic tracing fails"), ("export", "torch.export fails")])
def test_what_a_way_cannot_do_is_told_in_one_line(way: str, said: str):
    with pytest.raises(CaptureError, match=said) as caught:
        convert(Branching().to("meta").eval(), IMAGE, way)
    assert "\n" not in str(caught.value)


class Attending(nn.Module):
    """Operators that a meta device would take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        return self.lstm(nn.functional.scaled_dot_product_attention(x, x, x)[:, 0])[0]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_keeps_whole_what_a_device_has_kernels_for(way: str):
    module = convert(Attending().to("meta").eval(), IMAGE, way)
    found = [op.base for op in capture(module, IMAGE, "a").ops]
    assert found.count("scaled_dot_product_attention") == found.count("lstm") == 1
    assert "bmm" not in found
    assert "sigmoid" not in found


def test_a_recurrent_module_breaks_the_graph_also_if_that_is_not_checked():
    module = Attending().to("meta").eval()
    breaks = capture(module, IMAGE, "a", partial=True).breaks
    assert [(item.kind, item.op, item.module) for item in breaks] == [("cut", "Dynamo does not follow nn.LSTM", "lstm")]
    assert breaks[0].source.startswith("test_frontends.py:") or "/test_frontends.py:" in breaks[0].source
    report = costmodel.predict(module, IMAGE, hardware="nvidia-h200", check=False)
    assert set(report.modes) == {"eager", "default"}
    assert (report.graphs.count, report.graphs.checked) == (None, False)
    assert [item.reason for item in report.graphs.breaks] == ["Dynamo does not follow nn.LSTM"]


def test_what_torch_writes_besides_is_not_shown(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(CaptureError, match=r"torch\.export fails"):
        convert(Branching().to("meta").eval(), IMAGE, "export")
    assert capfd.readouterr() == ("", "")
