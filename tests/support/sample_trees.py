"""Reports with a module tree, built by hand: a stem, three identical blocks, an attention block, a head."""

from __future__ import annotations

from dataclasses import replace

from costmodel.report import LayerPrediction, ModePrediction, Module, Report
from tests.support.sample_reports import report

_MODES = {"roofline_ms": 0.25, "images_per_s": 500.0, "tflops": 12.5}


def layer(name: str, kind: str, eager_us: float, compiled_us: float, **changes: object) -> LayerPrediction:
    values: dict[str, object] = {
        "name": name,
        "kind": kind,
        "ops": (kind,),
        "position": 0.0,
        "eager_us": eager_us or None,
        "compiled_us": compiled_us or None,
        "speedup": eager_us / compiled_us if eager_us and compiled_us else None,
        "speedup_low": eager_us / compiled_us / 1.25 if eager_us and compiled_us else None,
        "speedup_high": eager_us / compiled_us * 1.25 if eager_us and compiled_us else None,
        "backend": "inductor",
        "bound": "memory",
        "modules": (name,),
    }
    return LayerPrediction(**(values | changes))  # type: ignore[arg-type]


def network() -> Report:
    """A report whose modes have throughputs, and whose layers are those of a small network."""
    wide = {"shape": (2, 64, 112, 112)}
    stem = ("stem.conv", "stem.norm", "stem")
    layers = [
        layer("stem.conv", "conv2d", 40.0, 20.0, ops=("conv2d", "batch_norm", "relu"), modules=stem, flops=2_000_000)
    ]
    layers[0] = replace(layers[0], reason="batch_norm+relu fused", module_type="Conv2d", shape=(2, 64, 112, 112))
    for index in range(3):
        block = f"blocks.{index}"
        grows = {"reason": "faster in channels_last", "bound": "compute", "flops": 8_000_000}
        layers.append(layer(f"{block}.conv", "conv2d", 30.0, 15.0, module_type="Conv2d", **wide, **grows))
        layers.append(layer(block, "cat", 4.0, 8.0, reason="layout copies", bound="launch", **wide))
    attention = {"modules": ("mixer",), "shape": (2, 49, 64), "reason": "same library call", "bound": "compute"}
    layers += [
        layer("mixer", "matmul", 10.0, 10.0, flops=4_000_000, **attention),
        layer("mixer", "softmax", 6.0, 2.0, **(attention | {"reason": "softmax fused", "bound": "launch"})),
        layer("head", "linear", 5.0, 4.0, module_type="Linear", shape=(2, 1000), in_range=False),
    ]
    layers[-1] = replace(layers[-1], extrapolated_share=1.0, reason="faster matmul call", flops=6_000_000)
    modules = [Module("", "Net", 0), Module("stem", "Stem", 0), Module("stem.conv", "Conv2d", 9408)]
    modules += [Module("stem.norm", "BatchNorm2d", 128), Module("blocks", "Sequential", 0)]
    for index in range(3):
        modules += [Module(f"blocks.{index}", "Block", 0), Module(f"blocks.{index}.conv", "Conv2d", 36_864)]
    modules += [Module("mixer", "Mixer", 4096), Module("unused", "Linear", 100), Module("head", "Linear", 513_000)]
    usual = report()
    modes = {name: _with_throughput(mode) for name, mode in usual.modes.items()}
    return replace(
        usual,
        modes=modes,
        layers=tuple(layers),
        modules=tuple(modules),
        parameters=sum(module.parameters for module in modules),
        flops=sum(one.flops for one in layers),
        peak_memory_bytes=96 * 2**20,
        explanation=(),
    )


def _with_throughput(mode: ModePrediction) -> ModePrediction:
    return replace(mode, **_MODES)
