"""Models of the experiments on a device, and calls that run them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from costmodel.measurement.timers import Measurement, device_time, latency
from costmodel.measurement.validation import synchronize
from costmodel.zoo import load_real
from study.experiment import Setup

SIX = ("alexnet", "densenet121", "googlenet", "mobilenet_v2", "resnet50", "squeezenet1_1")
"""Models of Goldfarb (2024), section 4.1.3."""
QUICK = ("alexnet",)
"""Model of quick runs: it compiles fastest."""
SMALL = 64
"""Image size of quick runs."""

Call = Callable[[], Any]


def load_model(name: str, setup: Setup, batch_size: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Model with random weights and inputs on the device, in evaluation mode."""
    loaded = load_real(name, torch.device(setup.device), batch_size=batch_size, img_size=setup.chosen(None, SMALL))
    inputs = loaded.inputs
    return loaded.module, tuple(inputs.values() if isinstance(inputs, dict) else inputs)


def compiled(function: Callable[..., Any], mode: str = "default") -> Callable[..., Any]:
    """A module or function compiled for fixed shapes, apart from what was compiled before."""
    torch._dynamo.reset()
    result: Callable[..., Any] = torch.compile(function, dynamic=False, mode=mode)
    return result


def bound(function: Callable[..., Any], inputs: Sequence[Any]) -> Call:
    """Call of a function without gradients."""

    def call() -> Any:
        with torch.no_grad():
            return function(*inputs)

    return call


def first_call_s(call: Call, device: str) -> float:
    """Seconds of the first call: compilation."""
    start = time.perf_counter()
    call()
    synchronize(torch.device(device))
    return time.perf_counter() - start


def wall(call: Call, setup: Setup, device: str | None = None) -> Measurement:
    """Latency of a call."""
    return latency(call, setup.seconds, setup.least, setup.device if device is None else device)


def without_host(call: Call, setup: Setup) -> Measurement:
    """Device time of a call, by replays of a CUDA graph; on a CPU the time of calls in a row."""
    with torch.no_grad():
        return device_time(call, rounds=setup.least, copies=setup.chosen(4, 1), device=setup.device)
