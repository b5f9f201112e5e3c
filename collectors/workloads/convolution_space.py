"""Convolution units: a convolution with batch norm, activation and residual addition, in every way of running it.

Parameters are drawn from ranges that cover vision models (kernel 1-11, stride, padding, dilation, groups and
depthwise, 1-4096 channels, 1-512 pixels, batch 1-256), log-uniformly, within limits on the size of tensors.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from collectors.workloads.cases import Runner, UnitCase
from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value

MOST_ELEMENTS = 1 << 27
LEAST_WORK, MOST_WORK = 1 << 14, 1 << 38
MOST_CHANNELS = 1 << 12

Outline = Literal["square", "wide", "tall"]


@dataclass(frozen=True, slots=True)
class ConvUnit:
    """A convolution and the operators fused into it. Sizes in elements; `size` is the height and width of the input.

    A `wide` kernel has height 1 and width `kernel`, a `tall` one the reverse; padding then applies along the kernel's
    length only.
    """

    batch: int
    in_channels: int
    out_channels: int
    size: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    dtype: str = "float32"
    batch_norm: bool = True
    residual: bool = False
    activation: bool = True
    outline: Outline = "square"

    @property
    def kernel_shape(self) -> tuple[int, int]:
        """Height and width of the kernel."""
        return self._along(self.kernel, 1)

    @property
    def paddings(self) -> tuple[int, int]:
        """Rows added above and below, columns added left and right."""
        return self._along(self.padding, 0)

    def _along(self, length: int, across: int) -> tuple[int, int]:
        """(height, width) with `length` along the kernel, and `across` in a dimension where the kernel is 1."""
        return (across if self.outline == "wide" else length, across if self.outline == "tall" else length)

    @property
    def out_shape(self) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (
            (self.size + 2 * padding - self.dilation * (kernel - 1) - 1) // self.stride + 1
            for kernel, padding in zip(self.kernel_shape, self.paddings, strict=True)
        )
        return height, width

    @property
    def elements(self) -> int:
        """Number of elements of the larger of input and output."""
        return self.batch * max(self.in_channels * self.size**2, self.out_channels * math.prod(self.out_shape))

    @property
    def work(self) -> int:
        """Multiply-accumulates of the convolution."""
        made = self.batch * self.out_channels * math.prod(self.out_shape)
        return made * self.in_channels // self.groups * math.prod(self.kernel_shape)

    @property
    def name(self) -> str:
        """One word that identifies the unit."""
        return "conv-" + "-".join(str(int(v) if isinstance(v, bool) else v) for v in _fields(self))


def _fields(unit: ConvUnit) -> tuple[int | str | bool, ...]:
    """Fields that identify the unit; `outline` only if the kernel is not square."""
    named = {name: getattr(unit, name) for name in unit.__dataclass_fields__}
    return tuple(value for name, value in named.items() if (name, value) != ("outline", "square"))


def unit_cases(unit: ConvUnit, source: str = "conv", position: float | None = None) -> Iterator[UnitCase]:
    """Cases of a unit in each way: eager in both layouts, Inductor, Inductor with folded weights, cuDNN fused."""
    folded = replace(unit, batch_norm=False)
    ways: list[tuple[str, Runner, Graph]] = [
        ("eager", "aten", unit_graph(unit, "nchw", "nchw")),
        ("eager_nhwc", "aten", unit_graph(unit, "nhwc", "nhwc")),
        ("inductor", "inductor", unit_graph(unit, "nhwc", "nchw")),
        ("folded", "inductor", unit_graph(folded, "nhwc", "nhwc")),
    ]
    if unit.activation:
        ways.append(("cudnn", "aten", fused_graph(folded)))
    for way, runner, graph in ways:
        yield UnitCase(str(graph), runner, unit.name, way, position, source)


def kernel_cases(unit: ConvUnit) -> Iterator[UnitCase]:
    """Cases of a unit's convolution as single kernels: eager in both layouts, and cuDNN's fused kernel.

    Training reads single kernels; of the cases of a whole unit it reads only cuDNN's.
    """
    for layout in ("nchw", "nhwc"):
        yield UnitCase(str(bare_graph(unit, layout)), "aten", source="conv")
    if unit.activation:
        yield UnitCase(str(fused_graph(replace(unit, batch_norm=False))), "aten", source="conv")


def bare_graph(unit: ConvUnit, layout: str) -> Graph:
    """Graph of the unit's convolution, input and weights in one layout; with a bias if there is no batch norm."""
    whole = unit_graph(replace(unit, residual=False, activation=False), layout, layout)
    names = {ref.name for ref in whole.ops[0].refs()}
    values = tuple(value for value in whole.values if value.name in names)
    return Graph("", values, whole.ops[:1], (Ref("0"),))


def unit_graph(unit: ConvUnit, layout: str, weight_layout: str) -> Graph:
    """Graph of the unit as ATen operators; the convolution has a bias if there is no batch norm."""
    result = TensorType(unit.dtype, (unit.batch, unit.out_channels, *unit.out_shape), layout)
    values, convolution = _convolution(unit, layout, weight_layout, result)
    made = [convolution]

    def add(base: str, **args: Ref | int | float | bool | tuple[int, ...]) -> Ref:
        made.append(Op(str(len(made)), base, tuple(args.items()), (result,)))
        return Ref(made[-1].name)

    last = Ref("0")
    if unit.batch_norm:
        per_channel = TensorType(unit.dtype, (unit.out_channels,))
        names = ("weight", "bias", "running_mean", "running_var")
        refs = {name: Ref(f"n{index}") for index, name in enumerate(names)}
        values += [Value(ref.name, per_channel, "param") for ref in refs.values()]
        empty = TensorType(unit.dtype, (0,))
        args: tuple[tuple[str, Arg], ...] = (
            ("input", last),
            *refs.items(),
            ("training", False),
            ("momentum", 0.1),
            ("eps", 1e-5),
        )
        made.append(Op("1", "native_batch_norm", args, (result, empty, empty)))
        last = Ref("1")
    if unit.residual:
        values.append(Value("a1", result))
        last = add("add.Tensor", self=last, other=Ref("a1"))
    if unit.activation:
        last = add("relu", self=last)
    return Graph("", tuple(values), tuple(made), (last,))


def _convolution(unit: ConvUnit, layout: str, weight_layout: str, result: TensorType) -> tuple[list[Value], Op]:
    source = TensorType(unit.dtype, (unit.batch, unit.in_channels, unit.size, unit.size), layout)
    weight_shape = (unit.out_channels, unit.in_channels // unit.groups, *unit.kernel_shape)
    weight = TensorType(unit.dtype, weight_shape, _layout_of(weight_shape, weight_layout))
    values = [Value("a0", source), Value("p0", weight, "param")]
    bias: Ref | None = None
    if not unit.batch_norm:
        values.append(Value("p1", TensorType(unit.dtype, (unit.out_channels,)), "param"))
        bias = Ref("p1")
    args = (
        ("input", Ref("a0")),
        ("weight", Ref("p0")),
        ("bias", bias),
        ("stride", (unit.stride,) * 2),
        ("padding", unit.paddings),
        ("dilation", (unit.dilation,) * 2),
        ("transposed", False),
        ("output_padding", (0, 0)),
        ("groups", unit.groups),
    )
    return values, Op("0", "convolution", args, (result,))


def _layout_of(shape: tuple[int, ...], layout: str) -> str:
    """Layout of a weight: strides do not distinguish layouts with one channel or one pixel."""
    return "nchw" if shape[1] == 1 or shape[2] * shape[3] == 1 else layout


def fused_graph(unit: ConvUnit) -> Graph:
    """Graph of cuDNN's fused convolution + bias + optional addition + ReLU, channels last."""
    result = TensorType(unit.dtype, (unit.batch, unit.out_channels, *unit.out_shape), "nhwc")
    values, convolution = _convolution(unit, "nhwc", "nhwc", result)
    geometry = tuple((key, convolution.arg(key)) for key in ("stride", "padding", "dilation", "groups"))
    if not unit.residual:
        args = (("self", Ref("a0")), ("weight", Ref("p0")), ("bias", Ref("p1")), *geometry)
        return Graph("", tuple(values), (Op("0", "cudnn_convolution_relu", args, (result,)),), (Ref("0"),))
    values.append(Value("a1", result))
    args = (
        ("self", Ref("a0")),
        ("weight", Ref("p0")),
        ("z", Ref("a1")),
        ("alpha", 1.0),
        ("bias", Ref("p1")),
        *geometry,
    )
    return Graph("", tuple(values), (Op("0", "cudnn_convolution_add_relu", args, (result,)),), (Ref("0"),))


def sample(count: int, seed: int) -> list[ConvUnit]:
    """Random units within the limits of size and work."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    units: list[ConvUnit] = []
    while len(units) < count:
        unit = _draw(rng)
        if min(unit.out_shape) >= 1 and unit.elements <= MOST_ELEMENTS and LEAST_WORK <= unit.work <= MOST_WORK:
            units.append(unit)
    return units


def _draw(rng: random.Random) -> ConvUnit:
    kernel = rng.choices((1, 3, 5, 7, 2, 4, 9, 11), (40, 35, 6, 5, 3, 3, 3, 3))[0]
    channels = [_channels(rng), _channels(rng)]
    style = rng.choices(("dense", "depthwise", "grouped"), (60, 15, 25))[0]  # grouped convolutions are predicted worst
    groups = 1
    if style == "depthwise":
        channels[1] = groups = channels[0]
    elif style == "grouped" and rng.random() < 0.5:
        groups = rng.choice((2, 4, 8, 16, 32))
        channels = [max(groups, c // groups * groups) for c in channels]
    elif style == "grouped":  # as in ResNeXt and RegNet: as many channels out as in, and any number of groups
        width = rng.choice((4, 8, 8, 16, 16, 24, 32, 40, 48, 56, 64, 72, 88, 112, 120, 168))
        groups = rng.randint(2, min(40, MOST_CHANNELS // width))
        channels = [groups * width] * 2
    dilation = rng.choice((1,) * 9 + (2,)) if kernel > 1 else 1
    residual = rng.random() < 0.25
    return ConvUnit(
        batch=rng.choice((1, 1, 2, 4, 8, 16, 32, 32, 64, 128, 256)),
        in_channels=channels[0],
        out_channels=channels[1],
        size=_size(rng),
        kernel=kernel,
        stride=rng.choices((1, 2, 4), (75, 22, 3))[0],
        padding=rng.choice((dilation * (kernel // 2),) * 4 + (0,)),
        dilation=dilation,
        groups=groups,
        dtype=rng.choices(("float32", "float16", "bfloat16"), (55, 30, 15))[0],
        residual=residual,
        activation=residual or rng.random() < 0.85,
    )


def _channels(rng: random.Random) -> int:
    """Draw a number of channels log-uniformly from 1 to 4096; mostly a multiple of 8, as in models."""
    raw = 2 ** rng.uniform(0, 12)
    step = rng.choices((8, 16, 64, 1), (35, 25, 25, 15))[0]
    return max(step, round(raw / step) * step)


def _size(rng: random.Random) -> int:
    """Draw a size from 1 to 512; often one that halving 224 gives."""
    if rng.random() < 0.6:
        return rng.choice((7, 14, 28, 56, 112, 224))
    return max(1, round(2 ** rng.uniform(0, 9)))
