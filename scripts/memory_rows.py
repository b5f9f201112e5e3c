"""Predicted beside measured peak memory of torchvision models; scripts/memory.py prints and writes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from costmodel.errors import DatasetError
from costmodel.features import group_of
from costmodel.measurement.peak_memory import inference_peak_bytes, training_peak_bytes
from costmodel.memory.analysis import analyze_on
from costmodel.memory.report import MemoryReport
from costmodel.predictor.group_model import UNMEASURED
from costmodel.predictor.neighbours import spread_sample
from costmodel.predictor.recall import NOTHING, key_hash
from costmodel.profiles.profile import DEFAULT, Profile, load_profile
from costmodel.report.figures import mebibytes
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
    """Peak memory of one pass of one model, bytes.

    Attributes:
        model: torchvision name.
        kind: `inference` or `training`.
        predicted_bytes: predicted peak; workspaces of measured convolutions are recalled.
        unseen_bytes: predicted peak without the measured workspaces of the model's family and of its shapes.
        measured_bytes: measured peak.
        state_bytes: parameters, buffers and inputs.
        allowance_bytes: largest workspace that cuDNN may take.
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
        """Relative error of the peak predicted without the family's workspaces."""
        return self.unseen_bytes / self.measured_bytes - 1.0

    @property
    def beyond_state_error(self) -> float:
        """Relative error of the memory beyond parameters, buffers and inputs."""
        return (self.predicted_bytes - self.state_bytes) / (self.measured_bytes - self.state_bytes) - 1.0


def convolutions_of(profile: Profile) -> list[tuple[int, str, int]]:
    """Shape group and family of each measured convolution in the order of the dataset, and the hash of its key.

    Raises:
        DatasetError: the profile has no dataset of units.
    """
    kept = trusted(read_frame(profile.path / "units.parquet")[0])
    kept = kept[kept["graph"].str.contains("convolution")]
    kernels = (kernel_of(graph, runner) for graph, runner in zip(kept["graph"], kept["runner"], strict=True))
    return [
        (shape_group(graph), family_of(source.partition("@")[0]), key_hash(kernel.key))
        for kernel, graph, source in zip(kernels, kept["graph"], kept["source"], strict=True)
        if group_of(kernel) == "conv"
    ]


def without_workspaces(profile: Profile, convolutions: Sequence[tuple[int, str, int]], family: str | None) -> Profile:
    """Profile without the workspaces of a family's convolutions and of all convolutions of these shapes.

    Args:
        profile: with workspaces.
        convolutions: result of `convolutions_of`.
        family: of models; None for all families.

    Raises:
        DatasetError: the predictor was trained on other convolutions than the profile's dataset has now.
    """
    model = profile.predictor.groups["conv"]
    if (model.workspace == UNMEASURED).all():
        return profile
    if family is not None and {one[2] for one in convolutions} != set(model.recall.hashes.tolist()):
        raise DatasetError(
            f"{profile.name}: the predictor recalls other convolutions than the dataset has; train it again"
        )
    if family is None:
        hashes, sampled = model.recall.hashes, np.ones(len(model.sample), dtype=bool)
    else:
        shapes = {shape for shape, of, _ in convolutions if family == of}
        removed = np.array([shape in shapes for shape, *_ in convolutions], dtype=bool)
        hashes = np.array([key for *_, key in convolutions], dtype=np.int64)[removed]
        sampled = removed[spread_sample(removed, len(model.sample), 0)]
    blocks = np.where(np.isin(model.recall.hashes, hashes), NOTHING, model.recall.blocks).astype(np.int16)
    workspace = np.where(sampled, np.float32(UNMEASURED), model.workspace)
    without = replace(model, workspace=workspace, recall=replace(model.recall, blocks=blocks))
    return profile.using(replace(profile.predictor, groups={**profile.predictor.groups, "conv": without}))


def predicted_again(rows: Iterable[Row], device: str, batch_size: int) -> Iterator[Row]:
    """Rows measured earlier with new predictions; two rows a model, as from `measured_rows`."""
    profile = load_profile(DEFAULT)
    convolutions = convolutions_of(profile)
    measured = {(row.model, row.kind): row.measured_bytes for row in rows}
    for name in dict.fromkeys(model for model, _ in measured):
        with torch.device("meta"):
            module, image = _module(name), torch.empty(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE)
        found = _predicted(profile, convolutions, module, image, name)
        yield _row(found, "inference", measured[name, "inference"], device)
        yield _row(found, "training", measured[name, "training"], device)


def measured_rows(models: Iterable[str], device: str, batch_size: int) -> Iterator[Row]:
    """Two rows a model, inference and training; float32, eager, gradients None before the step.

    Args:
        models: torchvision names.
        device: `cuda`, where the allocator's counter is read, or `cpu`, where live storages are counted.
        batch_size: images in a pass.
    """
    profile = load_profile(DEFAULT)
    convolutions = [] if device == "cpu" else convolutions_of(profile)
    if device == "cpu":  # no workspaces there
        profile = without_workspaces(profile, convolutions, None)
    for name in models:
        module = _module(name).to(device)
        image = torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)
        found = _predicted(profile, convolutions, module, image, name)
        _clear(device)
        yield _row(found, "inference", inference_peak_bytes(module.eval(), (image,)), device)
        _clear(device)
        yield _row(found, "training", training_peak_bytes(module.train(), (image,)), device)


def _predicted(
    profile: Profile, convolutions: Sequence[tuple[int, str, int]], module: nn.Module, image: torch.Tensor, name: str
) -> tuple[MemoryReport, MemoryReport]:
    """Reports by the profile, and for inference by the profile without the family's workspaces."""
    unseen = without_workspaces(profile, convolutions, family_of(name))
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
    """Markdown table under a line with the conditions."""
    where = "`torch.cuda.max_memory_allocated`" if device != "cpu" else "live storages of a run on the CPU"
    lines = [
        f"Measured: {where}, batch {batch_size}, {IMAGE_SIZE}x{IMAGE_SIZE}, float32, eager.",
        "*Beyond state*: error of the memory beyond parameters, buffers and inputs. *Held out*: error of the peak",
        "without measured workspaces of the model's family and shapes. *cuDNN at most*: bound on a workspace.",
        "",
        "| model | pass | predicted MiB | measured MiB | error | beyond state | held out | cuDNN at most MiB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sizes = f"{mebibytes(row.predicted_bytes)} | {mebibytes(row.measured_bytes)}"
        errors = f"{row.error:+.2%} | {row.beyond_state_error:+.2%} | {row.unseen_error:+.2%}"
        lines.append(f"| {row.model} | {row.kind} | {sizes} | {errors} | {_allowance(row, device)} |")
    for kind in ("inference", "training"):
        worst = max((abs(row.error) for row in rows if row.kind == kind), default=0.0)
        unseen = max((abs(row.unseen_error) for row in rows if row.kind == kind), default=0.0)
        lines += ["", f"Largest error of {kind}: {worst:.2%}; held out: {unseen:.2%}."]
    return "\n".join(lines)


def _allowance(row: Row, device: str) -> str:
    return "-" if device == "cpu" else mebibytes(row.allowance_bytes)


def _module(name: str) -> nn.Module:
    models = load_torchvision().models
    known = inspect.signature(models.get_model_builder(name)).parameters
    options = {"init_weights": False} if "init_weights" in known else {}
    module: nn.Module = models.get_model(name, weights=None, **options)
    return module


def _clear(device: str) -> None:
    """Free the workspaces of earlier measurements."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
