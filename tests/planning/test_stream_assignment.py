"""Assignment of CUDA streams and makespans, by hand and by properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.planning.stream_assignment import (
    WAIT_US,
    Task,
    ancestor_sets,
    assign_streams,
    barriers,
    makespan_us,
    merge_runs,
)

DIAMOND = [(), (0,), (0,), (1, 2)]


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, ...]]:
    count = draw(st.integers(1, 12))
    return [tuple(draw(st.sets(st.integers(0, unit - 1), max_size=3))) if unit else () for unit in range(count)]


def test_a_chain_stays_on_one_stream():
    assert assign_streams([(), (0,), (1,), (2,)]) == (0, 0, 0, 0)


def test_the_branches_of_a_diamond_go_on_two_streams_and_the_join_behind_the_later_one():
    assert assign_streams(DIAMOND) == (0, 0, 1, 1)


def test_a_stream_that_has_ended_is_used_again():
    twice = [*DIAMOND, (3,), (3,), (4, 5)]
    assert max(assign_streams(twice)) == 1


def test_there_are_no_more_streams_than_allowed():
    assert set(assign_streams([()] * 9, most=3)) == {0, 1, 2}


@given(graphs())
def test_blocks_that_follow_each_other_on_a_stream_depend_on_each_other_while_streams_suffice(after):
    ancestors = ancestor_sets(after)
    tails: dict[int, int] = {}
    for unit, stream in enumerate(assign_streams(after, most=len(after))):
        if stream in tails:
            assert ancestors[unit] >> tails[stream] & 1
        tails[stream] = unit


def test_barriers_of_a_diamond_are_its_ends():
    assert barriers(DIAMOND) == {0, 3}


@given(graphs())
def test_barriers_are_comparable_with_every_block(after):
    ancestors = ancestor_sets(after)
    expected = {
        unit
        for unit in range(len(after))
        if all(ancestors[max(unit, other)] >> min(unit, other) & 1 for other in range(len(after)) if other != unit)
    }
    assert barriers(after) == expected


def test_narrow_branches_overlap_and_wide_ones_share():
    def diamond(share: float) -> float:
        branches = [Task(4.0, share, (0,), 0), Task(6.0, share, (0,), 1)]
        return makespan_us([Task(1.0, 1.0), *branches, Task(2.0, 1.0, (1, 2), 1)])

    # the branch on stream 1 waits for stream 0, and so does the join
    assert diamond(0.5) == pytest.approx(1 + (6 + WAIT_US) + (2 + WAIT_US))
    assert diamond(1.0) == pytest.approx(1 + (4 + 6 + WAIT_US) + (2 + WAIT_US))


@given(graphs(), st.data())
def test_streams_take_at_least_the_longest_path_and_the_work_and_one_stream_takes_the_sum(after, data):
    times = [data.draw(st.floats(1, 50)) for _ in after]
    shares = [data.draw(st.floats(0.05, 1)) for _ in after]
    one = [Task(us, share, tuple(before)) for us, share, before in zip(times, shares, after, strict=True)]
    assert makespan_us(one) == pytest.approx(sum(times))
    streams = assign_streams(after)
    forked = [Task(t.us, t.share, t.after, stream) for t, stream in zip(one, streams, strict=True)]
    ends: list[float] = []
    for us, before in zip(times, after, strict=True):
        ends.append(us + max((ends[unit] for unit in before), default=0.0))
    taken = makespan_us(forked)
    assert taken >= max(ends) - 1e-6
    assert taken >= sum(us * share for us, share in zip(times, shares, strict=True)) - 1e-6
    assert taken <= sum(times) + WAIT_US * len(times) + 1e-6


def test_runs_follow_their_stream_and_kind():
    chain = [(), (0,), (1,), (2,)]
    assert merge_runs(chain, [0] * 4, ["a", "a", None, "a"]) == [(0, 1), (2,), (3,)]
    assert merge_runs(chain, [0] * 4, [None] * 4) == [(0,), (1,), (2,), (3,)]


def test_a_run_does_not_wait_for_itself():
    # 0 and 2 are on one stream and of one kind, but 1 lies between them
    assert merge_runs([(), (0,), (0, 1)], [0, 1, 0], ["a", "b", "a"]) == [(0,), (1,), (2,)]


@given(graphs(), st.data())
def test_runs_hold_every_block_once_and_none_before_what_it_reads(after, data):
    kinds = [data.draw(st.sampled_from(["a", "b", None])) for _ in after]
    streams = assign_streams(after)
    runs = merge_runs(after, streams, kinds)
    assert sorted(unit for run in runs for unit in run) == list(range(len(after)))
    done: set[int] = set()
    for run in runs:
        assert len({streams[unit] for unit in run}) == 1
        assert len({kinds[unit] for unit in run}) == 1
        assert len(run) == 1 or kinds[run[0]] is not None
        outside = {before for unit in run for before in after[unit]} - set(run)
        assert outside <= done
        done |= set(run)
