"""Cost tables that turn kernel times into latencies: their names, and priors of their costs."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.timeline.cpu import KERNEL_KINDS, SERIAL_MODES

LAUNCH_COSTS = ("launch",)
"""Device time of a launch inside a model, beyond its kernel measured alone."""
WALL_COSTS = ("gap",)
"""Idle time of the device between two kernels of a stream."""
PRIORS: Mapping[str, Mapping[str, float]] = {
    "eager_host": {
        "dispatch": 0.5,
        "kinds": 0.005,
        "calls": 0.03,
        "convolution": -4.0,
        "matmul": -4.0,
        "view": 2.5,
        "view_again": -2.4,
        "idle": 2.5,
        "write": 15.0,
        "module": 1.5,
        "start": 50.0,
    },
    "default_host": {
        "dispatch": 0.85,
        "matmul": 18.0,
        "triton": 7.0,
        "distinct": 2.0,
        "output": 3.0,
        "parameter": 1.0,
        "module": 1.0,
        "start": 60.0,
    },
    "compile": {"operator": 5e3, "distinct_kernel": 5e4, "start": 1e6},
    "graph_host": {"parameter": 0.3, "module": 1.0, "start": 80.0},
    "eager_serial": {
        **dict.fromkeys(KERNEL_KINDS, 1.0),
        "loop": -6.0,
        "call": 1.0,
        "view": 2.0,
        "module": 1.5,
        "start": 20.0,
    },
    "default_serial": {
        **dict.fromkeys(KERNEL_KINDS, 1.0),
        "loop": -6.0,
        "call": 2.0,
        "parameter": 0.5,
        "module": 0.5,
        "start": 60.0,
    },
}
"""Priors from isolated calls and published profiles of torch.compile's overheads, microseconds a count.

Kinds of kernels on a CPU have factors instead. The cost of a loop is negative: measured alone, a loop is called through
a wrapper of its own, which a model has only once."""
LAUNCHES: Mapping[str, float] = dict.fromkeys(LAUNCH_COSTS, 0.25)
"""Priors of LAUNCH_COSTS, microseconds."""
WALL: Mapping[str, float] = dict.fromkeys(WALL_COSTS, 1.0)
"""Values of WALL_COSTS where nothing was measured, microseconds."""
CPU_COSTS: Mapping[str, tuple[str, ...]] = {
    **{name: tuple(PRIORS[name]) for name in SERIAL_MODES.values()},
    "compile": ("start",),
}
"""Cost tables that a CPU's profile must have, with their costs."""
COSTS: Mapping[str, tuple[str, ...]] = {
    "eager_device": LAUNCH_COSTS,
    "eager_wall": WALL_COSTS,
    "default_device": LAUNCH_COSTS,
    "default_wall": WALL_COSTS,
    **{name: tuple(PRIORS[name]) for name in ("eager_host", "default_host", "graph_host")},
    "compile": ("start",),
}
"""Cost tables that a GPU's profile must have, with their costs."""
