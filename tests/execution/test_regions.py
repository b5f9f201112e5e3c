"""Regions on CUDA streams: what each stream waits for, by hand; streams that only note it stand for those of a GPU."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from costmodel.execution.regions import PlannedProgram
from costmodel.ir import parse
from costmodel.planning.plan import Region

DIAMOND = parse("""graph g {
  input %x: float32[4]
  %0 = neg(self=%x) : float32[4]
  %1 = relu(self=%0) : float32[4]
  %2 = abs(self=%0) : float32[4]
  %3 = sub.Tensor(self=%1, other=%2) : float32[4]
  return %3
}""")


class Stream:
    """Stream that numbers its events and notes those that it waits for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events = 0
        self.waits: list[str] = []

    def record_event(self) -> str:
        self.events += 1
        return f"{self.name}{self.events}"

    def wait_event(self, event: str) -> None:
        self.waits.append(event)


@pytest.mark.parametrize(
    ("streams", "waits"),
    [
        # a1 is the start and a2 the end of %0: b waits for both; %3 waits for %2, which ends as b1; b2 ends the pass
        ((0, 0, 1, 0), (["b1", "b2"], ["a1", "a2"])),
        # %3 on b needs %2, which ends as a3; its other operand is b's own
        ((0, 1, 0, 1), (["b3"], ["a1", "a2", "a3"])),
        ((0, 0, 0, 0), ([],)),
    ],
)
def test_a_stream_waits_for_the_start_and_for_what_others_computed(
    streams: tuple[int, ...], waits: tuple[list[str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    regions = [Region("eager", (str(number),), (), 1.0, stream=stream) for number, stream in enumerate(streams)]
    program = PlannedProgram(DIAMOND, regions, {}, {})
    assert program.streams == len(waits)
    noted = [Stream(name) for name in "ab"[: program.streams]]
    x = torch.tensor([-2.0, -0.5, 0.0, 3.0])
    (found,) = program.fork([x], noted)
    assert torch.equal(found, torch.tensor([0.0, 0.0, 0.0, -3.0]))  # relu(-x) - |x|
    assert tuple(stream.waits for stream in noted) == waits
