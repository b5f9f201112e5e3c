"""Predictions as frozen records, whose fields are the keys of the JSON that `costmodel predict` prints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from costmodel import checks
from costmodel.checks import checked
from costmodel.report.escape import unicode_text
from costmodel.report.kernel_prediction import KernelPrediction
from costmodel.report.training_prediction import LayerPasses, PassTimes, TrainingPrediction

if TYPE_CHECKING:
    import pandas as pd

    from costmodel.report.module_tree import ModuleNode
    from costmodel.report.plots import Plots

SCHEMA = 1
"""Version of the JSON; keys may be added under the same number, not renamed."""

SCHEMA_ID = f"urn:costmodel:predict:{SCHEMA}"
"""Name of the JSON's schema, `docs/predict.schema.json`; its value of `$schema`."""

TABLES = ("layers", "modes", "kernels")
"""Tables of a report as pandas frames."""

PRINTED_WIDTH = 100
"""Cells of the lines of a printed report."""

EAGER = "eager"
"""The mode that every speedup is relative to."""

EAGER_KEYS = ("latency_ms", "low_ms", "high_ms", "host_ms", "device_ms", "roofline_ms", "images_per_s", "tflops")
"""Fields that eager execution has; the others compare a mode with it."""


@dataclass(frozen=True, slots=True)
class ModePrediction:
    """One forward pass of the whole model in one mode.

    Attributes:
        latency_ms: median wall time of a synchronised call.
        low_ms, high_ms: 90 % prediction interval of the latency.
        host_ms: time the CPU spends launching kernels.
        device_ms: time the GPU spends executing kernels.
        speedup: eager latency over this mode's latency; None for eager.
        speedup_low, speedup_high: 90 % prediction interval of the speedup.
        compile_s: seconds to compile with an empty cache; None for eager and where it cannot be predicted.
        compile_s_low, compile_s_high: 90 % prediction interval of these seconds.
        compile_warm_s: seconds to compile in a second process, from the cache that the first one filled; None where it
            cannot be predicted.
        compile_warm_s_low, compile_warm_s_high: 90 % prediction interval of these seconds.
        break_even_calls: calls after which a compilation with an empty cache has paid off, to two significant digits;
            None where it never does.
        break_even_low, break_even_high: 90 % prediction interval of these calls; None for never.
        roofline_ms: least device time of the mode's kernels: the larger of arithmetic at peak and traffic at bandwidth.
        images_per_s: throughput of calls one after another.
        tflops: arithmetic of convolutions, matmuls and attention over the latency, 10^12 operations a second.
    """

    latency_ms: float
    low_ms: float
    high_ms: float
    host_ms: float
    device_ms: float
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    compile_s: float | None = None
    compile_s_low: float | None = field(default=None, kw_only=True)
    compile_s_high: float | None = field(default=None, kw_only=True)
    compile_warm_s: float | None = field(default=None, kw_only=True)
    compile_warm_s_low: float | None = field(default=None, kw_only=True)
    compile_warm_s_high: float | None = field(default=None, kw_only=True)
    break_even_calls: int | None = None
    break_even_low: int | None = field(default=None, kw_only=True)
    break_even_high: int | None = field(default=None, kw_only=True)
    roofline_ms: float | None = field(default=None, kw_only=True)
    images_per_s: float | None = field(default=None, kw_only=True)
    tflops: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class LayerPrediction:
    """One layer: an anchor operator with the pointwise operators that follow it in the same block.

    Attributes:
        name: the name in `named_modules()` of the module that calls the anchor; its kind for one outside of submodules.
        kind: kind of the anchor operator, such as `conv2d`.
        ops: operators in execution order.
        position: relative depth in the model, from 0 to 1.
        eager_us: time in eager mode, microseconds.
        compiled_us: time in the backend `backend`, microseconds. A fused kernel's time is shared out among the layers
            that it serves by the bytes that each operator in it would move alone.
        speedup: eager time over compiled time.
        speedup_low, speedup_high: 90 % prediction interval of the speedup.
        backend: how the compiled layer runs.
        in_range: False for a layer with extrapolated kernels: as far from any measured kernel, times are known within a
            factor of 2 at best.
        extrapolated_share: share of the layer's time in extrapolated kernels, 0 to 1; the larger of eager and compiled.
        shape: shape of its last result.
        module_type: class of the module; empty if it is not known.
        flops: arithmetic of convolutions, matmuls and attention, 2 a multiply-accumulate.
        bound: what bounds most of its time when compiled: `compute`, `memory` or `launch` (too small to fill the GPU).
        reason: phrase why it gains or loses.
        modules: modules whose operators it holds, the anchor's first; empty text for the model itself.
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    position: float
    eager_us: float | None
    compiled_us: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    backend: str
    in_range: bool = True
    extrapolated_share: float = 0.0
    shape: tuple[int, ...] = ()
    module_type: str = ""
    flops: int = 0
    bound: str = ""
    reason: str = ""
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the model: path, empty for the model itself; name of its class; parameters that it holds itself."""

    name: str
    type: str
    parameters: int


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator without a cost rule, or data-dependent control flow, and the module that calls it."""

    op: str
    where: str


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A place where torch.compile leaves compiled code: file and line of the model, and what breaks the graph there."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graphs that torch.compile makes of a model.

    Attributes:
        count: compiled graphs that a call enters: 1 without graph breaks, 0 where Dynamo gives up; None if not checked.
        checked: whether Dynamo has traced the model.
        breaks: graph breaks, with their lines.
        skipped: reasons why reduce-overhead replays a graph without a CUDA graph.
        error: error that torch.compile raises; empty if it succeeds. Only eager execution is predicted then.
    """

    count: int | None = None
    checked: bool = False
    breaks: tuple[GraphBreak, ...] = ()
    skipped: tuple[str, ...] = ()
    error: str = ""

    @property
    def summary(self) -> str:
        """Number of graphs in words."""
        if self.error:
            return "torch.compile fails"
        if self.count is None:
            return "graph breaks not checked"
        if self.count == 1 and not self.breaks:
            return "one graph (checked)"
        return "1 graph" if self.count == 1 else f"{self.count} graphs"


NOT_CHECKED = Graphs()
"""Graphs of a model that Dynamo has not traced."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason behind a prediction.

    Attributes:
        topic: `mode`, `break`, `section`, `fall-back`, `mutation`, `recompilation` or `layer`.
        where: mode, module or operator that the reason is about.
        why: a sentence with figures.
    """

    topic: str
    where: str
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The prediction for one model on one device; prints itself as a table.

    Attributes:
        modes: mode -> prediction, in the order of display; a mode that cannot be predicted is absent.
        best_mode: the mode of lowest latency.
        verdict: `compile`, `leave` or `uncertain`.
        layers: the layers in execution order.
        unsupported: operators without a cost rule and data-dependent control flow; they widen the intervals and add
            nothing to the times.
        warnings: one line each.
        partial: whether the capture ended at data-dependent control flow; every figure is then of the part before it.
        explanation: reasons, if they were asked for.
        host: name of the host that launches the kernels; by default the host of the profile.
        host_speed: speed of the host relative to the profile's.
        too_large: message that a forward pass needs more memory than the device has, which is the first warning too;
            empty where the model fits or the profile does not know.
        host_calibrated: whether the host's speed was given or measured; False where the profile's is assumed; None for
            a CPU, which is its own host.
        leaning: `compile` or `leave`, whichever is likelier, also where the verdict is uncertain; None where only a
            part of the model was captured, or it does not fit in memory.
        extrapolated_share: share of the device time in extrapolated kernels, 0 to 1; the larger of eager and compiled.
        assumed_host: the host that is assumed where none was given, and the hosts that the intervals cover; empty for
            a calibrated host.
        graphs: graphs and graph breaks of torch.compile.
        parameters: number of parameter elements; None if it is not known.
        flops: arithmetic of convolutions, matmuls and attention, 2 a multiply-accumulate.
        peak_memory_bytes: most memory in use at once: parameters, inputs and results, without workspaces.
        kernels: kernels in order of issue, by mode; not part of the JSON.
        modules: modules of the model, parents first; not part of the JSON.
        training: facts of a training step; None for inference, which is the other `pass` of the JSON.
        arithmetic: settings of torch that are not its defaults, such as `amp float16` or `matmuls in TF32`; empty and
            not part of the JSON, for the defaults.
    """

    model: str
    hardware: str
    batch_size: int
    input_shape: tuple[int, ...]
    precision: str
    layout: str
    modes: Mapping[str, ModePrediction]
    best_mode: str
    verdict: str
    layers: tuple[LayerPrediction, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    warnings: tuple[str, ...] = ()
    partial: bool = False
    explanation: tuple[Reason, ...] = ()
    host: str = ""
    host_speed: float = 1.0
    too_large: str = ""
    host_calibrated: bool | None = None
    leaning: str | None = None
    extrapolated_share: float = 0.0
    assumed_host: str = ""
    graphs: Graphs = NOT_CHECKED
    parameters: int | None = None
    flops: int = 0
    peak_memory_bytes: int | None = None
    kernels: Mapping[str, tuple[KernelPrediction, ...]] = field(default_factory=dict)
    modules: tuple[Module, ...] = ()
    arithmetic: str = ""
    training: TrainingPrediction | None = None

    @property
    def computes_in(self) -> str:
        """Precision, and settings of torch that are not its defaults, for a headline."""
        return ", ".join(filter(None, (self.precision, self.arithmetic)))

    def to_dict(self) -> dict[str, Any]:
        """The report in JSON's types; numbers are finite or None."""
        return {
            "$schema": SCHEMA_ID,
            "schema": SCHEMA,
            "pass": "inference" if self.training is None else "training",
            "model": self.model,
            "hardware": self.hardware,
            "host": self.host,
            "host_speed": self.host_speed,
            "host_calibrated": self.host_calibrated,
            "assumed_host": self.assumed_host,
            "batch_size": self.batch_size,
            "input_shape": list(self.input_shape),
            "precision": self.precision,
            "layout": self.layout,
            "parameters": self.parameters,
            "flops": self.flops,
            "peak_memory_bytes": self.peak_memory_bytes,
            "modes": {name: _mode_dict(name, mode) for name, mode in self.modes.items()},
            "best_mode": self.best_mode,
            "verdict": self.verdict,
            "leaning": self.leaning,
            "extrapolated_share": self.extrapolated_share,
            "layers": self._layer_records(),
            "unsupported": [record_of(item) for item in self.unsupported],
            "warnings": list(self.warnings),
            "partial": self.partial,
            "too_large": self.too_large,
            "graphs": plain(dataclasses.asdict(self.graphs)),
        } | self._optional()

    def _layer_records(self) -> list[dict[str, Any]]:
        """The layers; those of a training step with the times of their passes."""
        layers = [record_of(layer) for layer in self.layers]
        if self.training is None:
            return layers
        return [layer | record_of(passes) for layer, passes in zip(layers, self.training.layers, strict=True)]

    def _optional(self) -> dict[str, Any]:
        """Fields that only some reports have."""
        found: dict[str, Any] = {"arithmetic": self.arithmetic} if self.arithmetic else {}
        if (step := self.training) is not None:
            passes = {mode: record_of(times) for mode, times in step.passes.items()}
            found["training"] = {"optimizer": step.optimizer, "loss": step.loss, "passes": passes}
        return found | ({"explanation": [record_of(item) for item in self.explanation]} if self.explanation else {})

    def tree(self) -> ModuleNode:
        """The layers as the tree of the model's modules."""
        from costmodel.report.module_tree import module_tree

        return module_tree(self)

    @checked(table=checks.one_of(TABLES))
    def to_frame(self, table: str = "layers") -> pd.DataFrame:
        """A table of the report as a pandas frame.

        Args:
            table: `layers` (a row a layer), `modes` (a row a mode) or `kernels` (a row a kernel of each mode).

        Raises:
            RequestError: there is no such table.
        """
        from costmodel.report.to_frame import to_frame

        return to_frame(self, table)

    @property
    def plot(self) -> Plots:
        """Figures of the report, by Matplotlib: `report.plot.timeline()`, `.roofline()`, `.layers()`."""
        from costmodel.report.plots import Plots

        return Plots(self)

    def _repr_html_(self) -> str:
        from costmodel.report import fragment

        return fragment(self)

    def __repr__(self) -> str:
        from costmodel.report.summary import one_line

        return one_line(self)

    def __str__(self) -> str:
        from costmodel.report import render

        return render(self, "table", width=PRINTED_WIDTH).rstrip("\n")


def _mode_dict(name: str, mode: ModePrediction) -> dict[str, Any]:
    record = record_of(mode)
    if name == EAGER:
        return {key: value for key, value in record.items() if key in EAGER_KEYS}
    return record


Record = KernelPrediction | ModePrediction | LayerPrediction | LayerPasses | PassTimes | Unsupported | Reason


def record_of(item: Record) -> dict[str, Any]:
    """The fields of a record in JSON's types."""
    return {field.name: plain(getattr(item, field.name)) for field in dataclasses.fields(item)}


def plain(value: Any) -> Any:
    """A value that JSON can hold: tuples as lists, numbers that are not finite as None, text without surrogates."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return unicode_text(value) if isinstance(value, str) else value
