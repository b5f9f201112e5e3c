"""Partition of a pass against torch.compile itself, on modules built at random from every kind of break."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.capture.frontends import convert
from costmodel.capture.with_partition import capture_with_partition
from costmodel.ir import Graph, operators
from costmodel.ir.partition import Partition
from tests.support.broken_modules import BREAKS, LAYERS, NO_BREAKS, build, entered_by_torch, run_by_torch

steps = st.lists(st.sampled_from([*BREAKS, *NO_BREAKS, *map(str, range(len(LAYERS)))]), min_size=1, max_size=7).map(
    lambda middle: ["1", *middle, "1"]
)
DEAD = {"nonzero", "mask", "where", "numpy", "constant"}
"""Statements of which only a size is used, or with NumPy, which Dynamo traces."""
IMAGE = torch.linspace(-1.0, 2.0, 32).reshape(4, 8)


def captured(module: nn.Module, *inputs: torch.Tensor, check: bool = True) -> Graph:
    return capture_with_partition(module.eval(), inputs, "m", check=check)


def by_section(graph: Graph) -> list[Counter[str]]:
    """Operators of each compiled section; without aliases, and those that only stand for values that Python reads."""
    assert graph.partition is not None
    found: list[Counter[str]] = [Counter() for _ in graph.partition.sections]
    for op in graph.ops:
        if not operators.lookup(op).reads and op.base != "detach":
            found[op.section][op.base] += 1
    return [found[index] for index, number in enumerate(graph.partition.sections) if number is not None]


@pytest.mark.slow
@settings(max_examples=20, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_random_modules_are_divided_as_torch_compile_divides_them(tmp_path: Path, wanted: list[str]):
    made = build(tmp_path, wanted)
    graph = captured(made.module, IMAGE)
    expected = entered_by_torch(made.module, IMAGE)
    assert graph.partition is not None
    assert not graph.partial
    assert graph.partition.entered == len(expected)
    found = by_section(graph)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours <= theirs  # dead code is left out
    if not DEAD & set(wanted):
        assert sum(found, Counter()) == sum(expected, Counter())
    assert tuple(item.source.rpartition("/")[2] for item in graph.breaks) == tuple(dict.fromkeys(made.places))


@pytest.mark.parametrize("name", [*BREAKS, *NO_BREAKS])
def test_each_statement_alone(tmp_path: Path, name: str):
    made = build(tmp_path, ["1", name, "1"])
    graph = captured(made.module, IMAGE)
    assert graph.partition is not None
    assert graph.partition.entered == len(entered_by_torch(made.module, IMAGE))
    assert len(graph.breaks) == (name in BREAKS)
    assert [op.base for op in graph.ops].count("addmm") == 2  # the rest of the pass is not lost


def test_a_pass_on_meta_tensors_is_divided_too(tmp_path: Path):
    made = build(tmp_path, ["1", "print", "0", "disabled", "2"])
    expected = entered_by_torch(made.module, IMAGE)
    graph = captured(made.module.to("meta"), IMAGE.to("meta"))
    assert by_section(graph) == expected


def test_real_values_come_from_the_factory(tmp_path: Path):
    made = build(tmp_path, ["1", "item", "1"])
    expected = entered_by_torch(made.module, IMAGE)
    meta = build(tmp_path, ["1", "item", "1"]).module.to("meta")
    graph = capture_with_partition(meta, (IMAGE.to("meta"),), "m", real=lambda: (made.module, (IMAGE,)))
    assert by_section(graph) == expected
    without = capture_with_partition(meta, (IMAGE.to("meta"),), "m")
    assert without.partial
    assert without.partition is None


class GivenUp(nn.Module):
    """A pass whose only function breaks within a try statement in a loop: Dynamo leaves it as it is."""

    def forward(self, x):
        for _ in range(2):
            try:
                x = x.relu() + 1
                print("said")
            except ValueError:
                pass
        return x


def test_frames_that_are_given_up(capsys: pytest.CaptureFixture[str]):
    graph = captured(GivenUp(), torch.randn(4))
    assert len(entered_by_torch(GivenUp(), torch.randn(4))) == 0
    capsys.readouterr()
    assert graph.partition == Partition((None,), 0)
    assert [item.op for item in graph.breaks] == ["print()"]


def test_an_error_of_compilation_is_a_failure_and_eager_execution_is_predicted():
    class Fails(nn.Module):
        def forward(self, x):
            sizes = torch.stack([torch._shape_as_tensor(x)[:2]])  # under Dynamo, of torch.Size
            return x + 1, sizes

    x = torch.randn(4, 3)
    with pytest.raises(TypeError):
        torch.compile(Fails(), backend="eager")(x)
    torch._dynamo.reset()
    graph = captured(Fails(), x)
    assert graph.partition is not None
    assert graph.partition.failure.startswith("TypeError: ")
    assert "\n" not in graph.partition.failure
    assert [op.base for op in graph.ops if op.base == "add"] == ["add"]


class Caching(nn.Module):
    """A module that keeps a tensor which its first call computes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = x.cos()
        return x + self.kept


def test_a_module_that_keeps_a_tensor_is_compiled_twice():
    module = Caching()
    graph = captured(module, torch.randn(4))
    assert graph.partition is not None
    assert graph.partition == Partition((0,), 2, "", graph.partition.recompiled, reads_kept=True)
    assert [reason.partition(" (")[0] for reason in graph.partition.recompiled] == ["self.kept changes"]
    assert [op.base for op in graph.ops] == ["add"]  # of a later call
    assert module.kept is None


class Recurrent(nn.Module):
    """A recurrent layer between linear layers, called directly or in a module of its own."""

    def __init__(self, layer: type[nn.RNNBase], *, nested: bool) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 4)
        self.inner = Holding(layer) if nested else layer(8, 8)

    def forward(self, x):
        return self.after(self.inner(self.before(x).relu())[0])


class Holding(nn.Module):
    """A module that calls a recurrent layer."""

    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = layer(8, 8)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_recurrent_layers_stay_whole_and_run_eagerly(layer: type[nn.RNNBase], nested: bool):
    module = Recurrent(layer, nested=nested)
    expected = entered_by_torch(module, torch.randn(64, 2, 8))
    graph = captured(module.to("meta"), torch.empty(64, 2, 8, device="meta"))
    assert by_section(graph) == expected
    (whole,) = [op for op in graph.ops if op.base == layer.__name__.lower()]
    assert graph.partition is not None
    assert graph.partition.sections[whole.section] is None
    assert "nn.LSTM" in graph.breaks[0].op


class WithinACall(nn.Module):
    """A recurrent layer among the arguments of a call, where Dynamo gives up what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 8)

    def forward(self, x):
        return nn.functional.log_softmax(self.layer(x.relu())[0], -1)


def test_the_reason_of_a_break_is_its_cause():
    graph = captured(WithinACall().to("meta"), torch.empty(64, 2, 8, device="meta"))
    assert [item.op for item in graph.breaks] == ["nn.LSTM, nn.GRU and nn.RNN, which Dynamo does not trace"]


class Says(nn.Module):
    """A module that prints, logs, and writes to both streams."""

    def forward(self, x):
        print("printed")
        sys.stdout.write("written")
        logging.getLogger("says").warning("logged")
        return x * x.sum().item()


@pytest.mark.parametrize("on", ["meta", "cpu"])
def test_no_output_of_the_model_reaches_standard_output(on: str, capfd: pytest.CaptureFixture[str]):
    captured(Says(), torch.ones(3, device=on))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("printed") == 1  # in the first of several passes


def test_output_of_other_threads_is_kept(capsys: pytest.CaptureFixture[str]):
    def speak() -> None:
        print("from beside")

    class Starts(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=speak)
            thread.start()
            thread.join()
            return x + 1

    captured(Starts(), torch.ones(3))
    assert "from beside" in capsys.readouterr().out


def test_without_the_check_nothing_is_known():
    graph = captured(nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 4), check=False)
    assert graph.partition is None
    assert "torch._dynamo" not in str(graph)


def test_a_model_known_to_be_one_graph_is_not_traced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("costmodel.capture.with_partition.trace_with_dynamo", None)
    graph = capture_with_partition(nn.Linear(4, 4), (torch.randn(2, 4),), "m", is_whole=True)
    assert graph.partition is not None
    assert graph.partition.is_whole


def test_a_size_that_nothing_gives_is_no_failure_of_compilation():
    class Masked(nn.Module):
        def forward(self, x):
            return x[x > 0] * 2

    graph = captured(Masked(), torch.empty(4, 4, device="meta"))
    assert graph.partition is None
    assert [(item.kind, item.op) for item in graph.breaks] == [("size", "index")]
    known = captured(Masked(), torch.eye(4))
    assert known.partition is not None
    assert known.type_of(known.outputs[0]).shape == (4,)


class AsksForAutocast(nn.Module):
    """Asks whether autocast is on for the device of the input, which Dynamo cannot answer for a meta tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() if torch.is_autocast_enabled(x.device.type) else x.sigmoid()


def test_real_tensors_decide_where_meta_tensors_break():
    graph = capture_with_partition(AsksForAutocast(), (torch.rand(2, 3),), "asks")
    assert graph.partition is not None
    assert graph.partition.is_whole
    assert [op.base for op in graph.ops] == ["sigmoid"]


class Counts(nn.Module):
    """A module that counts its calls, in an attribute, a list or a buffer."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.calls = way, 0
        self.history: list[torch.Tensor] = []
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        if self.way == "attribute":
            self.calls += 1
        elif self.way == "list":
            self.history.append(y.detach())
        elif self.way == "buffer":
            self.seen += 1
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
        elif self.way == "replaced":
            self.mean = 0.9 * self.mean + 0.1 * y.mean(0)
        return y + self.mean


@pytest.mark.parametrize(
    ("way", "compiled", "entered", "reason", "reads_kept"),
    [
        ("none", 1, 1, "", False),
        ("attribute", 8, 0, "self.calls changes in each call", False),
        ("list", 8, 0, "the length of self.history changes in each call", False),
        ("buffer", 1, 1, "", False),  # written in place, at one address
        ("replaced", 1, 1, "", True),
    ],
)
def test_modules_that_change_in_each_call(way: str, compiled: int, entered: int, reason: str, reads_kept: bool):
    module = Counts(way).eval()
    expected, all_compiled = run_by_torch(Counts(way).eval(), IMAGE)
    assert (len(expected), all_compiled) == (entered, compiled)
    graph = captured(module, IMAGE)
    assert graph.partition is not None
    assert (graph.partition.entered, graph.partition.compiled) == (entered, compiled)
    assert graph.partition.reads_kept == reads_kept
    assert [item.op.partition(":")[0] for item in graph.breaks] == [reason] * bool(reason)
    assert all("test_with_partition.py:" in item.source for item in graph.breaks)
    assert (module.calls, module.history, module.mean.sum()) == (0, [], 0)


@torch.compiler.disable
def apart(x):
    return x.tanh()


class CallsDisabled(nn.Module):
    """A call that FX and torch.export trace into, and Dynamo does not."""

    def forward(self, x):
        return apart(x * 2) + 1


@pytest.mark.parametrize("way", ["fx", "export"])
def test_breaks_are_those_of_the_module_that_is_compiled(way: str):
    module, x = CallsDisabled().eval(), torch.ones(3)
    graph = capture_with_partition(convert(module, (x,), way), (x,), "m", compiled=module)
    assert graph.partition is not None
    assert graph.partition.sections == (0, None, 1)
    assert [item.op for item in graph.breaks] == ["torch.compiler.disable on apart"]
