"""Random modules: branches, reuse, views, writes in place, dead code, several outputs; captured, they compute alike."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.blocks import block_edges, find_blocks
from costmodel.capture import capture
from costmodel.emit import build_module
from costmodel.exact import capture_exactly
from costmodel.freeze import freeze
from costmodel.ir import Graph, parse
from costmodel.moves import MOVES, rewrite
from costmodel.program import compiled_program, eager_program
from costmodel.tree import stream_tree, units_of

SHAPE = (2, 4, 6, 6)


def written_slice(m, a, b):
    a[:, 1:3] = b[:, :2]
    return a


def written_view(m, a, b):
    a.view(2, 4, 36)[:, :, 5].mul_(2.0)
    return a + b


def written_transpose(m, a, b):
    a.transpose(2, 3).add_(b)
    return a


def masked(m, a, b):
    table = torch.ones(6)
    table[1:3] = 0.0
    return a * table + b


STEPS = {
    "relu": lambda m, a, b: torch.relu(a),
    "relu in place": lambda m, a, b: torch.relu_(a),
    "sum": lambda m, a, b: a + b,
    "product in place": lambda m, a, b: a.mul_(b.sigmoid()),
    "dead": lambda m, a, b: (torch.exp(b), a)[1],
    "convolution": lambda m, a, b: m.conv(a),
    "block": lambda m, a, b: torch.relu(m.norm(m.conv(a)) + b),
    "grouped": lambda m, a, b: m.norm(m.grouped(a)),
    "flat": lambda m, a, b: m.fc(a.flatten(2)).view(SHAPE) + b,
    "permuted": lambda m, a, b: a.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "joined": lambda m, a, b: torch.cat([a, b], 1)[:, 2:6],
    "halves": lambda m, a, b: torch.cat(a.chunk(2, 1)[::-1], 1),
    "mean": lambda m, a, b: a - b.mean((2, 3), keepdim=True),
    "pool": lambda m, a, b: nn.functional.max_pool2d(a, 3, 1, 1),
    "expanded": lambda m, a, b: a + b[:, :1].expand(SHAPE),
    "written slice": written_slice,
    "written view": written_view,
    "written transpose": written_transpose,
    "masked": masked,
}


class Random(nn.Module):
    """Steps on a growing list of tensors: (what, index of the first operand, index of the second)."""

    def __init__(self, steps) -> None:
        super().__init__()
        self.steps = steps
        self.conv, self.grouped = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1, groups=2, bias=False)
        self.norm, self.fc = nn.BatchNorm2d(4), nn.Linear(36, 36)
        self.norm.running_mean.uniform_(-0.1, 0.1)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x):
        known = [x * 1.0, x + 1.0]
        for name, first, second in self.steps:
            a, b = known[first % len(known)], known[second % len(known)]
            known.append(STEPS[name](self, a, b.clone() if b is a else b))
        return {"last": known[-1], "rest": (known[len(known) // 2], known[0])}


programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=8)


def run(graph: Graph, state: dict[str, torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    frozen = freeze(graph)
    given_values = build_module(frozen.preparation)(*[state[value.name] for value in frozen.preparation.values])
    new = [value.name for value in frozen.main.values if value.role == "param" and value.name not in state]
    known = state | dict(zip(new, given_values, strict=True)) | {"x": x}
    return list(build_module(frozen.main)(*[known[value.name] for value in frozen.main.values]))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(programs)
def test_what_is_captured_computes_what_the_module_does(steps):
    torch.manual_seed(0)
    net, x = Random(tuple(steps)).eval(), torch.randn(SHAPE)
    exact = capture_exactly(net, (x,), "random")
    state = dict(net.named_parameters()) | dict(net.named_buffers()) | dict(exact.constants)
    with torch.no_grad():
        expected = net(x)
        for moves in ((), tuple(MOVES)):
            got = exact.nest(run(rewrite(exact.graph, moves), state, x.clone()))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(programs)
def test_what_is_predicted_of_is_whole_and_in_order(steps):
    graph = capture(Random(tuple(steps)).eval(), (torch.empty(SHAPE, device="meta"),), "random")
    assert str(parse(str(graph))) == str(graph)
    assert graph.breaks == ()
    for program in (eager_program(graph), compiled_program(graph)):
        assert all(0.0 <= position <= 1.0 for position in program.positions)
        for kernel in program.kernels:
            kernel.graph.verify()
    blocks = find_blocks(graph)
    edges = block_edges(graph, blocks)
    assert sorted(name for block in blocks for name in block.ops) == sorted(op.name for op in graph.ops)
    assert all(producer < consumer for producer, consumer in edges)
    assert set(range(len(blocks))) <= set(units_of(stream_tree(len(blocks), edges)))


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_step_by_itself(name):
    torch.manual_seed(0)
    net, x = Random(((name, 0, 1), ("relu", 2, 0))).eval(), torch.randn(SHAPE)
    exact = capture_exactly(net, (x,), "random")
    state = dict(net.named_parameters()) | dict(net.named_buffers()) | dict(exact.constants)
    with torch.no_grad():
        torch.testing.assert_close(exact.nest(run(exact.graph, state, x.clone())), net(x), rtol=1e-4, atol=1e-4)
