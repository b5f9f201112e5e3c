"""Models that ask for a GPU, checked for graph breaks on a machine without one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.dynamo import Place, trace_with_dynamo
from costmodel.capture.with_partition import capture_with_partition

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is traced as it is")

STATEMENTS = {
    "method": lambda y: y.cuda() + torch.arange(4).cuda(),
    "name": lambda y: y.to("cuda") + torch.zeros(4, device="cuda"),
    "device": lambda y: y + torch.ones(4).to(torch.device("cuda")),
    "keyword": lambda y: y.to(device="cuda", dtype=torch.float32) * 2,
    "synchronized": lambda y: (torch.cuda.synchronize(), y.cuda())[1],
}


class Asks(nn.Module):
    """Layers around a statement that asks for a GPU."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.statement = STATEMENTS[name]

    def forward(self, x):
        return self.two(self.statement(self.one(x)))


@pytest.mark.parametrize("name", STATEMENTS)
def test_graphs_of_models_that_ask_for_a_gpu(name: str):
    graph = capture_with_partition(Asks(name).eval(), (torch.rand(2, 4),), "asks")
    assert graph.partition is not None
    assert graph.partition.is_whole
    assert graph.breaks == ()
    assert [op.base for op in graph.ops].count("addmm") == 2


def test_breaks_of_models_that_ask_for_a_gpu():
    class Prints(nn.Module):
        def forward(self, x):
            y = x.cuda() * 2
            print("computed")
            return y + torch.ones(4).cuda()

    graph = capture_with_partition(Prints(), (torch.rand(2, 4),), "prints")
    assert graph.partition is not None
    assert graph.partition.sections == (0, 1)
    assert [item.op for item in graph.breaks] == ["print()"]


class OnGpu(nn.Module):
    """Branches by the device of the input, and keeps a tensor on the CPU in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.ones(4)

    def forward(self, x):
        if not x.is_cuda or x.device.type != "cuda":
            print("on a CPU")
        return x + self.shift.cuda()


def test_tensors_say_that_they_are_on_a_gpu():
    trace = trace_with_dynamo(OnGpu().eval(), (torch.rand(2, 4),), Place.FAKE_GPU)
    assert trace.breaks == ()
    assert [section.graph for section in trace.sections] == [0]


def test_values_are_read_on_the_cpu_instead():
    """The rest of the pass is predicted, although Dynamo cannot trace it here."""

    class Reads(nn.Module):
        def forward(self, x):
            y = x.cuda() * 2
            return y + 1 if y.sum() > 0 else y

    graph = capture_with_partition(Reads(), (torch.ones(2, 4),), "reads")
    assert not graph.partial
    assert graph.partition is None
    assert [op.base for op in graph.ops][-1] == "add"


def test_streams_and_events_do_nothing():
    class Streams(nn.Module):
        def forward(self, x):
            begun = torch.cuda.Event(enable_timing=True)
            begun.record()
            with torch.cuda.stream(torch.cuda.Stream()):
                y = x * 2
            torch.cuda.current_stream().wait_stream(torch.cuda.Stream())
            return y + begun.elapsed_time(begun)

    graph = capture_with_partition(Streams(), (torch.ones(2, 4),), "streams")
    assert [op.base for op in graph.ops] == ["mul", "add"]
