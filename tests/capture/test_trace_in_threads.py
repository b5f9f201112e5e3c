"""Captures in several threads take turns."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from costmodel.capture.trace import capture

INSIDE: list[int] = []
"""An item for each thread in a forward pass; no attribute of the module, which a capture restores."""


class Counted(nn.Module):
    """Module whose result has a row for each thread in its forward pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        INSIDE.append(1)
        time.sleep(0.05)  # long enough for the others to come in, if nothing keeps them out
        threads = len(INSIDE)
        INSIDE.pop()
        return x.expand(threads, 2)


def test_one_thread_at_a_time_runs_a_forward_pass() -> None:
    module, together = Counted(), threading.Barrier(4)

    def rows() -> int:
        together.wait()
        return capture(module, (torch.empty(2),)).ops[-1].type.shape[0]

    with ThreadPoolExecutor(4) as pool:
        assert [made.result() for made in [pool.submit(rows) for _ in range(4)]] == [1, 1, 1, 1]
