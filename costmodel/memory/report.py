"""What `costmodel memory` says: frozen records whose fields are the keys of its JSON. Bytes, microseconds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from costmodel.memory.alternatives import Alternative
from costmodel.memory.checkpoint_regions import CheckpointedModules
from costmodel.memory.recompute import Recomputation
from costmodel.report import check_format
from costmodel.report.rows import milliseconds, number
from costmodel.report.sections import Section, Sheet, render_sheet
from costmodel.report.to_csv import csv_text
from costmodel.report.to_json import json_text
from costmodel.report.types import Unsupported

_COLUMNS = (
    *("", "peak MB", "peak at", "parameters", "buffers", "inputs", "gradients", "optimizer", "feature maps"),
    *("cuBLAS", "cuDNN", "cuDNN at most", "graph pool"),
)
_PASS_KEYS = (
    *("peak_bytes", "peak_at", "workspace_bytes", "convolution_workspace_bytes", "convolution_allowance_bytes"),
    *("graph_pool_bytes", "gradient_bytes", "optimizer_bytes", "feature_map_bytes"),
)
_MODULES_SHOWN = 4

SCHEMA = 1
"""Version of the JSON; keys may be added under the same number, not renamed."""


@dataclass(frozen=True, slots=True)
class SavedActivations:
    """What is kept for the backward pass of one kind: how many tensors, and their bytes."""

    kind: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Inference:
    """One forward pass without gradients.

    Attributes:
        peak_bytes: what `torch.cuda.max_memory_allocated` would say: parameters, buffers, inputs, workspace and the
            largest set of tensors alive at once.
        peak_at: the module that runs then.
        workspace_bytes: cuBLAS's, part of the peak.
        convolution_workspace_bytes: the most that cuDNN is predicted to take for a convolution; where the peak is one,
            part of it.
        convolution_allowance_bytes: the most that it may take, by the algorithm that it chooses.
        graph_pool_bytes: the private pool of a CUDA graph of the pass.
    """

    peak_bytes: int
    peak_at: str
    workspace_bytes: int
    convolution_workspace_bytes: int
    convolution_allowance_bytes: int
    graph_pool_bytes: int


@dataclass(frozen=True, slots=True)
class Training:
    """One training step.

    Attributes:
        peak_bytes, peak_at, workspace_bytes, convolution_allowance_bytes: as for inference.
        gradient_bytes: of the trained parameters.
        optimizer, optimizer_bytes: which one, and its state; part of the peak.
        between_bytes: alive between the forward and the backward pass.
        forward_us: predicted device time of the forward pass.
        feature_maps: by the kind of operator that made them.
        recomputation: what could be computed again, tensor by tensor.
        checkpointing: what `torch.utils.checkpoint` can do of it, module by module.
        alternatives: offloading and encoding.
    """

    peak_bytes: int
    peak_at: str
    workspace_bytes: int
    convolution_allowance_bytes: int
    gradient_bytes: int
    optimizer: str
    optimizer_bytes: int
    between_bytes: int
    forward_us: float
    feature_maps: tuple[SavedActivations, ...]
    recomputation: Recomputation
    checkpointing: CheckpointedModules
    alternatives: tuple[Alternative, ...]

    @property
    def feature_map_bytes(self) -> int:
        """Bytes that are kept for the backward pass."""
        return sum(item.nbytes for item in self.feature_maps)


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The memory of one model. A pass that was not asked for is None.

    Attributes:
        warnings: passes that need more memory than the device has, one line each.
    """

    model: str
    hardware: str
    batch_size: int
    input_shape: tuple[int, ...]
    precision: str
    layout: str
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    inference: Inference | None
    training: Training | None
    unsupported: tuple[Unsupported, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report in JSON's types, schema 1."""
        record = {"schema": SCHEMA, **dataclasses.asdict(self)}
        record["input_shape"] = list(self.input_shape)
        if self.training is not None:
            record["training"] |= {
                "feature_map_bytes": self.training.feature_map_bytes,
                "recomputation": _recomputation(self.training.recomputation),
            }
        return record


def _recomputation(found: Recomputation) -> dict[str, Any]:
    return {
        "tensors": len(found.values),
        "operators": len(found.ops),
        "stashed_before": found.stashed_before,
        "stashed_after": found.stashed_after,
        "saved_bytes": found.saved_bytes,
        "added_us": found.added_us,
    }


class MemoryReport(MemoryFigures):
    """The memory of one model, which prints itself as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return render_memory(self).rstrip("\n")


def render_memory(report: MemoryFigures, format: str = "table", *, width: int | None = None) -> str:  # noqa: A002
    """A report as text that ends in a newline.

    Args:
        report: what `costmodel.analyze_memory` returned.
        format: one of FORMATS.
        width: columns of the terminal, for `table`; None for no limit.

    Raises:
        RequestError: unknown format.
    """
    check_format(format)
    if format == "json":
        return json_text(report.to_dict())
    if format == "csv":
        return _to_csv(report)
    return render_sheet(Sheet(headline(report), sections(report), notes(report)), format, width)


def headline(report: MemoryFigures) -> str:
    """What was analysed, for which input."""
    shape = "x".join(map(str, report.input_shape))
    faults = "".join(f"{text}; " for text in report.warnings)
    return f"memory of {report.model} on {report.hardware}: {faults}input {shape}, {report.precision}, {report.layout}"


def sections(report: MemoryFigures) -> list[Section]:
    """The tables of a report."""
    state = (report.parameter_bytes, report.buffer_bytes, report.input_bytes)
    rows: list[tuple[str, ...]] = []
    if (run := report.inference) is not None:
        sizes = (*map(megabytes, state), "-", "-", "-", megabytes(run.workspace_bytes))
        of_cudnn = (run.convolution_workspace_bytes, run.convolution_allowance_bytes)
        ends = tuple(map(megabytes, (*of_cudnn, run.graph_pool_bytes)))
        rows.append(("inference", megabytes(run.peak_bytes), run.peak_at, *sizes, *ends))
    if (step := report.training) is not None:
        held = (step.gradient_bytes, step.optimizer_bytes, step.feature_map_bytes, step.workspace_bytes)
        sizes = tuple(map(megabytes, (*state, *held)))
        ends = ("-", megabytes(step.convolution_allowance_bytes), "-")
        rows.append(("training", megabytes(step.peak_bytes), step.peak_at, *sizes, *ends))
    found: list[Section] = [("where memory goes, MB", _COLUMNS, rows)]
    return found if report.training is None else [*found, *_training_sections(report.training)]


def _training_sections(step: Training) -> list[Section]:
    kinds: list[tuple[str, ...]] = [
        (item.kind, str(item.tensors), megabytes(item.nbytes)) for item in step.feature_maps
    ]
    again, modules = step.recomputation, step.checkpointing
    ways = [
        _way(f"recompute {len(again.values)} tensors", again.saved_bytes, 0, again.added_us, again.added_us),
        _way(
            f"checkpoint {len(modules.modules)} modules",
            modules.stashed_before - modules.stashed_after,
            0,
            modules.added_us,
            modules.added_us,
        ),
        *(
            _way(item.name, item.saved_bytes, item.moved_bytes, item.busy_us, item.added_us)
            for item in step.alternatives
        ),
    ]
    title = f"ways to keep fewer of {megabytes(step.feature_map_bytes)} MB, beside a forward pass of"
    return [
        ("feature maps by what made them", ("operator", "tensors", "MB"), kinds),
        (
            f"{title} {milliseconds(step.forward_us / 1e3)} ms",
            ("way", "saves MB", "over the bus MB", "busy ms", "adds ms"),
            ways,
        ),
    ]


def _way(name: str, saved: int, moved: int, busy_us: float, added_us: float) -> tuple[str, ...]:
    moves = megabytes(moved) if moved else "-"
    return (name, megabytes(saved), moves, milliseconds(busy_us / 1e3), milliseconds(added_us / 1e3))


def notes(report: MemoryFigures) -> list[str]:
    """What the checkpointing plan names, then what could not be known."""
    said = []
    if report.training is not None and (modules := report.training.checkpointing.modules):
        more = len(modules) - _MODULES_SHOWN
        shown = ", ".join(modules[:_MODULES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        said.append(f"to checkpoint: {shown} (--save-plan FILE writes all)")
    unknown = "taken to save its inputs and results"
    return said + [f"operator {item.op} in {item.where or report.model}: {unknown}" for item in report.unsupported]


def megabytes(nbytes: int) -> str:
    """Bytes in units of 10^6."""
    return number(nbytes / 1e6, 1)


def _to_csv(report: MemoryFigures) -> str:
    """One row a pass; sizes in bytes."""
    record = report.to_dict()
    about = ("model", "hardware", "batch_size", "input_shape", "precision", "layout")
    state = ("parameter_bytes", "buffer_bytes", "input_bytes")
    shared = {key: record[key] for key in (*about, *state)} | {"input_shape": "x".join(map(str, report.input_shape))}
    passes = (shared | {"pass": key} | record[key] for key in ("inference", "training") if record[key])
    return csv_text([*about, "pass", *state, *_PASS_KEYS], passes)
