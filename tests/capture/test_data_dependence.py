"""Data-dependent control flow: the part of the forward pass that is kept, and the name of its place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from costmodel import zoo
from costmodel.capture.trace import capture
from costmodel.errors import CaptureError, DataDependentError
from costmodel.ir import Break, Graph, TensorType, parse
from costmodel.timeline.issue_trace import compiled_trace, eager_trace

X = torch.empty(2, 3, 8, 8, device="meta")


class Calls(nn.Module):
    """A module whose forward pass is a function of itself and its inputs."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.function(self, *inputs, **named)


def bases(graph: Graph) -> list[str]:
    return [op.base for op in graph.ops]


def in_part(function: Callable[..., Any], *inputs: Any, **attributes: Any) -> Graph:
    return capture(Calls(function, **attributes).eval(), inputs or (X,), "g", partial=True)


class Detector(nn.Module):
    """Stops after its first layer, before its second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 1)
        self.second = nn.Sequential(nn.Conv2d(4, 5, 1), nn.Conv2d(5, 6, 1))
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.first(x)
        if features.sum() > 0:
            return self.second(features)
        return self.activation(features)


STOP = inspect.getsourcelines(Detector.forward)[1] + 2
"""The line of the branch: the second after `def forward`."""


class TestStop:
    def test_keeps_what_came_before_and_names_the_place(self) -> None:
        graph = capture(nn.Sequential(Detector()), (X,), partial=True)
        assert bases(graph) == ["convolution", "sum", "gt"]
        (found,) = graph.breaks
        assert (found.kind, found.op, found.module, found.missed) == ("stop", "control_flow", "0", ("0.second",))
        assert Path(found.source).name == f"test_data_dependence.py:{STOP}"
        assert graph.partial

    def test_returns_what_nothing_has_read(self) -> None:
        graph = in_part(lambda _, x: [x.relu().exp(), x.sin(), x.var().item()])
        assert [graph.ops[int(ref.name)].base for ref in graph.outputs] == ["exp", "sin", "var"]

    def test_can_be_printed_and_lowered(self) -> None:
        graph = capture(Detector(), (X,), partial=True)
        assert parse(str(graph)) == graph
        assert f"  break stop control_flow @ {graph.breaks[0].source} misses second\n" in str(graph)
        assert len(eager_trace(graph).kernels) == 3
        assert compiled_trace(graph).kernels

    def test_is_refused_unless_asked_for(self) -> None:
        with pytest.raises(DataDependentError, match="needs the values of a tensor"):
            capture(Detector(), (X,))

    @pytest.mark.parametrize(
        "ask",
        [
            lambda y: y.sum().item(),
            lambda y: y.tolist(),
            lambda y: y.numpy(),
            lambda y: y.cpu(),
            lambda y: bool(y.any()),
            lambda y: y.unique(),
            lambda y: range(y.argmax()),
            lambda y: torch.equal(y, y + 1),
            lambda y: torch.repeat_interleave(y, y.long().flatten()),
        ],
    )
    def test_at_whatever_needs_values(self, ask: Callable[[torch.Tensor], Any]) -> None:
        graph = in_part(lambda _, x: ask(x.relu()))
        assert bases(graph)[0] == "relu"
        assert [item.kind for item in graph.breaks] == ["stop"]

    def test_before_anything_was_computed_is_refused(self) -> None:
        with pytest.raises(DataDependentError):
            in_part(lambda m, x: x * m.scale.item(), scale=nn.Buffer(torch.ones(())))

    def test_errors_of_another_kind_stay_errors(self) -> None:
        def boom(_: Any, x: torch.Tensor) -> None:
            raise ValueError(f"{x.relu().shape} is no shape of mine")

        with pytest.raises(CaptureError, match="no shape of mine"):
            in_part(boom)
        with pytest.raises(CaptureError, match="RuntimeError"):
            capture(nn.Sequential(nn.ReLU(), nn.Linear(5, 5)), (X,), partial=True)


class TestSize:
    @pytest.mark.parametrize(
        ("function", "op", "shape"),
        [
            (lambda _, x: x.nonzero() + 1, "nonzero", (384, 4)),  # 2 x 3 x 8 x 8 places of 4 coordinates
            (lambda _, x: x[x > 0] + 1, "index", (384,)),
            (lambda _, x: x[x.sum((1, 2, 3)) > 0] + 1, "index", (2, 3, 8, 8)),
            (lambda _, x: x.masked_select(x[:1] > 0) + 1, "masked_select", (384,)),
            (lambda _, x: torch.where(x > 0)[0] + 1, "nonzero", (384,)),
        ],
    )
    def test_is_taken_at_its_largest(self, function: Callable[..., Any], op: str, shape: tuple[int, ...]) -> None:
        graph = in_part(function)
        assert graph.ops[-1].type.shape == shape
        assert [(item.kind, item.op) for item in graph.breaks] == [("size", op)]
        assert Path(graph.breaks[0].source).name.startswith("test_data_dependence.py:")
        assert not graph.partial

    def test_a_place_is_named_once(self) -> None:
        assert len(in_part(lambda _, x: [row.nonzero() for row in x]).breaks) == 1


class TestConstants:
    """Tensors that depend on neither inputs nor parameters have values, and control flow may depend on them."""

    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (lambda _, x: x.relu() if torch.ones(3, device=x.device).all() else x.exp(), ["relu"]),
            (lambda _, x: x.relu() if torch.zeros(3, device=x.device).any() else x.exp(), ["exp"]),
            (lambda _, x: x.relu() if torch.tensor([2, 3], device=x.device).sum() == 5 else x.exp(), ["relu"]),
            (lambda _, x: [x.relu()] * int(torch.arange(4, device=x.device).max()), ["relu"]),
        ],
    )
    def test_are_followed(self, function: Callable[..., Any], expected: list[str]) -> None:
        graph = capture(Calls(function), (X,))
        assert bases(graph) == expected

    def test_through_writes_into_views(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            sizes = torch.empty((2, 2), dtype=torch.long, device=x.device)
            for row, (height, width) in enumerate([(8, 8), (4, 2)]):
                sizes[row, 0] = height
                sizes[row, 1] = width
            return x * (sizes[:, 0] * sizes[:, 1]).sum().item()

        assert capture(Calls(forward), (X,)).ops[-1].arg("other") == 72  # 8 x 8 + 4 x 2

    def test_end_where_data_is_written_into_them(self) -> None:
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            mask = torch.ones(8, device=x.device)
            rows = mask.view(2, 4)
            mask[1:2] = x[0, 0, 0, :1]
            return x if rows.all() else -x

        with pytest.raises(DataDependentError):
            capture(Calls(forward), (X,))

    def test_of_chance_have_none(self) -> None:
        with pytest.raises(DataDependentError):
            capture(Calls(lambda _, x: x * torch.rand((), device=x.device).item()), (X,))


class TestNamedInputs:
    def test_reach_their_parameters(self) -> None:
        inputs = {"mask": torch.empty(8, device="meta"), "images": X, "scale": 3}
        graph = capture(Calls(lambda _, images, scale, mask: images * scale + mask), inputs)
        assert [value.type.shape for value in graph.inputs] == [(8,), (2, 3, 8, 8)]
        assert [str(op.op) for op in graph.ops] == ["mul.Tensor", "add.Tensor"]
        assert graph.ops[0].arg("other") == 3

    def test_are_as_good_as_positional_ones(self) -> None:
        assert capture(nn.Linear(8, 2), {"input": X}) == capture(nn.Linear(8, 2), (X,))


def test_the_text_of_a_break() -> None:
    found = Break("size", "nms", "head", "net.py:3")
    graph = Graph("g", (), (), (), breaks=(found, Break("stop", "control_flow", "", "a/b.py:4", ("x", "y.0"))))
    assert str(graph).splitlines()[1:3] == [
        "  break size nms @head net.py:3",
        "  break stop control_flow @ a/b.py:4 misses x,y.0",
    ]
    assert parse(str(graph)) == graph


@pytest.mark.parametrize(
    ("model", "missed"),
    [
        ("ssdlite320_mobilenet_v3_large", ()),
        ("maskrcnn_resnet50_fpn", ("roi_heads.mask_head", "roi_heads.mask_predictor")),
    ],
)
def test_detectors(model: str, missed: tuple[str, ...]) -> None:
    loaded = zoo.load(model)
    graph = capture(loaded.module, loaded.inputs, partial=True)
    (stop,) = [item for item in graph.breaks if item.kind == "stop"]
    assert stop.missed == missed
    assert stop.source.startswith("torchvision/ops/boxes.py:")
    if missed:  # both layers of the box head ran on the 1000 boxes that suppression leaves at most
        heads = [op.types[0] for op in graph.ops if op.base == "addmm" and op.module.startswith("roi_heads.box_head")]
        assert heads == [TensorType("float32", (1000, 1024))] * 2
