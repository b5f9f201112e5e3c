"""How well peaks are predicted: models of torchvision, measured here and held against the analysis."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from costmodel.features import group_of
from costmodel.measurement.peak_memory import inference_peak_bytes, training_peak_bytes
from costmodel.memory.analysis import analyze_on
from costmodel.memory.report import MemoryReport
from costmodel.predictor.group_model import UNMEASURED
from costmodel.profiles.profile import DEFAULT, Profile, load_profile
from costmodel.training.dataset import kernel_of, read_frame
from costmodel.training.families import family_of
from costmodel.training.tables import shape_group, trusted
from costmodel.zoo import load_torchvision

MODELS = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mobilenet_v2"),
    *("resnet18", "resnet50", "squeezenet1_1", "swin_t", "vgg16_bn", "vit_b_16"),
)
IMAGE_SIZE = 224
BEGIN, END = "<!-- memory: made by scripts/memory.py -->", "<!-- end of memory -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One pass of one model, bytes.

    Attributes:
        model: of torchvision's.
        kind: `inference` or `training`.
        predicted_bytes: by the profile as it is, which recalls the workspaces of convolutions that were measured.
        unseen_bytes: by the profile without those of the model's family, and of all of their shapes.
        measured_bytes: the peak.
        state_bytes: parameters, buffers and inputs.
        allowance_bytes: what cuDNN may take at most.
    """

    model: str
    kind: str
    predicted_bytes: int
    unseen_bytes: int
    measured_bytes: int
    state_bytes: int
    allowance_bytes: int

    @property
    def error(self) -> float:
        """Relative error of the whole peak."""
        return self.predicted_bytes / self.measured_bytes - 1.0

    @property
    def unseen_error(self) -> float:
        """Relative error of the peak that is predicted without the family's workspaces."""
        return self.unseen_bytes / self.measured_bytes - 1.0

    @property
    def beyond_state_error(self) -> float:
        """Relative error of what the pass adds to parameters, buffers and inputs, which are known beforehand."""
        return (self.predicted_bytes - self.state_bytes) / (self.measured_bytes - self.state_bytes) - 1.0


def convolutions_of(profile: Profile) -> list[tuple[int, str]]:
    """Shape group and family of each convolution that the profile's predictor remembers, in its order.

    Raises:
        DatasetError: the profile has no dataset of units.
    """
    kept = trusted(read_frame(profile.path / "units.parquet")[0])
    kept = kept[kept["graph"].str.contains("convolution")]
    kernels = (kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True))
    return [
        (shape_group(graph), family_of(source.partition("@")[0]))
        for kernel, graph, source in zip(kernels, kept["graph"], kept["source"], strict=True)
        if group_of(kernel) == "conv"
    ]


def forgetting(profile: Profile, convolutions: Sequence[tuple[int, str]], family: str | None) -> Profile:
    """The profile without the workspaces of a family's convolutions, and of all that have the shape of one.

    Args:
        profile: with workspaces.
        convolutions: what `convolutions_of` says of it.
        family: of models; None for all.
    """
    model = profile.predictor.groups["conv"]
    if not len(model.workspace):
        return profile
    shapes = {shape for shape, of in convolutions if family in (of, None)}
    forgotten = np.array([shape in shapes for shape, _ in convolutions])
    workspace = np.where(forgotten, np.float32(UNMEASURED), model.workspace)
    groups = {**profile.predictor.groups, "conv": replace(model, workspace=workspace)}
    return profile.using(replace(profile.predictor, groups=groups))


def predicted_anew(rows: Iterable[Row], device: str, batch_size: int) -> Iterator[Row]:
    """What was measured before, beside what is predicted now; two rows a model, as `accuracy_rows` gives them."""
    profile = load_profile(DEFAULT)
    convolutions = convolutions_of(profile)
    measured = {(row.model, row.kind): row.measured_bytes for row in rows}
    for name in dict.fromkeys(model for model, _ in measured):
        with torch.device("meta"):
            module, image = _module(name), torch.empty(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
        found = _predicted(profile, convolutions, module, image, name)
        yield _row(found, "inference", measured[name, "inference"], device)
        yield _row(found, "training", measured[name, "training"], device)


def accuracy_rows(models: Iterable[str], device: str, batch_size: int) -> Iterator[Row]:
    """Two rows a model, inference and training; float32, eager, gradients None before the step.

    Args:
        models: names of torchvision's.
        device: `cuda`, where the allocator's counter is read, or `cpu`, where storages are watched.
        batch_size: images in a pass.
    """
    profile = load_profile(DEFAULT)
    convolutions = convolutions_of(profile)
    if device == "cpu":  # which has no workspaces
        profile = forgetting(profile, convolutions, None)
    for name in models:
        module = _module(name).to(device)
        image = torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)
        found = _predicted(profile, convolutions, module, image, name)
        _clear(device)
        yield _row(found, "inference", inference_peak_bytes(module.eval(), (image,)), device)
        _clear(device)
        yield _row(found, "training", training_peak_bytes(module.train(), (image,)), device)


def _predicted(
    profile: Profile, convolutions: Sequence[tuple[int, str]], module: nn.Module, image: torch.Tensor, name: str
) -> tuple[MemoryReport, MemoryReport]:
    """Reports by the profile, and by the profile without the family's workspaces; of inference only, the second."""
    unseen = forgetting(profile, convolutions, family_of(name))
    whole = analyze_on(profile, module.eval(), (image,), name)
    return whole, analyze_on(unseen, module.eval(), (image,), name, passes=("inference",))


def _row(found: tuple[MemoryReport, MemoryReport], kind: str, measured_bytes: int, device: str) -> Row:
    report, unseen = found
    run = report.inference if kind == "inference" else report.training
    other = unseen.inference if kind == "inference" else report.training
    assert run is not None  # both passes were asked for
    assert other is not None
    added = run.workspace_bytes if device == "cpu" else 0
    state_bytes = report.parameter_bytes + report.buffer_bytes + report.input_bytes
    peaks = (run.peak_bytes - added, other.peak_bytes - added)
    return Row(report.model, kind, *peaks, measured_bytes, state_bytes, run.convolution_allowance_bytes)


def accuracy_table(rows: Sequence[Row], device: str, batch_size: int) -> str:
    """The rows as Markdown, under a line that says what was measured."""
    where = "`torch.cuda.max_memory_allocated`" if device != "cpu" else "live storages of a run on the CPU"
    lines = [
        f"Measured: {where}, batch {batch_size}, {IMAGE_SIZE}x{IMAGE_SIZE}, float32, eager; MB of 10^6 bytes. *Beyond",
        "state* is the error of what the pass adds to parameters, buffers and inputs; *unseen* that of the peak if the",
        "profile had no workspace of a convolution of the model's family, or of the shape of one.",
        "",
        "| model | pass | predicted MB | measured MB | error | beyond state | unseen | cuDNN at most MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sizes = f"{row.predicted_bytes / 1e6:,.1f} | {row.measured_bytes / 1e6:,.1f}"
        errors = f"{row.error:+.2%} | {row.beyond_state_error:+.2%} | {row.unseen_error:+.2%}"
        lines.append(f"| {row.model} | {row.kind} | {sizes} | {errors} | {_allowance(row, device)} |")
    for kind in ("inference", "training"):
        worst = max((abs(row.error) for row in rows if row.kind == kind), default=0.0)
        unseen = max((abs(row.unseen_error) for row in rows if row.kind == kind), default=0.0)
        lines += ["", f"Largest error of {kind}: {worst:.2%}; unseen: {unseen:.2%}."]
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
