"""The queue of host and device against times worked out by hand, and what a queue can never do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.workloads.matmuls import linear_graph
from costmodel.ir import Calls, parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline import gpu, host_counts
from costmodel.timeline import queue as queue_module
from costmodel.timeline.cost_tables import PRIORS
from costmodel.timeline.gpu import device_times
from costmodel.timeline.issue_trace import IssueTrace, SectionTrace
from costmodel.timeline.queue import Queue, queue_us
from costmodel.timeline.timed_trace import TimedTrace

RELU = "graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}"
CALL = Kernel("aten", parse(RELU), ("0",))
FUSED = Kernel("triton", parse(RELU), ("1",), launches=2)
READ = Kernel("aten", parse(RELU.replace("relu", "_local_scalar_dense")), ("0",))
CALLS = Calls(modules=4, views=3, idle=5, queries=9, writes=2)
PROGRAM = IssueTrace(
    (CALL, FUSED), (0.0, 1.0), views=6, calls=CALLS, parameters=10, footprint=0, checked_modules=4, views_again=6
)
TABLES = {
    "eager_host": dict.fromkeys(PRIORS["eager_host"], 9.0)
    | {
        "dispatch": 2.0,
        "kinds": 0.1,
        "calls": 0.3,
        "view": 0.5,
        "view_again": -0.25,
        "idle": 0.2,
        "write": 3.0,
        "module": 0.25,
        "start": 20.0,
    },
    "eager_device": {"launch": 0.0},
    "eager_wall": {"gap": 0.0},
    "default_host": {
        "dispatch": 2.0,
        "matmul": 6.0,
        "triton": 5.5,
        "distinct": 3.0,
        "output": 1.0,
        "parameter": 0.5,
        "module": 1.5,
        "start": 30.0,
    },
    "default_device": {"launch": 0.0},
    "default_wall": {"gap": 0.0},
    "graph_host": {"parameter": 0.5, "module": 0.25, "start": 40.0},
}


def timed(first_us: float, second_us: float, trace: IssueTrace = PROGRAM) -> TimedTrace:
    """The trace, whose calls take the host 4 and 7 us alone."""
    return TimedTrace(trace, [first_us, second_us], [4.0, 7.0])


@pytest.mark.parametrize(
    ("host", "device", "prologue", "gap", "end"),
    [
        pytest.param([10, 10, 10], [1, 1, 1], 0, 0, 31, id="host-bound"),  # the last kernel after the last issue
        pytest.param([1, 1, 1], [10, 10, 10], 0, 0, 31, id="device-bound"),  # the first issue, then three kernels
        pytest.param([3, 1, 1], [10, 10, 10], 0, 2, 37, id="gap"),  # the first issue, three kernels, two gaps between
        pytest.param([10, 10, 10], [1, 1, 1], 5, 0, 36, id="prologue"),
        pytest.param([5, 20], [10, 0], 0, 0, 25, id="host-ends-last"),  # the second call launches nothing
        pytest.param([2, 2, 30, 2], [10, 10, 5, 5], 0, 0, 44, id="mixed"),  # device idle from 22 until 34
        pytest.param([], [], 7, 1, 7, id="nothing"),
    ],
)
def test_the_queue_by_hand(host: list[float], device: list[float], prologue: float, gap: float, end: float):
    assert max(queue_us(host, device, prologue, gap)) == end


@pytest.mark.parametrize(
    ("waits", "ends"),
    [
        pytest.param([], (5, 31), id="none"),
        pytest.param([0], (15, 33), id="first"),  # issued at 1, ends at 11, the next ones are issued at 13 and 15
        pytest.param([0, 1], (25, 35), id="both"),  # the last is issued at 25, when the second has ended at 23
        pytest.param([2], (31, 31), id="last"),
    ],
)
def test_waits_by_hand(waits: list[int], ends: tuple[float, float]):
    assert queue_us([1, 2, 2], [10, 10, 10], waits=waits) == ends


@given(
    st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.1, 50.0)), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    st.floats(0.0, 3.0),
)
def test_waiting_takes_no_less_time_and_at_most_the_sum(calls: list[tuple[float, float]], waits: set[int], gap: float):
    host, device = ([call[side] for call in calls] for side in (0, 1))
    free, waiting = (max(queue_us(host, device, 0.0, gap, some)) for some in ((), waits))
    assert free <= waiting + 1e-9
    assert waiting <= sum(host) + sum(device) + gap * len(calls) + 1e-9


@pytest.mark.parametrize(
    ("host", "device", "end"),
    [
        (40.0, 4.0, 12 + 40 + 1),  # the last of four launches, and its part
        (4.0, 40.0, 12 + 1 + 40),  # the device from the first launch on
        (8.0, 8.0, 12 + 8 + 2),
    ],
)
def test_a_call_of_many_launches_keeps_the_device_busy_from_the_first(host: float, device: float, end: float):
    assert queue_us([host], [device], 12.0, parts=[4]) == (12 + host, end)
    assert queue_us([host], [device], 12.0) == (12 + host, 12 + host + device)
    before = queue_us([5.0, host], [30.0, device], 0.0, 0.0, (), [1, 4])
    assert before[1] == max(35 + device, 5 + host + device / 4)


def test_a_pass_ends_with_its_last_kernel():
    assert Queue(12.0, [1.0, 1.0], [10.0, 10.0]).timing({"gap": 1.0}) == queue_module.Timing(13 + 10 + 1 + 10, 14, 20)
    assert Queue(12.0, [20.0], [1.0]).timing({"gap": 1.0}).latency_us == 12 + 20 + 1


def test_as_many_host_times_as_device_times():
    with pytest.raises(ValueError, match="zip"):
        queue_us([1.0], [1.0, 2.0])


times = st.floats(0, 1e4)
calls = st.lists(st.tuples(times, times), max_size=12)


@given(calls, times, st.floats(0, 5))
def test_never_faster_than_either_side(pairs: list[tuple[float, float]], prologue: float, gap: float):
    host, device = [h for h, _ in pairs], [d for _, d in pairs]
    end = max(queue_us(host, device, prologue, gap))
    most = max(prologue + sum(host), sum(device))
    assert end >= most * (1 - 1e-9)
    assert end <= prologue + sum(host) + sum(device) + gap * len(device) + 1e-6


@given(calls.filter(bool), times, st.floats(0, 5), st.data())
def test_more_of_anything_never_ends_earlier(
    pairs: list[tuple[float, float]], prologue: float, gap: float, data: st.DataObject
):
    host, device = [h for h, _ in pairs], [d for _, d in pairs]
    end = max(queue_us(host, device, prologue, gap)) - 1e-6
    index, more = data.draw(st.integers(0, len(pairs) - 1)), data.draw(times)
    slower = [us + more * (i == index) for i, us in enumerate(host)]
    longer = [us + more * (i == index) for i, us in enumerate(device)]
    assert max(queue_us(slower, device, prologue, gap)) >= end
    assert max(queue_us(host, longer, prologue, gap)) >= end
    assert max(queue_us(host, device, prologue + more, gap)) >= end
    assert max(queue_us(host, device, prologue, gap + more)) >= end


def test_every_launch_costs_more_in_a_model():
    # the second kernel launches twice
    assert device_times(timed(10.0, 20.0), {"launch": 0.5}) == [10.5, 21.0]


def test_eager_by_hand():
    # dispatch 4 + 7, of one kind, in 2 calls; 3 views, 6 that kernels make again when isolated, 5 idle calls,
    # 2 writes, 4 modules, start
    host = 11 * (2 + 0.1 * 1 + 0.3 * math.log(2)) + 3 * 0.5 - 6 * 0.25 + 5 * 0.2 + 2 * 3 + 4 * 0.25 + 20
    timing = gpu.eager_timing(timed(3.0, 3.0), TABLES)
    assert timing.host_us == pytest.approx(host)
    assert timing.device_us == 6.0
    assert timing.latency_us == pytest.approx(host + 3.0)  # the last kernel


def test_default_by_hand():
    # start, 10 parameters and 4 modules; a library call of 2 x 4; two launches of 5.5 and their output; and 3 for a
    # fused kernel unlike others, half of it with each call
    timing = gpu.default_timing(timed(100.0, 50.0), TABLES)
    assert timing.host_us == pytest.approx(30 + 5 + 6 + 8 + 11 + 1 + 3)
    assert timing.latency_us == pytest.approx(41 + 8 + 1.5 + 150)


def test_every_further_graph_costs_half_an_entry():
    whole, cut = timed(100.0, 50.0), timed(100.0, 50.0, replace(PROGRAM, subgraphs=4))
    once, often = (gpu.default_timing(calls, TABLES).host_us for calls in (whole, cut))
    assert often == pytest.approx(once + 3 * 30 / 2)
    assert gpu.default_queue(cut, TABLES).prologue_us == 41  # start, parameters and modules, but once
    assert set(gpu.timings(whole, whole, TABLES)) == {"eager", "default", "reduce-overhead"}


def test_a_pass_that_dynamo_gives_up_runs_eagerly_in_every_mode():
    given_up = timed(100.0, 50.0, replace(PROGRAM, subgraphs=0))
    found = gpu.timings(timed(100.0, 50.0), given_up, TABLES)
    assert found["eager"] == found["default"] == found["reduce-overhead"]


def test_all_of_a_timing_is_multiplied():
    assert queue_module.Timing(3.0, 2.0, 1.0).times(2.0) == queue_module.Timing(6.0, 4.0, 2.0)


def test_compiled_code_calls_products_for_a_price_of_their_own():
    product = Kernel("aten", linear_graph(4, 8, 8, "float32", bias=True), ("0",))
    calls = TimedTrace(replace(PROGRAM, kernels=(CALL, product)), [1.0, 1.0], [4.0, 33.0])
    # start, parameters and modules; a call of 2 x 4, and a product of 6, whatever it takes in eager execution
    assert gpu.default_queue(calls, TABLES).host_us == [8.0, 6.0]
    assert gpu.default_timing(calls, TABLES).host_us == pytest.approx(30 + 5 + 6 + 8 + 6)


def replayed(*sections: SectionTrace, waits: tuple[int, ...] = ()) -> Queue:
    """Queue of reduce-overhead for the program in sections, where Python reads the results of these kernels."""
    kernels = tuple(READ if index in waits else kernel for index, kernel in enumerate((CALL, FUSED)))
    return gpu.replay_queue(timed(100.0, 50.0, replace(PROGRAM, kernels=kernels, sections=sections)), TABLES)


def test_a_graph_replays_at_the_devices_speed():
    queue = gpu.replay_queue(timed(100.0, 50.0), TABLES)
    assert queue.host_total_us == pytest.approx(10 * 0.5 + 4 * 0.25 + 40)
    assert queue.latency_us(0.0) == pytest.approx(150 + 46)
    assert queue == replayed(SectionTrace(2, 10))


def test_sections_of_reduce_overhead_by_hand():
    """Modules 4 x 0.25; a replay starts for 40 and 0.5 a parameter, the second for 20; a library call of 2 x 4."""
    assert replayed(SectionTrace(1, 6), SectionTrace(1, 4)) == Queue(1.0, [43.0, 22.0], [100.0, 50.0])
    eager_first = replayed(SectionTrace(1, 0, is_compiled=False), SectionTrace(1, 4))
    assert eager_first == Queue(1.0, [8.0, 42.0], [100.0, 50.0])


def test_a_graph_that_is_no_cuda_graph_is_entered_as_in_default_mode():
    """Entry of 30 and 0.5 a parameter, then two launches of 5.5 and their output."""
    queue = replayed(SectionTrace(1, 6), SectionTrace(1, 4, alone=frozenset({0})))
    assert queue == Queue(1.0, [43.0, 17.0, 12.0], [100.0, 0.0, 50.0])


def test_a_divided_graph_is_entered_once():
    """A replay for 40 and 0.5 a parameter, then a launch of 5.5 and its output; or the launch first, after an entry."""
    assert replayed(SectionTrace(2, 10, alone=frozenset({1}))) == Queue(1.0, [45.0, 12.0], [100.0, 50.0])
    assert replayed(SectionTrace(2, 10, alone=frozenset({0}))) == Queue(1.0, [35.0, 8.0, 20.0], [0.0, 100.0, 50.0])


def test_runs_of_a_section():
    assert SectionTrace(5, 0, alone=frozenset({1, 2})).runs() == [
        (range(1), True),
        (range(1, 3), False),
        (range(3, 5), True),
    ]
    assert SectionTrace(0, 3).runs() == [(range(0), True)]  # a graph of views is entered, too
    assert SectionTrace(2, 0, is_compiled=False).runs() == [(range(2), False)]


def test_the_host_waits_where_python_reads_a_result():
    """The second replay starts 43 + 1 us after the start, and the first ends 100 us later."""
    queue = replayed(SectionTrace(1, 6), SectionTrace(1, 4), waits=(0,))
    assert queue.waits == {0}
    assert queue.latency_us(0.0) == pytest.approx(44 + 100 + 22 + 50)
    eager = replayed(SectionTrace(1, 4), SectionTrace(1, 0, is_compiled=False), waits=(1,))
    assert eager.waits == {1}


def test_the_host_time_of_a_queue_is_what_its_counts_cost():
    tables = TABLES
    eager, default = gpu.eager_queue(timed(1.0, 1.0), tables), gpu.default_queue(timed(1.0, 1.0), tables)
    eager_counts, default_counts = (
        host_counts.eager_counts(timed(1.0, 1.0)),
        host_counts.default_counts(timed(1.0, 1.0)),
    )
    assert eager.host_total_us == pytest.approx(host_counts.total(eager_counts, tables["eager_host"]))
    assert default.host_total_us == pytest.approx(host_counts.total(default_counts, tables["default_host"]))
    replayed_us = host_counts.total(host_counts.graph_counts(PROGRAM), tables["graph_host"])
    assert gpu.replay_queue(timed(1.0, 1.0), tables).host_total_us == replayed_us == 10 * 0.5 + 4 * 0.25 + 40


def test_no_graph_is_entered_as_one_and_further_ones_for_half() -> None:
    assert [host_counts.entries(graphs) for graphs in (0, 1, 2, 4)] == [1.0, 1.0, 1.5, 2.5]


def test_a_pass_without_kernels_takes_the_host_alone():
    empty = TimedTrace(replace(PROGRAM, kernels=(), positions=()), [], [])
    for timing in (gpu.eager_timing(empty, TABLES), gpu.default_timing(empty, TABLES)):
        assert timing.device_us == 0.0
    assert gpu.default_timing(empty, TABLES).latency_us == 30 + 5 + 6  # start, parameters, modules


def test_kernels_wait_for_a_gap_only_behind_another_kernel():
    """The second starts a gap of 2 after the first; the third is launched later than that."""
    assert queue_us([1, 1, 50], [10, 10, 10], gap_us=2.0) == (52, 62)
    assert queue_us([5, 1], [0, 10], gap_us=2.0) == (6, 16)  # the first launches nothing


def test_scaling_a_queue():
    queue = Queue(1.0, [2.0, 3.0], [4.0, 5.0]).scaled(2.0, 10.0)
    assert queue == Queue(2.0, [4.0, 6.0], [40.0, 50.0])
