"""Names and priors of the costs that turn kernel times into latencies."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.timeline.cpu import KERNEL_KINDS, SERIAL_MODES

LAUNCH_COSTS = ("launch",)
"""What a launch takes the device in a model beyond its kernel alone."""
WALL_COSTS = ("gap",)
"""What the device idles between two kernels of a stream."""
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
"""From isolated calls and published profiles of torch.compile's overheads; microseconds a count, but factors for kinds
of kernels on a CPU. There a loop alone is called through a wrapper of its own, which a model has once."""
LAUNCHES: Mapping[str, float] = dict.fromkeys(LAUNCH_COSTS, 0.25)
"""Prior of what a launch takes inside a model beyond its kernel alone, microseconds."""
WALL: Mapping[str, float] = dict.fromkeys(WALL_COSTS, 1.0)
"""The same of a stream, for want of measurements."""
CPU_COSTS: Mapping[str, tuple[str, ...]] = {name: tuple(PRIORS[name]) for name in (*SERIAL_MODES.values(), "compile")}
"""The tables of costs that a CPU's profile must have, and what each must tell."""
COSTS: Mapping[str, tuple[str, ...]] = {
    "eager_device": LAUNCH_COSTS,
    "eager_wall": WALL_COSTS,
    "default_device": LAUNCH_COSTS,
    "default_wall": WALL_COSTS,
    **{name: tuple(PRIORS[name]) for name in ("eager_host", "default_host", "graph_host", "compile")},
}
"""The same for a GPU's."""
