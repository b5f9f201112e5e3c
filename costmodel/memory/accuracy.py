"""How well peaks are predicted: models of torchvision, measured here and held against the analysis."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from costmodel.hardware import DEFAULT
from costmodel.measure_memory import inference_peak_bytes, training_peak_bytes
from costmodel.memory.analyze import analyze_memory
from costmodel.report.memory_types import Inference, MemoryReport, Training
from costmodel.zoo import load_torchvision

MODELS = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mobilenet_v2"),
    *("resnet18", "resnet50", "squeezenet1_1", "swin_t", "vgg16_bn", "vit_b_16"),
)
IMAGE_SIZE = 224
BEGIN, END = "<!-- memory: made by scripts/memory_accuracy.py -->", "<!-- end of memory -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One pass of one model, bytes. `allowance_bytes` is what cuDNN may have taken on top of what is predicted."""

    model: str
    kind: str
    predicted_bytes: int
    measured_bytes: int
    state_bytes: int
    allowance_bytes: int

    @property
    def most_bytes(self) -> int:
        """What is predicted with all that cuDNN may take."""
        return self.predicted_bytes + self.allowance_bytes

    @property
    def error(self) -> float:
        """Relative error of the whole peak."""
        return self.predicted_bytes / self.measured_bytes - 1.0

    @property
    def beyond_state_error(self) -> float:
        """Relative error of what the pass adds to parameters, buffers and inputs, which are known beforehand."""
        return (self.predicted_bytes - self.state_bytes) / (self.measured_bytes - self.state_bytes) - 1.0


def predicted_anew(rows: Iterable[Row], device: str, batch_size: int) -> Iterator[Row]:
    """What was measured before, beside what is predicted now; two rows a model, as `accuracy_rows` gives them."""
    measured = {(row.model, row.kind): row.measured_bytes for row in rows}
    for name in dict.fromkeys(model for model, _ in measured):
        with torch.device("meta"):
            module, image = _module(name), torch.empty(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
        report = analyze_memory(module.eval(), (image,), hardware=DEFAULT, model_name=name)
        yield _row(report, report.inference, measured[name, "inference"], device)
        yield _row(report, report.training, measured[name, "training"], device)


def accuracy_rows(models: Iterable[str], device: str, batch_size: int) -> Iterator[Row]:
    """Two rows a model, inference and training; float32, eager, gradients None before the step.

    Args:
        models: names of torchvision's.
        device: `cuda`, where the allocator's counter is read, or `cpu`, where storages are watched.
        batch_size: images in a pass.
    """
    for name in models:
        module = _module(name).to(device)
        image = torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)
        report = analyze_memory(module.eval(), (image,), hardware=DEFAULT, model_name=name)
        _clear(device)
        yield _row(report, report.inference, inference_peak_bytes(module.eval(), (image,)), device)
        _clear(device)
        yield _row(report, report.training, training_peak_bytes(module.train(), (image,)), device)


def _row(report: MemoryReport, run: Inference | Training | None, measured_bytes: int, device: str) -> Row:
    assert run is not None  # both passes were asked for
    state_bytes = report.parameter_bytes + report.buffer_bytes + report.input_bytes
    workspace = run.workspace_bytes if device == "cpu" else 0  # the CPU has none
    kind = "inference" if run is report.inference else "training"
    allowance = run.convolution_allowance_bytes
    return Row(report.model, kind, run.peak_bytes - workspace, measured_bytes, state_bytes, allowance)


def accuracy_table(rows: Sequence[Row], device: str, batch_size: int) -> str:
    """The rows as Markdown, under a line that says what was measured."""
    where = "`torch.cuda.max_memory_allocated`" if device != "cpu" else "live storages of a run on the CPU"
    lines = [
        f"Measured: {where}, batch {batch_size}, {IMAGE_SIZE}x{IMAGE_SIZE}, float32, eager; MB of 10^6 bytes. *Beyond",
        "state* is the error of what the pass adds to parameters, buffers and inputs.",
        "",
        "| model | pass | predicted MB | measured MB | error | beyond state | cuDNN may add MB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sizes = f"{row.predicted_bytes / 1e6:,.1f} | {row.measured_bytes / 1e6:,.1f}"
        errors = f"{row.error:+.2%} | {row.beyond_state_error:+.2%}"
        lines.append(f"| {row.model} | {row.kind} | {sizes} | {errors} | {_allowance(row, device)} |")
    for kind in ("inference", "training"):
        worst = max((abs(row.error) for row in rows if row.kind == kind), default=0.0)
        lines += ["", f"Largest error of {kind}: {worst:.2%}."]
    if device != "cpu":
        inside = sum(row.predicted_bytes <= row.measured_bytes <= row.most_bytes for row in rows)
        lines += ["", f"{inside} of {len(rows)} lie between what is predicted and that with what cuDNN may add."]
    return "\n".join(lines)


def _allowance(row: Row, device: str) -> str:
    return "-" if device == "cpu" else f"{row.allowance_bytes / 1e6:,.1f}"


def _module(name: str) -> nn.Module:
    models = load_torchvision().models
    known = inspect.signature(models.get_model_builder(name)).parameters
    options = {"init_weights": False} if "init_weights" in known else {}
    module: nn.Module = models.get_model(name, weights=None, **options)
    return module


def _clear(device: str) -> None:
    """Each measurement starts without the workspaces of the one before."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
