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
    assert [way.value for way in options.Capture] == list(WAYS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["resnet18", "googlenet"])
def test_every_way_leads_to_the_same_operators(model: str, way: str):
    loaded = load(model)
    converted = convert(loaded.module, loaded.inputs, way)
    found, own = capture(converted.module, loaded.inputs, model), capture(loaded.module, loaded.inputs, model)
    assert [op.op for op in found.ops] == [op.op for op in own.ops]
    assert [op.types for op in found.ops] == [op.types for op in own.ops]
    assert not converted.cuts
    assert len(converted.fragments) == (way == "dynamo")


def test_dynamo_names_the_line_where_it_gives_up():
    report = costmodel.predict(
        Talking().to("meta").eval(), IMAGE, hardware="nvidia-h200", explain=True, frontend="dynamo"
    )
    (reason,) = [item for item in report.explanation if item.topic == "break"]
    assert "test_frontends.py:" in reason.where
    assert reason.why.startswith("a graph break: ")
    assert any(text.startswith("1 graph break leaves about 2 subgraphs") for text in report.warnings)
    assert not report.partial
    assert "reduce-overhead" not in report.modes
    pieces = [item for item in report.explanation if item.topic == "subgraph"]
    assert [item.where.split(" (")[0] for item in pieces] == ["1 of 2", "2 of 2"]
    assert [item.why.split()[0] for item in pieces] == ["3", "1"]  # convolution, ReLU, mean; the head


@pytest.mark.parametrize(("way", "said"), [("fx", "FX symbolic tracing fails"), ("export", "torch.export fails")])
def test_what_a_way_cannot_do_is_told_in_one_line(way: str, said: str):
    with pytest.raises(CaptureError, match=said) as caught:
        convert(Branching().to("meta").eval(), IMAGE, way)
    assert "\n" not in str(caught.value)


class Both(Talking):
    """A pass that prints, then goes by data."""

    def forward(self, x):
        x = self.conv(x)
        self.say()
        return x * 2 if x.sum() > 0 else x


def test_dynamo_leaves_data_to_the_recorder():
    report = costmodel.predict(Both().to("meta").eval(), IMAGE, hardware="nvidia-h200", frontend="dynamo")
    assert report.partial
    said, asked = report.unsupported  # each place once, though Dynamo gives up at both
    assert {said.op, asked.op} > {"control_flow"}
    assert said.where != asked.where


class Attending(nn.Module):
    """Operators that a meta device would take apart."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        return self.lstm(nn.functional.scaled_dot_product_attention(x, x, x)[:, 0])[0]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_keeps_whole_what_a_device_has_kernels_for(way: str):
    module = convert(Attending().to("meta").eval(), IMAGE, way).module
    found = [op.base for op in capture(module, IMAGE, "a").ops]
    assert found.count("scaled_dot_product_attention") == found.count("lstm") == 1
    assert "bmm" not in found
    assert "sigmoid" not in found


def test_a_recurrent_module_cuts_the_graph():
    module = Attending().to("meta").eval()
    breaks = capture(module, IMAGE, "a", partial=True).breaks
    assert [(item.kind, item.op, item.module) for item in breaks] == [("cut", "Dynamo does not follow nn.LSTM", "lstm")]
    assert breaks[0].source.startswith("test_frontends.py:") or "/test_frontends.py:" in breaks[0].source
    report = costmodel.predict(module, IMAGE, hardware="nvidia-h200")
    assert set(report.modes) == {"eager", "default"}
    assert report.verdict == "uncertain"
    (said,) = report.unsupported
    assert said.where.startswith("lstm (")


def test_what_torch_writes_besides_is_not_shown(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(CaptureError, match=r"torch\.export fails"):
        convert(Branching().to("meta").eval(), IMAGE, "export")
    assert capfd.readouterr() == ("", "")
