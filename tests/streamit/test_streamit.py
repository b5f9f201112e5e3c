"""Stream programs: rates and schedules by hand, texts as in the thesis's figures, and runs that equal the model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel import zoo
from costmodel.capture.trace import capture
from costmodel.errors import GraphError
from costmodel.ir import Graph, parse
from costmodel.ir.passes import merge_common_subexpressions
from costmodel.streamit import (
    Filter,
    FilterPipeline,
    FilterSplitJoin,
    Rates,
    Separator,
    Stream,
    filters,
    lower,
    rates,
    run,
    schedule,
    streamit,
)
from costmodel.streamit.actors import INPUT, OUTPUT
from costmodel.streamit.rates import pipeline_rates
from costmodel.streamit.replicate import executions, join_cost, replicate_shared
from costmodel.streamit.run_with_torch import run_graph
from costmodel.streams import Dag, nodes, operator_tree
from tests.support.balance import left_in_channels


def rated(pop: int, push: int, peek: int | None = None) -> Filter:
    return Filter(f"f({pop}, {push})", pop, pop if peek is None else peek, push)


ADDER = rated(2, 1)
AVERAGE = Filter("average(3)", 1, 3, 1)
SPREAD = FilterSplitJoin((rated(2, 1), rated(3, 1)), (3, 2))


def work(stream: Filter, window: Sequence[float]) -> list[float]:
    """Filter that pushes the sum of its window; the study's adder (figure 2.5) and its moving average (2.6)."""
    return [sum(window) / (3 if stream is AVERAGE else 1)] * stream.push


class TestRates:
    def test_the_thesis_example(self) -> None:
        """S1 pops 2 and pushes 5, S2 pops 4 and pushes 7: 4 runs make 20 items for 5 runs."""
        program = FilterPipeline((rated(2, 5, peek=3), rated(4, 7)))
        assert schedule(program).steady == (4, 5)
        assert rates(program) == Rates(pop=8, peek=9, push=35)  # 4 * 2; one more to look at; 5 * 7

    def test_common_multiples_where_the_thesis_multiplies(self) -> None:
        """2 -> 4, 6 -> 3, 3 -> 1: 3, 2 and 2 runs pop 6; equation 2.1 would take 2 * 6 * 3 = 36."""
        program = FilterPipeline((rated(2, 4), rated(6, 3), rated(3, 1)))
        assert schedule(program).steady == (3, 2, 2)
        assert rates(program) == Rates(6, 6, 2)

    def test_a_duplicate_split_join(self) -> None:
        """Equation 2.4: branches pop 2 and 3, weights 3 and 2: 6 items make 3 and 2, one round of 5."""
        assert rates(SPREAD) == Rates(6, 6, 5)
        assert schedule(SPREAD).steady == (6, 3, 2, 1)  # splitter, branches, joiner

    def test_a_round_robin_split_join(self) -> None:
        """Weights 2 and 1 (figure 2.12): the second branch needs 3 items, so 3 rounds of 3; 3 and 1 items made."""
        program = FilterSplitJoin((rated(2, 1), rated(3, 1)), (3, 1), (2, 1))
        assert rates(program) == Rates(9, 9, 4)
        assert schedule(program).steady == (3, 3, 1, 1)

    @pytest.mark.parametrize(
        "program",
        [
            FilterSplitJoin((rated(1, 1), rated(1, 2)), (1, 1)),
            FilterPipeline((rated(1, 0), rated(1, 1))),
            FilterPipeline((rated(1, 1), rated(0, 1))),
        ],
    )
    def test_what_does_not_balance_is_refused(self, program: Stream) -> None:
        with pytest.raises(GraphError, match="no steady state"):
            rates(program)
        with pytest.raises(GraphError, match="no steady state"):
            schedule(program)

    def test_a_filter_that_nothing_is_passed_to_runs_once_for_each_run_of_the_one_before(self) -> None:
        assert pipeline_rates([Rates(2, 3, 0), Rates(0, 0, 5)]) == Rates(2, 3, 5)

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=5))
    def test_the_thesis_products_are_whole_multiples(self, numbers: list[tuple[int, int]]) -> None:
        """Equations 2.1 and 2.2, of filters that look no further than they take."""
        found = pipeline_rates([Rates(pop, pop, push) for pop, push in numbers])
        times, rest = divmod(math.prod(pop for pop, _ in numbers), found.pop)
        assert rest == 0
        assert math.prod(push for _, push in numbers) == times * found.push


@st.composite
def programs(draw: st.DrawFn, depth: int = 3) -> Stream:
    """Programs with a steady state: joiner weights equal the items that branches push in one round."""
    kind = draw(st.sampled_from(("filter", "pipeline", "split-join"))) if depth else "filter"
    if kind == "filter":
        pop = draw(st.integers(1, 3))
        return rated(pop, draw(st.integers(1, 3)), pop + draw(st.integers(0, 2)))
    parts = tuple(draw(programs(depth - 1)) for _ in range(draw(st.integers(1, 3))))
    if kind == "pipeline":
        return FilterPipeline(parts)
    found = [rates(part) for part in parts]
    if draw(st.booleans()):
        times = math.lcm(*(rate.pop for rate in found))
        return FilterSplitJoin(parts, tuple(times // rate.pop * rate.push for rate in found))
    return FilterSplitJoin(parts, tuple(rate.push for rate in found), tuple(rate.pop for rate in found))


class TestSchedule:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
    @given(programs())
    def test_channels_hold_after_a_pass_what_they_held_before(self, program: Stream) -> None:
        plan = schedule(program)
        change = left_in_channels(plan)
        found = rates(program)  # by the equations, the schedule by the balance of all channels at once
        assert change == [-found.pop, found.push, *[0] * (len(change) - 2)]
        assert math.gcd(*plan.steady) == 1

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(programs(2))
    def test_a_run_makes_what_the_rates_say(self, program: Stream) -> None:
        """Passes of the schedule never lack an item, windows included."""
        plan = schedule(program)
        first = sum(
            runs * port.items
            for actor, runs in zip(plan.actor_graph.actors, plan.initial, strict=True)
            for port in actor.inputs
            if port.channel == INPUT
        )
        found = rates(program)
        window = max(
            port.peek - port.items
            for actor in plan.actor_graph.actors
            for port in actor.inputs
            if port.channel == INPUT
        )
        made = run(program, range(first + 2 * found.pop + window), work)
        initial = sum(
            runs * port.items
            for actor, runs in zip(plan.actor_graph.actors, plan.initial, strict=True)
            for port in actor.outputs
            if port.channel == OUTPUT
        )
        assert len(made) == initial + 2 * found.push

    def test_a_window_is_filled_by_initial_runs(self) -> None:
        """The average of 3 sums needs 2 of them beforehand: 2 runs of the adder."""
        program = FilterPipeline((ADDER, AVERAGE))
        plan = schedule(program)
        assert (plan.initial, plan.steady) == ((2, 0), (1, 1))
        assert plan.buffers[2] == 3  # channels 0 and 1 are the program's own
        sums = [1, 5, 9, 13]  # of 0 and 1, 2 and 3, ...
        assert run(program, range(8), work) == [sum(sums[:3]) / 3, sum(sums[1:]) / 3]

    def test_separators_drop_and_repeat(self) -> None:
        assert run(Separator((1, 0, 2)), "abcdef", work) == list("accdff")

    def test_a_filter_that_pushes_too_much_is_named(self) -> None:
        with pytest.raises(GraphError, match=r"f\(1, 1\) pushed 2 items, not 1"):
            run(rated(1, 1), [1.0], lambda stream, window: [*window, *window])

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Filter("f", 2, 1, 1),
            lambda: Separator(()),
            lambda: Separator((1, -1)),
            lambda: FilterPipeline(()),
            lambda: FilterSplitJoin((ADDER,), (1, 1)),
            lambda: FilterSplitJoin((ADDER, ADDER), (1, 1), (1,)),
        ],
    )
    def test_impossible_streams_are_refused(self, make: Callable[[], Stream]) -> None:
        with pytest.raises(GraphError):
            make()


def block(channels_in: int, channels: int, *, padding: int = 0, relu: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(channels_in, channels, 3, padding=padding), nn.BatchNorm2d(channels)]
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


class Sequential(nn.Module):
    """A convolution, a pool and a linear layer (figure 4.5)."""

    inputs = (torch.Size((1, 3, 12, 12)),)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Linear(800, 10), nn.ReLU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Residual(nn.Module):
    """Two paths that meet in a sum (figure 4.7)."""

    inputs = (torch.Size((1, 3, 8, 8)),)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 64, padding=1, relu=True), block(64, 64, padding=1))
        self.downsample = nn.Sequential(nn.Conv2d(3, 64, 1), nn.BatchNorm2d(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.body(x)
        out += self.downsample(x)
        return torch.relu(out)


class Skip(nn.Module):
    """A residual whose other path is empty, and a difference, whose operands may not be swapped."""

    inputs = (torch.Size((2, 4)),)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - torch.relu(self.body(x) + x)


class TwoInputs(nn.Module):
    """Figure 4.11."""

    inputs = (torch.Size((1, 3, 8, 8)), torch.Size((1, 3, 8, 8)))

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = block(3, 64), nn.Conv2d(3, 64, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.one(x) + self.other(y)


class TwoOutputs(nn.Module):
    """Figure 4.14."""

    inputs = (torch.Size((1, 3, 8, 8)),)

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = block(3, 64), nn.Conv2d(3, 64, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(x), self.other(x)


class Fused(nn.Module):
    """Two sums that share an operand (figure 4.21, with shapes that broadcast)."""

    inputs = (torch.Size((3, 4)),)

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shared = self.g(x)
        return shared + self.f(x), shared + torch.relu(x)


class Chunks(nn.Module):
    """An operator of several results, one of them dead, and outputs that repeat and change places."""

    inputs = (torch.Size((2, 6)), torch.Size((2, 2)))

    def forward(self, x: torch.Tensor, unused: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first, _, last = x.chunk(3, 1)
        return last.sigmoid(), first.relu(), last, x, x


class Recurrent(nn.Module):
    """Two layers over a sequence of three; capture sees every step (figure 4.23, unrolled)."""

    inputs = (torch.Size((1, 3, 28)),)

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(28, 128, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x, None)[0]


LSTM = """graph lstm {
  input %x: float32[1,3,28]
  param %lstm.weight_ih_l0: float32[512,28]
  param %lstm.weight_hh_l0: float32[512,128]
  param %lstm.bias_ih_l0: float32[512]
  param %lstm.bias_hh_l0: float32[512]
  param %lstm.weight_ih_l1: float32[512,128]
  param %lstm.weight_hh_l1: float32[512,128]
  param %lstm.bias_ih_l1: float32[512]
  param %lstm.bias_hh_l1: float32[512]
  %zero = zeros(size=[2, 1, 128], dtype='torch.float32') : float32[2,1,128]
  %out = lstm.input(input=%x, hx=[%zero, %zero], params=[%lstm.weight_ih_l0, %lstm.weight_hh_l0, %lstm.bias_ih_l0, \
%lstm.bias_hh_l0, %lstm.weight_ih_l1, %lstm.weight_hh_l1, %lstm.bias_ih_l1, %lstm.bias_hh_l1], has_biases=True, \
num_layers=2, dropout=0.0, train=False, bidirectional=False, batch_first=True) : \
float32[1,3,128], float32[2,1,128], float32[2,1,128]
  return %out
}"""
"""The study's LSTM (figure 4.17) as one operator of three results."""

EXAMPLES = (Sequential, Residual, Skip, TwoInputs, TwoOutputs, Fused, Chunks, Recurrent)
SMALL = EXAMPLES[:-1]


def made(example: type[nn.Module]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    module = example().eval()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2.0)
    return module, tuple(torch.randn(size) for size in example.inputs)


def assert_runs_alike(graph: Graph, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        expected = module(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = run_graph(graph, module.state_dict(), inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_an_examples_program_makes_what_the_module_makes(example: type[nn.Module]) -> None:
    module, inputs = made(example)
    graph = capture(module, inputs, example.__name__)
    assert_runs_alike(graph, module, inputs)
    assert rates(lower(graph)) == Rates(len(inputs), len(inputs), len(graph.outputs))


@pytest.mark.parametrize("example", SMALL, ids=lambda example: example.__name__)
def test_golden_texts(golden: Callable[[str, str], None], example: type[nn.Module]) -> None:
    module, inputs = made(example)
    golden(f"streamit_{example.__name__.lower()}", streamit(lower(capture(module, inputs))).rstrip("\n"))


def test_an_lstm_has_a_separator_for_its_dead_results(golden: Callable[[str, str], None]) -> None:
    module, inputs = made(Recurrent)
    graph = parse(LSTM)
    golden("streamit_lstm", streamit(lower(graph)).rstrip("\n"))
    assert_runs_alike(graph, module, inputs)


def test_an_output_that_repeats_is_repeated_by_a_separator() -> None:
    graph = parse("graph g {\n  input %x: float32[2]\n  %a = relu(self=%x) : float32[2]\n  return %a, %a\n}")
    program = lower(graph)
    assert program.children[1:] == (Separator((2,)),)
    assert [tensor.tolist() for tensor in run_graph(graph, {}, (torch.tensor([-1.0, 1.0]),))] == [[0.0, 1.0]] * 2


@pytest.mark.parametrize("size", [1, 2])
def test_passes_follow_one_another(size: int) -> None:
    module, inputs = made(Skip)
    more = [inputs[0] + step for step in range(size)]
    found = run_graph(capture(module, inputs), module.state_dict(), more)
    with torch.no_grad():
        torch.testing.assert_close(found, tuple(module(x) for x in more))


STUDY = ("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1")


@pytest.mark.parametrize("model", STUDY)
def test_a_models_program_makes_what_the_model_makes(model: str) -> None:
    torch.manual_seed(0)
    options = {"init_weights": False} if model == "googlenet" else {}
    module = zoo.load_torchvision().models.get_model(model, weights=None, **options).eval()
    inputs = (torch.randn(1, 3, 64, 64),)
    graph = capture(module, inputs, model)
    assert_runs_alike(graph, module, inputs)


class TestReplication:
    def test_a_shared_operand_is_computed_twice(self, golden: Callable[[str, str], None]) -> None:
        module, inputs = made(Fused)
        graph = capture(module, inputs, "fused")
        twice = replicate_shared(graph)
        golden("streamit_fused_replicated", streamit(lower(twice)).rstrip("\n"))
        assert not any(isinstance(node, Dag) for node in nodes(operator_tree(twice)))
        assert_runs_alike(twice, module, inputs)
        assert len(merge_common_subexpressions(twice).ops) == len(graph.ops)

    def test_the_cost_of_both_ways(self) -> None:
        module, inputs = made(Fused)
        cost = join_cost(capture(module, inputs, "fused"))
        assert cost.operators == 1
        assert cost.flops == 2 * 3 * 4 * 1  # the linear layer g of 3 rows, from 4 features to 1
        assert cost.carried == 4  # the shared operand and the other one, for each sum
        assert "1 more operators" in str(cost)

    def test_a_series_parallel_graph_costs_nothing(self) -> None:
        module, inputs = made(Residual)
        graph = capture(module, inputs, "residual")
        cost = join_cost(graph)
        assert (cost.operators, cost.flops, cost.carried) == (0, 0, 0)
        assert replicate_shared(graph) == graph

    def test_a_dense_block_doubles_with_every_layer(self, graph_of: Callable[[str], Graph]) -> None:
        """Blocks of 6, 12, 24 and 16 layers: replicated, a program nobody would run."""
        graph = graph_of("densenet121")
        with pytest.raises(GraphError, match=r"densenet121: replication would make \d+ operators of 432"):
            replicate_shared(graph)
        assert max(executions(graph).values()) > 2**21

    def test_dead_operators_are_not_replicated(self) -> None:
        operands = ("%x, %x", "%x, %0", "%x, %x", "%x, %0", "%1, %3", "%x, %4", "%1, %3")
        lines = ["graph g {", "  input %x: float32[4]"]
        for index, (one, other) in enumerate(pair.split(", ") for pair in operands):
            lines.append(f"  %{index} = sub.Tensor(self={one}, other={other}) : float32[4]")
        graph = parse("\n".join([*lines, "  return %0", "}"]))
        assert [op.name for op in replicate_shared(graph).ops] == ["0"]
        assert executions(graph) == {"0": 1}

    def test_a_result_of_a_region_in_a_region_is_returned_once(self) -> None:
        operands = {"0": "%x, %x", "1": "%0, %0", "3": "%x, %0", "4": "%1, %1", "6": "%4, %3", "7": "%6, %x"}
        lines = ["graph g {", "  input %x: float32[4]"]
        for name, (one, other) in ((name, pair.split(", ")) for name, pair in (operands | {"8": "%7, %6"}).items()):
            lines.append(f"  %{name} = sub.Tensor(self={one}, other={other}) : float32[4]")
        graph = parse("\n".join([*lines, "  return %0, %8, %6", "}"]))
        # %6 is wanted by %7 and %8; each has its %1, %4 and %3, and %1 and %3 their own %0; one more is returned
        assert executions(graph) == {"0": 5, "1": 2, "3": 2, "4": 2, "6": 2, "7": 1, "8": 1}
        assert len({op.name for op in replicate_shared(graph).ops}) == 15

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def test_any_graph_becomes_series_parallel(self, data: st.DataObject) -> None:
        lines = ["graph g {", "  input %x: float32[4]"]
        for index in range(data.draw(st.integers(1, 10))):
            names = ["x", *map(str, range(index))]
            one, other = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
            lines.append(f"  %{index} = sub.Tensor(self=%{one}, other=%{other}) : float32[4]")
        returned = data.draw(st.lists(st.sampled_from(names[1:] or ["0"]), min_size=1, max_size=3))
        graph = parse("\n".join([*lines, f"  return {', '.join(f'%{name}' for name in returned)}", "}"]))
        replicated = replicate_shared(graph)
        assert not any(isinstance(node, Dag) for node in nodes(operator_tree(replicated)))
        assert len(replicated.ops) == sum(executions(graph).values())
        x = torch.tensor([1.0, 2.0, 3.0, 5.0])
        assert list(map(torch.Tensor.tolist, run_graph(graph, {}, (x,)))) == list(
            map(torch.Tensor.tolist, run_graph(replicated, {}, (x,)))
        )


class TestRefusals:
    def test_a_tensor_whose_values_are_not_known(self) -> None:
        values = "input %x: float32[4]\n  param %w: float32[4]"
        graph = parse(f"graph g {{\n  {values}\n  %a = mul.Tensor(self=%x, other=%w) : float32[4]\n  return %a\n}}")
        with pytest.raises(GraphError, match="%w is not a parameter or buffer of the module"):
            run_graph(graph, {}, (torch.ones(4),))

    def test_an_operator_that_torch_lacks(self) -> None:
        graph = parse("graph g {\n  input %x: float32[4]\n  %a = no_such(self=%x) : float32[4]\n  return %a\n}")
        with pytest.raises(GraphError, match=r"has no operator aten\.no_such"):
            run_graph(graph, {}, (torch.ones(4),))

    def test_a_parameter_that_is_returned(self) -> None:
        graph = parse("graph g {\n  input %x: float32[4]\n  param %w: float32[4]\n  return %w\n}")
        with pytest.raises(GraphError, match="returns %w, which depends on no input"):
            lower(graph)

    def test_a_graph_without_inputs(self) -> None:
        graph = parse("graph g {\n  %a = zeros(size=[4]) : float32[4]\n  return %a\n}")
        with pytest.raises(GraphError, match="a stream program needs an input"):
            lower(graph)


@pytest.mark.parametrize("model", ["swin_t", "timm:dla34"])
def test_every_operator_that_computes_is_a_filter(graph_of: Callable[[str], Graph], model: str) -> None:
    graph = graph_of(model)
    names = [stream.op.name for stream in filters(lower(graph)) if stream.op is not None]
    assert sorted(names) == sorted(executions(graph))
