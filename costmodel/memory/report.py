"""Memory reports as frozen records, whose fields are the keys of the JSON of `costmodel memory`, and as documents.

Sizes of the records are in bytes, times in microseconds; documents show MiB and milliseconds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from costmodel.memory.alternatives import Alternative
from costmodel.memory.checkpoint_regions import CheckpointedModules
from costmodel.memory.recompute import Recomputation
from costmodel.report.document import Column, Document, Records, Row, Section, figures
from costmodel.report.figures import counted, mebibytes, milliseconds
from costmodel.report.renderers import render_document
from costmodel.report.types import NOT_CHECKED, Graphs, Unsupported, plain

_PASS_COLUMNS = (
    Column("pass"),
    figures("peak", mebibytes),
    Column("peak at"),
    figures("parameters", mebibytes),
    figures("buffers", mebibytes),
    figures("inputs", mebibytes),
    figures("gradients", mebibytes),
    figures("optimizer", mebibytes),
    figures("saved activations", mebibytes),
    figures("cuBLAS", mebibytes),
    figures("cuDNN", mebibytes),
    figures("cuDNN at most", mebibytes),
    figures("graph pool", mebibytes),
)
_ACTIVATION_COLUMNS = (Column("operator"), figures("tensors", str), figures("MiB", mebibytes))
_SAVING_COLUMNS = (
    Column("method"),
    figures("saves MiB", mebibytes),
    figures("transfers MiB", mebibytes),
    figures("busy ms", milliseconds),
    figures("adds ms", milliseconds),
)
_ABOUT = ("model", "hardware", "batch_size", "input_shape", "precision", "layout")
_STATE_KEYS = ("parameter_bytes", "buffer_bytes", "input_bytes")
_PASS_KEYS = (
    *("peak_bytes", "peak_at", "workspace_bytes", "convolution_workspace_bytes", "convolution_allowance_bytes"),
    *("graph_pool_bytes", "gradient_bytes", "optimizer_bytes", "feature_map_bytes"),
)
_PASSES = ("inference", "training")
_MODULES_SHOWN = 4

SCHEMA = 1
"""Version of the JSON; keys may be added under the same number, not renamed."""


@dataclass(frozen=True, slots=True)
class SavedActivations:
    """Activations saved for the backward pass that one kind of operator made: number of tensors, and their bytes."""

    kind: str
    tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Inference:
    """One forward pass without gradients.

    Attributes:
        peak_bytes: prediction of `torch.cuda.max_memory_allocated`: parameters, buffers, inputs, workspaces and the
            largest set of tensors alive at once.
        peak_at: module that runs at the peak.
        workspace_bytes: cuBLAS's workspace, part of the peak.
        convolution_workspace_bytes: largest workspace that cuDNN is predicted to take for a convolution; part of the
            peak if a convolution runs at the peak.
        convolution_allowance_bytes: upper bound of cuDNN's workspace over its algorithms.
        graph_pool_bytes: private pool of a CUDA graph of the pass.
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
        gradient_bytes: gradients of the trained parameters.
        optimizer: name of the optimizer.
        optimizer_bytes: state of the optimizer, part of the peak.
        between_bytes: memory in use between the forward and the backward pass.
        forward_us: predicted device time of the forward pass.
        feature_maps: saved activations by the kind of operator that made them.
        recomputation: tensors that could be recomputed instead of saved.
        checkpointing: modules that `torch.utils.checkpoint` could recompute.
        checkpointing_host_us: host time that this adds to an eager step; a compiled one has none of it.
        alternatives: offloading and compression.
        compiled_peak_bytes: peak of the compiled step, without workspaces of cuDNN; None where it was not asked for.
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
    checkpointing_host_us: float = 0.0
    compiled_peak_bytes: int | None = None

    @property
    def feature_map_bytes(self) -> int:
        """Bytes of the saved activations."""
        return sum(item.nbytes for item in self.feature_maps)


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Memory of one model.

    Attributes:
        inference, training: None for a pass that was not asked for.
        unsupported: operators without a rule; they are assumed to save their inputs and results.
        warnings: passes that need more memory than the device has, one line each.
        graphs: graphs and graph breaks of the forward pass under torch.compile.
        arithmetic: settings of torch that are not its defaults, as in a report of `costmodel predict`; empty and absent
            from JSON if there are none.
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
    graphs: Graphs = NOT_CHECKED
    arithmetic: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report in JSON's types."""
        record = {"schema": SCHEMA, **dataclasses.asdict(self)}
        record["input_shape"] = list(self.input_shape)
        if not self.arithmetic:
            del record["arithmetic"]
        record["graphs"] = plain(record["graphs"])
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
    """Memory of one model, which prints itself as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return render_memory(self).rstrip("\n")


def render_memory(
    report: MemoryFigures,
    format: str = "table",  # noqa: A002 - the name of the option
    *,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Render a memory report as text that ends in a newline.

    Args:
        report: result of `costmodel.analyze_memory`.
        format: one of FORMATS; CSV holds a row a pass, sizes in bytes.
        width: columns of the terminal, for `table`; None for no limit.
        color: whether `table` may use terminal colours.

    Raises:
        RequestError: unknown format.
    """
    return render_document(memory_document(report), format, width, color=color)


def memory_document(report: MemoryFigures) -> Document:
    """The document of a memory report."""
    shape = "x".join(map(str, report.input_shape))
    faults = "".join(f"{text}; " for text in report.warnings)
    graphs = f", {report.graphs.summary}" if report.inference is not None else ""
    precision = ", ".join(filter(None, (report.precision, report.arithmetic)))
    about = f"{faults}input {shape}, {precision}, {report.layout}{graphs}"
    title = f"memory of {report.model} on {report.hardware}: {about}"
    sections = [Section("memory in MiB", _PASS_COLUMNS, _pass_rows(report)), *_training_sections(report.training)]
    return Document(report.model, title, sections, report.to_dict(), _records(report), _notes(report))


def _pass_rows(report: MemoryFigures) -> list[Row]:
    state = (report.parameter_bytes, report.buffer_bytes, report.input_bytes)
    rows: list[Row] = []
    if (run := report.inference) is not None:
        workspaces = (run.workspace_bytes, run.convolution_workspace_bytes, run.convolution_allowance_bytes)
        none = (None, None, None)
        rows.append(("inference", run.peak_bytes, run.peak_at, *state, *none, *workspaces, run.graph_pool_bytes))
    if (step := report.training) is not None:
        kept = (step.gradient_bytes, step.optimizer_bytes, step.feature_map_bytes)
        ends = (step.workspace_bytes, None, step.convolution_allowance_bytes, None)
        rows.append(("training", step.peak_bytes, step.peak_at, *state, *kept, *ends))
        if step.compiled_peak_bytes is not None:
            others = (step.gradient_bytes, step.optimizer_bytes, None, step.workspace_bytes, None, None, None)
            rows.append(("training, compiled", step.compiled_peak_bytes, "", *state, *others))
    return rows


def _training_sections(step: Training | None) -> list[Section]:
    """Saved activations, and methods to save fewer; none without a training step."""
    if step is None:
        return []
    activations = [(item.kind, item.tensors, item.nbytes) for item in step.feature_maps]
    saved = mebibytes(step.feature_map_bytes)
    forward = milliseconds(step.forward_us / 1e3)
    title = f"methods to save less than {saved} MiB of activations; the forward pass takes {forward} ms"
    return [
        Section("saved activations by operator", _ACTIVATION_COLUMNS, activations),
        Section(title, _SAVING_COLUMNS, _saving_rows(step)),
    ]


def _saving_rows(step: Training) -> list[Row]:
    again, modules = step.recomputation, step.checkpointing
    fewer = modules.stashed_before - modules.stashed_after
    return [
        _saving_row(f"recompute {counted(len(again.values), 'tensor')}", again.saved_bytes, 0, again.added_us),
        _saving_row(f"checkpoint {counted(len(modules.modules), 'module')}", fewer, 0, modules.added_us),
        *(
            _saving_row(item.name, item.saved_bytes, item.moved_bytes, item.busy_us, item.added_us)
            for item in step.alternatives
        ),
    ]


def _saving_row(name: str, saved: int, moved: int, busy_us: float, added_us: float | None = None) -> Row:
    """A method's row; without `added_us` all of its busy time is added."""
    added_us = busy_us if added_us is None else added_us
    return (name, saved, moved or None, busy_us / 1e3, added_us / 1e3)


def _notes(report: MemoryFigures) -> list[str]:
    """Modules of the checkpointing plan, then operators without a rule."""
    notes = [f"graph break at {item.where}: {item.reason}" for item in report.graphs.breaks]
    if report.training is not None and (modules := report.training.checkpointing.modules):
        more = len(modules) - _MODULES_SHOWN
        shown = ", ".join(modules[:_MODULES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        notes.append(f"modules to checkpoint: {shown} (--save-plan FILE writes all)")
        if (host_us := report.training.checkpointing_host_us) > 0:
            notes.append(
                f"without torch.compile checkpointing takes {milliseconds(host_us / 1e3)} ms more on the host, which "
                "passes each operator of these modules through Python"
            )
    assumed = "assumed to save its inputs and results"
    return notes + [f"operator {item.op} in {item.where or report.model}: {assumed}" for item in report.unsupported]


def _records(report: MemoryFigures) -> Records:
    """Rows of the CSV: the passes, each with its own warning."""
    record = report.to_dict()
    shared = {key: record[key] for key in (*_ABOUT, *_STATE_KEYS)}
    shared |= {"input_shape": "x".join(map(str, report.input_shape)), "arithmetic": report.arithmetic}
    faults = {key: next((text for text in report.warnings if text.startswith(key)), "") for key in _PASSES}
    rows = [shared | {"pass": key, "too_large": faults[key]} | record[key] for key in _PASSES if record[key]]
    return Records([*_ABOUT, "pass", *_STATE_KEYS, *_PASS_KEYS, "too_large", "arithmetic"], rows)
