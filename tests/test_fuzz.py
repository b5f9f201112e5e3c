"""Random modules: what is captured of them, lowered and predicted is whole, in order, and computes what they do."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from costmodel.capture.executable import capture_exactly
from costmodel.capture.trace import capture
from costmodel.execution.fx_module import build_module
from costmodel.ir import Graph, operators, parse
from costmodel.ir.op_table import Role
from costmodel.planning.blocks import block_edges, find_blocks
from costmodel.planning.series_parallel import block_tree, blocks_of
from costmodel.prediction.layers import group_units
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import REWRITES, apply_rewrites
from costmodel.streamit import Rates, filters, lower, rates, schedule
from costmodel.streamit.lower import constants
from costmodel.streamit.run_with_torch import run_graph
from costmodel.timeline.issue_trace import compiled_trace, eager_trace, origin_of
from tests.support.balance import left_in_channels
from tests.support.random_modules import RETURNED, STEPS, Program, made, programs

SEARCH = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
ALONE = [Program(((name, 1, 0), ("relu", 2, 0)), 2, "dict") for name in sorted(STEPS)]
RETURNS = [Program((("block", 0, 1), ("sum", 2, 1)), count, name) for name in sorted(RETURNED) for count in (1, 2)]


def run(graph: Graph, state: dict[str, torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    hoisted = hoist_constants(graph)
    prepared = build_module(hoisted.preparation)(*[state[value.name] for value in hoisted.preparation.values])
    new = [value.name for value in hoisted.main.values if value.role == "param" and value.name not in state]
    known = state | dict(zip(new, prepared, strict=True))
    known |= {value.name: tensor.clone() for value, tensor in zip(graph.inputs, inputs, strict=True)}
    return list(build_module(hoisted.main)(*[known[value.name] for value in hoisted.main.values]))


def check_computed(program: Program) -> None:
    """The graph, its rewrites and its stream program compute what the module does."""
    module, inputs = made(program)
    exact = capture_exactly(module, inputs, "random")
    graph = exact.graph
    state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers()) | dict(exact.constants)
    with torch.no_grad():
        expected = module(*(tensor.clone() for tensor in inputs))
        for rewrites in ((), tuple(REWRITES)):
            got = exact.nest(run(apply_rewrites(graph, rewrites), state, inputs))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    got = exact.nest(run_graph(graph, state, inputs))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert parse(str(graph)) == graph


def check_streamed(graph: Graph) -> None:
    """The stream program holds every operator that depends on an input, once, and its rates balance."""
    program = lower(graph)
    varying = {op.name for op in graph.ops} - {op.name for op in constants(graph)}
    assert sorted(stream.op.name for stream in filters(program) if stream.op is not None) == sorted(varying)
    assert rates(program) == Rates(len(graph.inputs), len(graph.inputs), len(graph.outputs))
    plan = schedule(program)
    change = left_in_channels(plan)
    assert change == [-len(graph.inputs), len(graph.outputs), *[0] * (len(change) - 2)]


def check_predicted(graph: Graph) -> None:
    """Every operator that computes is priced, in one unit; what has no rule is named; no time is missing or absurd."""
    computing = {op.name for op in graph.ops if operators.lookup(op).role is not Role.VIEW}
    eager, compiled = eager_trace(graph), compiled_trace(graph)
    scattered = {op.name for op in graph.ops if op.base == "as_strided_scatter"}
    assert {origin_of(name) for kernel in eager.kernels for name in kernel.ops} == computing - scattered
    for program in (eager, compiled):
        assert all(0.0 <= position <= 1.0 for position in program.positions)
        for kernel in program.kernels:
            kernel.graph.verify()
    units = group_units(graph, compiled.kernels)
    assert sorted(op.name for unit in units for op in unit.ops) == sorted(computing)
    assert sorted(index for unit in units for index in unit.kernels) == list(range(len(compiled.kernels)))
    profile = load_profile("nvidia-h200")
    report = predict_graph(graph, profile)
    estimates = [profile.predictor.predict(found.kernels, found.positions) for found in (eager, compiled)]
    eager_us, compiled_us = (sum(estimate.us for estimate in found) for found in estimates)
    assert math.isclose(sum(layer.eager_us or 0.0 for layer in report.layers), eager_us)
    assert math.isclose(sum(layer.compiled_us or 0.0 for layer in report.layers), compiled_us)
    for mode in report.modes.values():
        times = (mode.low_ms, mode.latency_ms, mode.high_ms, mode.host_ms, mode.device_ms)
        assert all(math.isfinite(time) and time > 0.0 for time in times)
        assert mode.low_ms < mode.latency_ms < mode.high_ms
    unknown = {op.base for op in graph.ops if not operators.lookup(op).supported}
    assert {item.op for item in report.unsupported} == unknown
    gains = [mode.speedup_low for name, mode in report.modes.items() if name != "eager"]
    losses = [mode.speedup_high for name, mode in report.modes.items() if name != "eager"]
    assert (report.verdict == "compile") == (max(gains) > 1.0)
    assert (report.verdict == "leave") == (max(losses) < 1.0)


def check_planned(graph: Graph) -> None:
    """Every operator is in one block, after those that it reads, and every block in the oracle's tree."""
    blocks = find_blocks(graph)
    edges = block_edges(graph, blocks)
    assert sorted(name for block in blocks for name in block.ops) == sorted(op.name for op in graph.ops)
    assert all(producer < consumer for producer, consumer in edges)
    assert set(range(len(blocks))) <= set(blocks_of(block_tree(len(blocks), edges)))


def check_told(program: Program) -> None:
    module, inputs = made(program)
    graph = capture(module, tuple(tensor.to("meta") for tensor in inputs), "random").verify()
    assert parse(str(graph)) == graph
    assert graph.breaks == ()
    check_streamed(graph)
    check_predicted(graph)
    check_planned(graph)


@SEARCH
@given(programs)
def test_what_is_captured_computes_what_the_module_does(program):
    check_computed(program)


@SEARCH
@given(programs)
def test_what_is_told_of_it_is_whole_and_in_order(program):
    check_told(program)


@pytest.mark.parametrize("program", [*ALONE, *RETURNS], ids=lambda program: f"{program.steps[0][0]}-{program.returned}")
def test_every_step_and_every_way_to_return(program):
    check_computed(program)
    check_told(program)
