"""Reports with modules and kernels, built by hand, for the tests of their page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodel.report import KernelPrediction, LayerPrediction, Module, Report
from costmodel.report.document import Column, Section
from costmodel.report.page import Ceilings, PageFacts, ProfileFacts
from tests.support.sample_reports import report

SMALL = {
    "stem.conv": (30.0, 10.0),
    "stage1.block1.conv1": (20.0, 10.0),
    "stage1.block1.conv2": (40.0, 50.0),
    "stage1.block2.conv1": (8.0, 8.0),
    "head.fc": (12.0, 6.0),
}
"""Eager and compiled time of the layers of a small model, microseconds: 110 and 84 in all."""
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "]]></script>",
    "a'\"b&c",
    "\u202e\x1b[31mred",
    "{{ 7 * 7 }}",
)


def layer(name: str, eager_us: float, compiled_us: float, position: float, **changes: object) -> LayerPrediction:
    speedup = eager_us / compiled_us
    values: dict[str, object] = {
        "extrapolated_share": 0.0,
        "shape": (1, 64, 56, 56),
        "module_type": "Conv2d",
        "bound": "memory" if compiled_us < 10.0 else "compute",
        "reason": "fewer launches" if speedup > 1 else "slower generated kernel",
        "modules": (name,),
    }
    found = LayerPrediction(
        name,
        "conv2d",
        ("conv2d", "relu"),
        position,
        eager_us,
        compiled_us,
        speedup,
        speedup * 0.9,
        speedup * 1.1,
        "inductor",
    )
    return replace(found, **(values | changes))  # type: ignore[arg-type]


def with_layers(times: dict[str, tuple[float, float]], **changes: object) -> Report:
    """A report whose layers take these eager and compiled times."""
    count = max(1, len(times) - 1)
    layers = [
        layer(name, *us, round(index / count, 4), flops=1_000_000 + index)  # no two alike, or the tree joins them
        for index, (name, us) in enumerate(times.items())
    ]
    paths = dict.fromkeys(path for name in times for path in _around(name))
    modules = [
        Module("", "Net", 0),
        *(Module(path, *(("Conv2d", 100) if path in times else ("Block", 0))) for path in paths),
    ]
    usual = report()
    kernels = {mode: _kernels(layers, mode) for mode in usual.modes}
    return replace(usual, layers=tuple(layers), modules=tuple(modules), kernels=kernels, **changes)  # type: ignore[arg-type]


def _around(name: str) -> Sequence[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _kernels(layers: Sequence[LayerPrediction], mode: str) -> tuple[KernelPrediction, ...]:
    found, clock = [], 5.0
    for index, one in enumerate(layers):
        us = (one.eager_us if mode == "eager" else one.compiled_us) or 0.0
        host_us = 5.0 if mode != "reduce-overhead" or index == 0 else 0.0
        found.append(
            KernelPrediction(
                name="conv2d+relu",
                layers=(one.name,),
                backend="triton",
                flops=one.flops if index % 3 else 0,
                bytes=50_000 + index,
                host_start_us=clock,
                host_us=host_us,
                device_start_us=clock + host_us,
                device_us=us,
                low_us=us * 0.9,
                high_us=us * 1.1,
                bound=one.bound,
                extrapolated=index % 7 == 6,
            )
        )
        clock += us + host_us
    return tuple(found)


def facts(drawing: str = "") -> PageFacts:
    """Facts of a page, with a profile of one table of accuracy."""
    accuracy = Section(
        "accuracy on held-out models", (Column("quantity"), Column("mean error")), [("latency", "4.7 %")]
    )
    profile = ProfileFacts([("environment", "cuda 13.0")], [accuracy], Ceilings(4e6, {"conv.float32": 3e8}))
    return PageFacts("costmodel predict tiny -o report.html", [("torch", "2.13.0")], {"some-gpu": profile}, [drawing])
