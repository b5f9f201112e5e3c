"""Python beside tensors in forward: printing, logging, clocks, numpy. Most of it breaks the graph."""

from __future__ import annotations

import copy
import logging
import time

import numpy as np
import torch
from three_stages import Small, image
from torch import Tensor, nn

log = logging.getLogger(__name__)


class Prints(Small):
    """A print that was forgotten."""

    def between(self, x: Tensor) -> Tensor:
        """The same, and a line on the terminal."""
        print("after stage 1:", tuple(x.shape))
        return x


class Logs(Small):
    """Debug messages of a logger."""

    def between(self, x: Tensor) -> Tensor:
        """The same."""
        log.info("stage 1 gave %s", x.shape)
        return x


class Stopwatch(Small):
    """Times its first stage."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        start = time.time()
        x = self.s1(x)
        self.took = time.time() - start
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class Excluded(Small):
    """A step that is kept out of torch.compile."""

    @torch.compiler.disable
    def between(self, x: Tensor) -> Tensor:
        """Clipped."""
        return x.clamp(max=6.0)


class NumpyWindow(Small):
    """A window made by numpy."""

    def between(self, x: Tensor) -> Tensor:
        """Weighted towards the middle."""
        w = torch.from_numpy(np.hanning(x.shape[-1]).astype(np.float32)).to(x.device)
        return x * (0.5 + w)


class CopiesConfig(Small):
    """Copies its configuration in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"gain": [1.5], "bias": 0.1}

    def between(self, x: Tensor) -> Tensor:
        """Scaled and shifted."""
        config = copy.deepcopy(self.config)
        return x * config["gain"][0] + config["bias"]


def prints(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Print in forward."""
    return Prints().eval(), image(batch)


def logs(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A logger in forward."""
    return Logs().eval(), image(batch)


def stopwatch(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """The clock in forward."""
    return Stopwatch().eval(), image(batch)


def excluded(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """torch.compiler.disable."""
    return Excluded().eval(), image(batch)


def numpy_window(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Numpy in forward."""
    return NumpyWindow().eval(), image(batch)


def copies_config(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Deepcopy in forward."""
    return CopiesConfig().eval(), image(batch)
