"""Choice between two captures of one program, by turns; captures themselves are tested on a GPU."""

from __future__ import annotations

import itertools

import pytest
import torch

from costmodel.execution import cuda_graph
from costmodel.execution.cuda_graph import TURNS, quicker


class Timed:
    """Stands for a replay that takes given seconds, one after another."""

    device = torch.device("cuda", 1)

    def __init__(self, clock: list[float], seconds: tuple[float, ...]) -> None:
        self._clock, self._seconds, self.calls = clock, itertools.cycle(seconds), 0

    def run(self, inputs: object) -> None:
        self._clock[0] += next(self._seconds)
        self.calls += 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1.0,), (2.0,), 0),
        ((2.0,), (1.0,), 1),
        ((1.0,), (1.0,), 0),
        ((1.0, 1.0, 9.0), (2.0,), 0),  # the median, not the mean, of 1, 1, 9
    ],
)
def test_the_shorter_median_wins_and_the_first_of_equal_ones(
    first: tuple[float, ...], second: tuple[float, ...], expected: int, monkeypatch: pytest.MonkeyPatch
):
    clock = [0.0]
    monkeypatch.setattr(cuda_graph.time, "perf_counter", lambda: clock[0])
    waited = set()
    monkeypatch.setattr(torch.cuda, "synchronize", waited.add)
    replays = [Timed(clock, first), Timed(clock, second)]
    assert quicker(*replays, []) is replays[expected]
    assert [replay.calls for replay in replays] == [TURNS, TURNS]
    assert waited == {Timed.device}
